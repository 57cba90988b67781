"""Kernels as they are defined, loaded and checked, and the work that they declare."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from vendor_compilers import needs

import mptune
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.cpp.prelude import prelude, why_reserved
from mptune.errors import CompileError, KernelError, MptuneError, UnknownNameError
from mptune.kernel import Constant, In, InOut, Kernel, LaunchShape, Out, Scalar, Work
from mptune.kernel.limits import device_constraints
from mptune.paths import bundled_folder
from mptune.source.loading import bundled_kernels, load_kernel
from mptune.space.parameters import OrdinalParameter, PolicyParameter, PrecisionParameter
from mptune.tuning.check import check, select


def make(**changes: Any) -> Kernel:
    given: dict[str, Any] = {
        "name": "scale",
        "parameters": [
            OrdinalParameter("block", [32, 64]),
            OrdinalParameter("unroll", [1, 2]),
            PrecisionParameter("x_type", ["fp64", "fp32", "fp16"]),
            PolicyParameter("policy"),
        ],
        "arguments": [
            Out("y", ("rows", "2*cols"), precision="x_type"),
            In("x", ("rows", "2*cols"), precision="x_type"),
            Scalar("a", precision="fp32"),
            Scalar("rows", dtype="int32"),
        ],
        "sizes": {"default": {"rows": 10, "cols": 3}, "paper": {"rows": 1000, "cols": 3}},
        "inputs": lambda rng, size: {"x": rng.random((size.rows, 2 * size.cols)), "a": 2.0},
        "grid": ["ceildiv(rows, block)"],
        "block": ["block"],
    }
    return Kernel(**(given | changes))


def test_an_extent_takes_any_name_of_a_precision() -> None:
    kernel = make(block=["64 if x_type == 'double' else block"], shared_bytes="8 if x_type in ('float', 'half') else 0")
    sizes = kernel.resolve_sizes()
    for name, block, shared in (("fp64", 64, 0), ("fp32", 32, 8), ("fp16", 32, 8)):
        shape = kernel.launch_shape(kernel.configuration({"x_type": name}), sizes)
        assert (shape.block[0], shape.shared_bytes) == (block, shared), name
    work = make(flops="10 if x_type == 'single' else 20").work(kernel.configuration({"x_type": "fp32"}), sizes)
    assert work.flops == 10
    limits = device_constraints(kernel, {"max_shared_bytes": 100})
    assert limits == ("(8 if x_type in ('fp32', 'fp16') else 0) <= 100",)


def test_names_shapes_and_launch() -> None:
    kernel = make(signature=["unroll"])
    sizes = kernel.resolve_sizes()
    assert kernel.function == "scale"
    assert kernel.signature_names == ("unroll", "x_type", "policy")
    assert kernel.shape_of(kernel.arguments[0], sizes) == (10, 6)
    configuration = kernel.configuration({"block": "64", "x_type": "half"})
    assert dict(configuration) == {"block": 64, "unroll": 1, "x_type": "fp16", "policy": "accurate"}
    big = kernel.resolve_sizes("paper", {"rows": 129})
    assert kernel.launch_shape(configuration, big) == LaunchShape((3, 1, 1), (64, 1, 1), 0)
    assert kernel.signature_of(configuration) == (1, "fp16", "accurate")


def test_baseline_is_widest_and_accurate() -> None:
    assert make().baseline_values() == {"x_type": ("fp64",), "policy": ("accurate",)}
    narrow = make(
        parameters=[
            OrdinalParameter("block", [32]),
            OrdinalParameter("unroll", [1]),
            PrecisionParameter("x_type", ["fp16", "fp32"]),
        ]
    )
    assert narrow.baseline_values() == {"x_type": ("fp32",)}


def bad_definitions() -> Mapping[str, tuple[dict[str, Any], str]]:
    x = In("x", "rows", precision="x_type")
    y = Out("y", "rows", precision="x_type")
    return {
        "name": ({"name": "a b"}, "not an identifier"),
        "no output": ({"arguments": [x]}, "no argument is an output"),
        "no default": ({"sizes": {"smoke": {"rows": 1, "cols": 1}}}, "preset named 'default'"),
        "presets differ": (
            {"sizes": {"default": {"rows": 1, "cols": 1}, "paper": {"rows": 1}}},
            "'paper' does not name cols",
        ),
        "clash": ({"sizes": {"default": {"rows": 1, "cols": 1, "block": 2}}}, "block is both a size and a parameter"),
        "precision": ({"arguments": [Out("y", "rows", precision="xtype")]}, "did you mean 'x_type'"),
        "shape": ({"arguments": [Out("y", "rosw", precision="fp64")]}, "did you mean 'rows'"),
        "grid": ({"grid": ["ceildiv(rows, blokc)"]}, "did you mean 'block'"),
        "axes": ({"grid": ["1"] * 4}, "one to three axes"),
        "signature": ({"signature": ["unrol"]}, "did you mean 'unroll'"),
        "twice": ({"arguments": [y, y]}, "two arguments are called 'y'"),
        "word of Jinja": (
            {"parameters": [OrdinalParameter("loop", [1]), PrecisionParameter("x_type", ["fp64"])]},
            "'loop' is a reserved word of templates and expressions",
        ),
        "word of Python": ({"sizes": {"default": {"rows": 1, "cols": 1, "in": 1}}}, "'in' is a reserved word"),
        "arrays": ({"inputs": [1.0]}, r"inputs= is a function inputs\(rng, size\) -> .*, not \[1.0\]"),
        "no parameter": ({"parameters": "block"}, "parameters has 'block', expected a Parameter"),
        "no presets": ({"sizes": {"rows": 1}}, "not sizes by name"),
        "syntax": ({"grid": ["ceildiv(rows,"]}, "grid"),
    }


@pytest.mark.parametrize("case", bad_definitions())
def test_a_wrong_definition_says_what_is_wrong(case: str) -> None:
    changes, message = bad_definitions()[case]
    with pytest.raises(MptuneError, match=message):
        make(**changes)


def test_grid_block_and_shared_memory_may_be_functions_of_configuration_and_sizes() -> None:
    kernel = make(
        grid=lambda c: (-(-c.rows // c["block"]), c.unroll),
        block=lambda c: c.block,
        shared_bytes=lambda c: 8 * c.block,
    )
    shape = kernel.launch_shape(kernel.configuration({"unroll": 2}), kernel.resolve_sizes("paper"))
    assert shape == LaunchShape((32, 2, 1), (32, 1, 1), 256)
    assert kernel.search_space(kernel.resolve_sizes(), device_constraints(kernel, {"max_threads_per_block": 32})).size


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": lambda c: c.blok}, "function grid= failed: no size"),
        ({"grid": lambda _: sys.exit(3)}, r"function grid= failed: SystemExit\(3\)"),
        ({"block": lambda c: c.block / 2}, "function block= returned 16.0, not whole numbers"),
        ({"grid": lambda _: (1, 1, 1, 1)}, r"the grid is \(1, 1, 1, 1\)"),
        ({"shared_bytes": lambda _: "n"}, "function shared_bytes= returned 'n'"),
    ],
)
def test_a_function_of_a_launch_that_fails_is_named(changes: dict[str, Any], message: str) -> None:
    kernel = make(**changes)
    with pytest.raises(KernelError, match=message):
        kernel.launch_shape(kernel.configuration({}), kernel.resolve_sizes())


# -- loading -----------------------------------------------------------------------------------------

OWN = Path(__file__).with_name("own_kernel.py")


def test_every_bundled_kernel_loads_with_reference_and_presets() -> None:
    assert {"axpy", "convolution2d"} <= set(bundled_kernels())
    for name in bundled_kernels():
        kernel = load_kernel(name)
        assert kernel.name == name
        assert kernel.reference is not None
        assert {"smoke", "default", "paper"} <= set(kernel.sizes)
        assert kernel.description
        assert (bundled_folder("templates") / f"{name}.cu.j2").is_file()


def test_layout_of_siblings_works_outside_the_project(tmp_path: Path) -> None:
    for folder, suffix in (("kernels", ".py"), ("templates", ".cu.j2"), ("references", ".py")):
        (tmp_path / folder).mkdir()
        shutil.copy(bundled_folder(folder) / f"axpy{suffix}", tmp_path / folder / f"mine{suffix}")
    kernel = load_kernel(tmp_path / "kernels" / "mine.py")
    assert kernel.reference is not None
    assert kernel.reference.__code__.co_filename == str(tmp_path / "references" / "mine.py")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "defines no kernel"),
        ("import nonexistent_module_xyz", "broken.py:1: ModuleNotFoundError"),
        ("\ndef f(:", "broken.py:2: SyntaxError"),
        ("x = 1\ny = 1 / 0", "broken.py:2: ZeroDivisionError"),
    ],
)
def test_broken_definition_is_explained(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(KernelError, match=message):
        load_kernel(path)


def test_unknown_names_and_files_get_suggestions(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'convolution2d'.*given as the path of its file"):
        load_kernel("convolutoin2d")
    shutil.copy(OWN, tmp_path / "mine.py")
    with pytest.raises(KernelError, match=r"did you mean '.*mine.py'"):
        load_kernel(tmp_path / "mien.py")
    with pytest.raises(UnknownNameError):
        load_kernel("_init__")


def test_kernels_and_applications_are_loaded_each_by_its_own_name() -> None:
    assert mptune.load_application("conjugate_gradient").what == "application"
    with pytest.raises(KernelError, match="is an application: load_application loads it"):
        mptune.load_kernel("conjugate_gradient")
    with pytest.raises(KernelError, match="is a single kernel: load_kernel loads it"):
        mptune.load_application("axpy")


# -- check -------------------------------------------------------------------------------------------

CHECK_KERNEL = load_kernel(Path(__file__).with_name("own_kernel.py"))
SIZES = CHECK_KERNEL.resolve_sizes()


def test_by_default_every_value_of_every_parameter_comes() -> None:
    chosen = select(CHECK_KERNEL.search_space(SIZES), CHECK_KERNEL.signature_names)
    for parameter in CHECK_KERNEL.parameters:
        assert {c[parameter.name] for c in chosen} == set(parameter.values)
    assert len(chosen) < sum(len(p.values) for p in CHECK_KERNEL.parameters) / 2
    assert select(CHECK_KERNEL.search_space(SIZES), CHECK_KERNEL.signature_names) == chosen


def test_failures_that_say_the_same_are_told_once() -> None:
    template = (
        str(CHECK_KERNEL.template)
        + "\n{% if unroll == 4 %}\n#error no four of {{ block }}\n{% endif %}\n{{ nothing }}\n"
    )
    result = check(dataclasses.replace(CHECK_KERNEL, template=template), get_backend("host"))
    (group,) = result.failure_groups
    assert len(group) == len(result.compilations) > 1
    lines = template.count("\n")
    assert group[0].message.startswith(f"template of kernel poly, line {lines}: 'nothing' is not defined")
    result = check(
        dataclasses.replace(CHECK_KERNEL, template=template.replace("{{ nothing }}", "")), get_backend("host")
    )
    assert [len(group) for group in result.failure_groups] == [len(result.failures)]
    assert {c.configuration["unroll"] for c in result.failures} == {4}
    assert all("no four" in c.message for c in result.failures)
    assert len(result.failures) < len(result.compilations)
    assert f"template of kernel poly, line {lines - 2} (line" in result.failures[0].message


# -- the work a kernel declares: operations by the type they are in, bytes by what its ---------------

TYPES = ["fp64", "fp32", "fp16", "bf16"]


def work_make(flops: Any) -> Kernel:
    return Kernel(
        name="mix",
        parameters=[
            OrdinalParameter("unroll", [1, 2]),
            PrecisionParameter("x_type", TYPES),
            PrecisionParameter("y_type", TYPES),
        ],
        arguments=[
            Out("y", ("rows", "3"), precision="y_type"),
            In("x", "2 * rows", precision="x_type"),
            InOut("counts", "rows", dtype="int16"),
            In("weights", 7, precision="fp32"),
            Scalar("a", precision="x_type"),
        ],
        sizes={"default": {"rows": 10}},
        inputs=lambda rng, size: {},
        grid=["1"],
        block=["1"],
        flops=flops,
    )


def work(flops: Any, **values: Any) -> Work:
    kernel = work_make(flops)
    return kernel.work(kernel.configuration(values), kernel.resolve_sizes())


def test_bytes_are_read_once_written_once_and_both_for_inout() -> None:
    assert work(None, x_type="fp64", y_type="fp16") == Work(30 * 2 + 20 * 8 + 10 * 2 * 2 + 7 * 4)
    assert work(None, x_type="bf16", y_type="fp32") == Work(30 * 4 + 20 * 2 + 10 * 2 * 2 + 7 * 4)
    assert work(None).flops is None
    assert work(None).intensity is None


@pytest.mark.parametrize(
    ("flops", "expected"),
    [(5, 5), (2.5, 2.5), ("2 * rows", 20), ("rows * unroll", 20), (lambda size: 3 * size.rows, 30)],
)
def test_a_count_is_a_number_an_expression_or_a_function(flops: Any, expected: float) -> None:
    found = work(flops, unroll=2)
    assert found.flops == expected
    assert found.flops_by_precision == {}
    assert found.intensity == expected / found.traffic_bytes


def test_counts_by_precision_add_up_in_the_types_of_a_configuration() -> None:
    flops = {"x_type": "rows", ("x_type", "y_type"): "10 * rows", "fp32": 7, "double": lambda size: size.rows**2}
    found = work(flops, x_type="fp32", y_type="fp16")
    assert found.flops_by_precision == {"fp32": 10 + 100 + 7, "fp64": 100}
    assert found.flops == 217
    assert work(flops, x_type="bf16", y_type="fp16").flops_by_precision == {"bf16": 10, "fp32": 107, "fp64": 100}
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("flops", "message"),
    [
        ("2 * rwos", "did you mean 'rows'"),
        ({"z_type": 1}, "did you mean 'x_type'|did you mean 'y_type'"),
        ({("x_type", "fp23"): 1}, "did you mean 'fp32'"),
        ({}, "names no precision"),
        (-1, "finite number that is not negative"),
        ([1], "finite number that is not negative"),
    ],
)
def test_a_wrong_declaration_says_what_is_wrong(flops: Any, message: str) -> None:
    with pytest.raises(MptuneError, match=message):
        work_make(flops)


# -- the bundled kernels ---------------------------------------------------------------------------


def default_work(name: str, overrides: dict[str, int] | None = None, **types: str) -> Work:
    kernel = load_kernel(name)
    sizes = kernel.resolve_sizes("default", overrides)
    return kernel.work(kernel.configuration(types), sizes)


def test_gemm_and_convolution_do_the_operations_of_their_definitions() -> None:
    gemm = default_work("gemm", {"M": 3, "N": 5, "K": 7}, a_type="fp16", b_type="fp16", accumulator_type="fp32")
    assert gemm.flops_by_precision == {"fp32": 2 * 3 * 5 * 7}
    assert gemm.traffic_bytes == 2 * 3 * 7 + 2 * 7 * 5 + 2 * 8 * 3 * 5
    image = default_work("convolution2d", {"width": 4, "height": 3, "filter_width": 2, "filter_height": 5})
    assert image.flops == 2 * 12 * 10


def test_lavamd_counts_the_pairs_there_are() -> None:
    def neighbours(boxes: int) -> int:
        cells = list(itertools.product(range(boxes), repeat=3))
        return sum(all(abs(a - b) <= 1 for a, b in zip(one, two, strict=True)) for one in cells for two in cells)

    for boxes in (1, 2, 3):
        found = default_work("lavamd", {"boxes": boxes, "particles": 5})
        assert found.flops == 25 * neighbours(boxes) * 25


# -- names a kernel cannot have: what is refused does not compile, and what compiles is not ----------

RESERVED_OWN = load_kernel(Path(__file__).with_name("own_kernel.py"))
BACKENDS = [
    ("host", ""),
    pytest.param("cuda", "sm_80", marks=needs("cuda")),
    pytest.param("hip", "gfx90a", marks=needs("hip")),
]
#: One of each kind of thing the prelude declares; names of types clash only with what uses them.
RESERVED = ("dot", "min", "load", "fma", "local", "accurate", "mp", "VECTOR_LOOP", "class", "main")
FREE = ("poly", "value", "T", "kernel", "signature", "detail", "address", "result")


@pytest.mark.nightly
@pytest.mark.parametrize(("backend", "architecture"), BACKENDS)
def test_what_is_refused_does_not_compile_and_what_is_not_does(backend: str, architecture: str) -> None:
    compiler = get_backend(backend).compiler

    def compiles(name: str) -> bool:
        entry = f"#if defined(MPTUNE_HOST)\nMPTUNE_HOST_ENTRY({name}, 64, 1, 1)\n#endif\n"
        source = f'extern "C" __global__ void {name}(double* y_) {{ y_[threadIdx.x] = 1; }}\n'
        declared = f"static_assert(mptune_declared::parameter<0, decltype(&{name})>::type(nullptr) == nullptr);\n"
        try:
            compiler.compile(f"{prelude()}\n{source}{declared}{entry}", name, CompileOptions(architecture=architecture))
        except CompileError:
            return False
        return True

    assert [name for name in RESERVED if compiles(name)] == []
    assert [name for name in FREE if not compiles(name)] == []
    assert all(map(why_reserved, RESERVED))
    assert not any(map(why_reserved, FREE))


def test_a_kernel_of_such_a_name_is_refused_when_it_is_made() -> None:
    with pytest.raises(KernelError, match=r"kernel dot: 'dot' is .*prelude.*dot_"):
        dataclasses.replace(RESERVED_OWN, name="dot", function="dot")
    assert dataclasses.replace(RESERVED_OWN, name="dot", function="dot_kernel").function == "dot_kernel"
    weights = Constant("load", "n", precision="fp64")
    with pytest.raises(KernelError, match=r"'load' is .* load_"):
        dataclasses.replace(RESERVED_OWN, arguments=(*RESERVED_OWN.arguments, weights))
