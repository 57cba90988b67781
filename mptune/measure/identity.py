"""The identity of everything a trial's numbers depend on."""

from __future__ import annotations

from collections.abc import Mapping

from mptune.accuracy.evaluate import Metrics, all_metrics
from mptune.kernel import Kernel, Sizes, Tunable
from mptune.source.render import included_headers, render, template_hash
from mptune.space.configuration import Configuration

__all__ = ["launch_identity", "metric_identity", "source_of", "unversioned"]


def source_of(kernel: Tunable, configuration: Configuration, sizes: Sizes) -> str:
    """Return the rendered source of a configuration; of an application, what its kernels' sources are made from.

    Raises:
        TemplateError: a template is missing, does not parse, or does not define what it is to.
        KernelError: a value is not one of those declared.
    """
    if isinstance(kernel, Kernel):
        return render(kernel, configuration, sizes)
    return f"{template_hash(kernel)} {kernel.own(configuration)}{included_headers(kernel)}"


def launch_identity(kernel: Tunable, configuration: Configuration, sizes: Sizes) -> str:
    """Return grid, block, shared memory and arguments of a launch, none of which a source shows, as text.

    Raises:
        KernelError: an extent is below 1.
        ExpressionError: an extent has no value.
    """
    arguments = [
        (argument.name, argument.role.value, precision.name if precision else argument.dtype)
        for argument in kernel.arguments
        for precision in (kernel.precision_of(argument, configuration),)
    ]
    shape = kernel.launch_shape(configuration, sizes) if isinstance(kernel, Kernel) else None
    return repr((shape, arguments))


def metric_identity(metric: Metrics) -> str:
    """Return a metric as text: its name and, if it is not bundled, its version; of several, each one's.

    Raises:
        UnknownNameError: no metric has that name.
    """
    if isinstance(metric, Mapping):
        return "\n".join(f"{name}={metric_identity(metric[name])}" for name in sorted(metric))
    found = all_metrics(metric)
    return ", ".join(each.name if each.is_bundled else f"{each.name} version {each.version}" for each in found)


def unversioned(metric: Metrics) -> tuple[str, ...]:
    """Return the names of the metrics that are neither bundled nor have a version.

    Nothing tells whether such a metric is still what it was, so trials measured with it are not used again.

    Raises:
        UnknownNameError: no metric has that name.
    """
    names = [each.name for each in all_metrics(metric) if not each.is_bundled and not each.version]
    return tuple(dict.fromkeys(names))
