"""This machine's processor: its model, caches and load."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Cumulative feature levels of x86-64 that compilers know (System V psABI).
_X86_LEVELS: Final = (
    ("x86-64-v2", {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
    ("x86-64-v3", {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}),
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
)
#: Further features that determine the speed of a precision.
_PRECISION_FEATURES: Final = ("avx512_fp16", "avx512_bf16", "fphp", "asimdhp", "bf16", "sve", "sve2")
#: Fields of /proc/cpuinfo on which binaries and timings depend (x86, then Arm).
_IDENTIFYING: Final = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
)


@dataclass(frozen=True, slots=True)
class Processor:
    """One processor model."""

    name: str  #: marketing name, with family and model if it contains no number, as on virtual machines
    architecture: str  #: level of the instruction set, with features of precisions ("x86-64-v4+avx512_fp16")
    fingerprint: str  #: a checksum that differs between processors that may need different binaries


@functools.cache
def processor() -> Processor:
    """Describe this machine's processor."""
    fields: dict[str, str] = {}
    with contextlib.suppress(OSError):
        first = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0]
        fields = {
            name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())
        }
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    level = "x86-64" if platform.machine() in ("x86_64", "AMD64") else platform.machine()
    for known, needed in _X86_LEVELS if level == "x86-64" else ():
        if not needed <= flags:
            break
        level = known
    name = fields.get("model name") or platform.processor() or platform.machine()
    if "model name" in fields and not any(map(str.isdigit, name)) and {"cpu family", "model"} <= fields.keys():
        name = f"{name} (family {fields['cpu family']}, model {fields['model']})"
    text = "\n".join([platform.machine(), *(f"{field}={fields.get(field, '')}" for field in _IDENTIFYING)])
    return Processor(
        name=name,
        architecture="+".join([level, *(feature for feature in _PRECISION_FEATURES if feature in flags)]),
        fingerprint=hashlib.sha256(text.encode()).hexdigest()[:16],
    )


def usable_cores() -> int:
    """Return the number of cores available to this process."""
    return len(os.sched_getaffinity(0))


def cache_limits(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[str, int]:
    """Return the bytes of the largest cache (``cache_bytes``) and of all second-level caches together; 0 if unknown."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    found: dict[int, int] = {}
    for file in folder.glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            text, level = file.read_text().strip(), file.with_name("level")
            size = int(text.rstrip("KMG")) * units.get(text[-1:], 1)
            number = int(level.read_text()) if level.exists() else 0
            found[number] = max(size, found.get(number, 0))
    return {"cache_bytes": max(found.values(), default=0), "own_cache_bytes": usable_cores() * found.get(2, 0)}


def fixed_work_ms(lasting_ms: float) -> float:
    """Return the present milliseconds of a fixed piece of work on one core, about 0.04 ms.

    It depends only on clock frequencies and on steal time of a virtual machine. The work is repeated for about
    ``lasting_ms``, the duration of a launch, so that disturbances are as likely.
    """
    work = bytes(1 << 16)
    hashlib.sha256(work).digest()  # fills the caches after a launch
    start, pieces = time.perf_counter(), 0
    while (took_ms := (time.perf_counter() - start) * 1e3) < lasting_ms or not pieces:
        hashlib.sha256(work).digest()
        pieces += 1
    return took_ms / pieces


def other_tasks_per_core() -> float:
    """Return the machine's runnable tasks, this one excepted, per core; NaN if unknown."""
    try:
        runnable = Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
        return max(0, int(runnable) - 1) / (os.cpu_count() or 1)
    except (OSError, ValueError, IndexError):
        return math.nan
