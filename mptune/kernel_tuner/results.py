"""Results as Kernel Tuner has them, and the files that it writes of them."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from mptune.errors import KernelError, UnknownNameError

#: Whether more is better, by the usual names of objectives.
_HIGHER: Final = {
    **dict.fromkeys(("time", "energy", "cost", "loss"), False),
    **dict.fromkeys(("fitness", "GFLOP/s", "TFLOP/s", "GB/s", "TB/s"), True),
    **dict.fromkeys(("GFLOPS/W", "TFLOPS/W", "GFLOP/J", "TFLOP/J"), True),
}
#: Durations of a result, by their names in T4 files.
_DURATIONS: Final = {
    "compilation": "compile_time",
    "benchmark": "benchmark_time",
    "framework": "framework_time",
    "search_algorithm": "strategy_time",
    "validation": "verification_time",
}
_INVALIDITY: Final = {"CompilationFailedConfig": "compile", "InvalidConfig": "constraints"}

Result = dict[str, Any]


class ErrorConfig(str):
    """Why a configuration failed: the name of its class."""

    __slots__ = ()

    def __new__(cls, *_: Any) -> ErrorConfig:  # noqa: D102
        return super().__new__(cls, cls.__name__)


class InvalidConfig(ErrorConfig):
    """A configuration that a constraint excludes."""

    __slots__ = ()


class CompilationFailedConfig(ErrorConfig):
    """A configuration that does not compile."""

    __slots__ = ()


class RuntimeFailedConfig(ErrorConfig):
    """A configuration that fails when it runs, or whose outputs are wrong."""

    __slots__ = ()


ERRORS: Final = {
    kind.__name__: kind for kind in (ErrorConfig, InvalidConfig, CompilationFailedConfig, RuntimeFailedConfig)
}


class Encoder(json.JSONEncoder):
    """Writes NumPy's numbers and arrays as JSON."""

    def default(self, o: Any) -> Any:  # noqa: D102
        if isinstance(o, np.generic | np.ndarray):
            return o.tolist()
        return str(o) if callable(o) else super().default(o)


def failed(entry: Mapping[str, Any]) -> Result:
    """Return a result read from a file with its error as an object."""
    word = next((value for value in entry.values() if isinstance(value, str) and value in ERRORS), None)
    return dict(entry) if word is None else {**entry, "__error__": ERRORS[word]()}


def objective_defaults(objective: Any, is_higher: bool | None) -> tuple[str, bool]:
    """Return an objective, the time by default, and whether more of it is better.

    Raises:
        KernelError: the direction of an unknown objective is not given.
    """
    name = str(objective or "time")
    if is_higher is None and name not in _HIGHER:
        raise KernelError(f"objective {name!r}: give objective_higher_is_better as well")
    return name, _HIGHER[name] if is_higher is None else bool(is_higher)


def get_best_config(
    results: Iterable[Mapping[str, Any]], objective: str, objective_higher_is_better: bool = False
) -> Any:
    """Return the best of the results that did not fail; None if all did."""
    ran = [each for each in results if "__error__" not in each and isinstance(each.get(objective), int | float)]
    return (max if objective_higher_is_better else min)(ran, key=lambda each: each[objective], default=None)


def get_pareto_results(
    results: Sequence[Result], objectives: Sequence[str], objective_higher_is_better: Sequence[bool]
) -> list[Result]:
    """Return the results that no other one beats in every objective."""
    ran = [each for each in results if "__error__" not in each and all(name in each for name in objectives)]
    signs = [-1.0 if higher else 1.0 for higher in objective_higher_is_better]
    costs = np.array([[s * float(each[n]) for n, s in zip(objectives, signs, strict=True)] for each in ran])
    return [
        each
        for each, cost in zip(ran, costs, strict=True)
        if not ((costs <= cost).all(axis=1) & (costs < cost).any(axis=1)).any()
    ]


def get_config_string(params: Mapping[str, Any], keys: Iterable[str] | None = None, units: Any = None) -> str:
    """Return a configuration or a result as text."""
    keys, units = list(params if keys is None else keys), units or {}
    texts = {name: f"{value:.3f}" if isinstance(value, float) else str(value) for name, value in params.items()}
    return ", ".join(f"{name}={text}{units.get(name, '')}" for name, text in texts.items() if name in keys)


# -- T4 files ------------------------------------------------------------------------------------


def _named(filename: str | Path) -> Path:
    path = Path(filename)
    path = path if path.suffix == ".json" else path.with_name(f"{path.name}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def get_t4_results(results: Iterable[Mapping[str, Any]], tune_params: Iterable[str], objective: str = "time") -> Result:
    """Return results in the T4 format."""
    names, rows = list(tune_params), []
    unmeasured = {*names, *_DURATIONS.values(), "timestamp", "times", "__error__", "message"}
    for each in results:
        error = each.get("__error__")
        rows.append(
            {
                **({"timestamp": each["timestamp"]} if "timestamp" in each else {}),
                "configuration": {name: each[name] for name in names if name in each},
                "times": {
                    **{word: each.get(name, 0) for word, name in _DURATIONS.items()},
                    "runtimes": each.get("times", []),
                },
                "invalidity": "correct" if error is None else _INVALIDITY.get(str(error), "runtime"),
                "correctness": 1,
                "measurements": [
                    {"name": name, "value": value, "unit": "ms" if name.startswith("time") else ""}
                    for name, value in each.items()
                    if name not in unmeasured
                ],
                "objectives": [objective],
            }
        )
    return {"results": rows, "schema_version": "1.0.0", "metadata": {"timeunit": "milliseconds"}}


def store_output_file(
    output_filename: str | Path,
    results: Iterable[Mapping[str, Any]],
    tune_params: Iterable[str],
    objective: str = "time",
) -> None:
    """Write results in the T4 format."""
    _named(output_filename).write_text(
        json.dumps(get_t4_results(results, tune_params, objective), cls=Encoder), encoding="utf-8"
    )


def get_t4_metadata() -> Result:
    """Return a description of the machine and of Python's packages in the T4 format."""
    hardware = _output(["lshw", "-json"]) or "[]"
    described = json.loads(hardware if hardware.lstrip().startswith("[") else f"[{hardware}]")
    query = {}
    if text := _output(["rocm-smi", "--showallinfo", "--json"]):
        query["rocm-smi"] = json.loads(text)
    if text := _output(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]):
        query["nvidia-smi"] = text.splitlines()
    needed = [re.split(r"[^\w.-]", line)[0] for line in importlib.metadata.requires("mptune") or ()]
    packages = {}
    for name in ("mptune", *needed):
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    metadata = {
        "operating_system": {"Darwin": "Mac"}.get(platform.system(), platform.system()),
        "hardware": {"hardware_description": described or [{"machine": platform.machine()}]},
        "environment": {
            "device_query": query,
            "requirements": [f"{name}=={version}" for name, version in packages.items()],
        },
    }
    return {"metadata": metadata, "schema_version": "1.0.0"}


def _output(command: Sequence[str]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def store_metadata_file(metadata_filename: str | Path) -> None:
    """Write a description of the machine in the T4 format."""
    _named(metadata_filename).write_text(json.dumps(get_t4_metadata(), indent=2), encoding="utf-8")


# -- results by device, and headers ------------------------------------------------------------------


def _size_text(problem_size: Any) -> str:
    sizes = problem_size if isinstance(problem_size, list | tuple) else [problem_size]
    return "x".join(map(str, sizes))


def store_results(
    results_filename: str | Path,
    kernel_name: str,
    kernel_string: Any,
    tune_params: Mapping[str, Any],
    problem_size: Any,
    results: Iterable[Mapping[str, Any]],
    env: Mapping[str, Any],
    top: float = 3,
    objective: str | None = None,
    objective_higher_is_better: bool | None = None,
) -> None:
    """Write the configurations within ``top`` percent of the best one, beside those of other devices and sizes.

    Raises:
        KernelError: nothing ran, or the file is of another kernel or objective.
    """
    objective, is_higher = objective_defaults(objective, objective_higher_is_better)
    best = get_best_config(results := list(results), objective, is_higher)
    if best is None:
        raise KernelError(f"{kernel_name}: no result has {objective!r}, so none can be stored")
    path, names = Path(results_filename), list(tune_params)
    meta: Result = {"version_number": "1.0", "kernel_name": kernel_name}
    if isinstance(kernel_string, str):
        is_file = not re.search(r"[\n{]", kernel_string) and Path(kernel_string).is_file()
        meta["kernel_string"] = Path(kernel_string).read_text(encoding="utf-8") if is_file else kernel_string
    meta |= {"objective": objective, "objective_higher_is_better": is_higher, "tunable_parameters": names, "data": []}
    if path.is_file():
        meta = _read_results(path)
        for name, value in (("kernel_name", kernel_name), ("objective", objective), ("tunable_parameters", names)):
            if meta[name] != value:
                raise KernelError(f"{path} has {name} {meta[name]!r}, expected {value!r}")
    sign = -1.0 if is_higher else 1.0
    limit = best[objective] * (1 + sign * top / 100)
    device, size = re.sub(r"[^0-9a-zA-Z]+", "_", str(env["device_name"]).strip()), _size_text(problem_size)
    kept = [each for each in meta["data"] if (each["device_name"], each["problem_size"]) != (device, size)]
    kept += [
        {
            "device_name": device,
            "problem_size": size,
            "tunable_parameters": {name: each[name] for name in names},
            objective: each[objective],
        }
        for each in results
        if isinstance(each.get(objective), int | float) and (each is best or sign * (each[objective] - limit) < 0)
    ]
    meta["data"] = kept
    path.write_text(json.dumps(meta, cls=Encoder, indent=""), encoding="utf-8")


def _read_results(path: str | Path) -> Result:
    if not os.path.isfile(path):  # noqa: PTH113 - any path-like
        raise KernelError(f"no results file {path}")
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(document, dict) or document.get("version_number") != "1.0" or not document.get("data"):
        raise KernelError(f"{path} is no file of store_results with results")
    return document


class TuneResults:
    """The results in a file of :func:`store_results`."""

    def __init__(self, results_filename: str | Path) -> None:
        self.meta = _read_results(results_filename)
        self.data: list[Result] = self.meta["data"]
        self.objective: str = self.meta["objective"]
        self.objective_higher_is_better: bool = self.meta.get("objective_higher_is_better", False)

    def get_best_config(self, gpu_name: str = "default", problem_size: Any = None) -> Result:
        """Return the parameters of the best configuration of a device and size.

        Without results of them it is the configuration that is most often among the best.
        """
        name = re.sub(r"[- ]", "_", gpu_name)
        of_device = [each for each in self.data if each["device_name"] == name]
        size = problem_size if isinstance(problem_size, str) else _size_text(problem_size)
        if of_size := [each for each in of_device if problem_size and each["problem_size"] == size]:
            best: Result = get_best_config(of_size, self.objective, self.objective_higher_is_better)
            return dict(best["tunable_parameters"])
        counts: Counter[str] = Counter()
        totals: Counter[str] = Counter()
        parameters = {}
        for each in of_device or self.data:
            key = json.dumps(each["tunable_parameters"], cls=Encoder)
            parameters[key] = each["tunable_parameters"]
            counts[key] += 1
            totals[key] += each[self.objective]
        common = [key for key, count in counts.items() if count == max(counts.values())]
        choose = max if self.objective_higher_is_better else min
        return dict(parameters[choose(common, key=totals.__getitem__)])


def create_device_targets(
    header_filename: str | Path,
    results_filename: str | Path,
    objective: str | None = None,
    objective_higher_is_better: bool | None = None,
) -> None:
    """Write a header that defines the parameters of the device that ``TARGET_DEVICE`` names, and default ones."""
    results = TuneResults(results_filename)
    named = objective_defaults(objective or results.objective, objective_higher_is_better)[0]
    if named != results.objective:
        raise UnknownNameError(f"objective in {results_filename}", named, [results.objective])
    defined = "\n".join
    lines = [f"#define {name} {value}" for name, value in results.get_best_config().items()]
    branches: list[str] = []
    for device in dict.fromkeys(each["device_name"] for each in results.data):
        own = [f"#define {name} {value}" for name, value in results.get_best_config(device).items()]
        branches.append(f"{'#elif defined' if branches else '#if defined'}(TARGET_{device})\n{defined(own)}\n")
    Path(header_filename).write_text(
        "/* parameters by device, written by mptune */\n#pragma once\n#ifndef kernel_tuner /* not while tuning */\n\n"
        f"{''.join(branches)}#else /* any other device */\n{defined(lines)}\n#endif\n\n#endif /* kernel_tuner */\n",
        encoding="utf-8",
    )
