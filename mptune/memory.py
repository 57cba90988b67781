"""Total and available memory, and sizes as text."""

from __future__ import annotations

import os
from pathlib import Path


def available_memory_bytes(root: Path = Path("/")) -> int:
    """Return the bytes this process can still allocate without swapping.

    The minimum over the machine and the control groups (containers, batch systems) of this process. ``root`` is the
    folder of ``proc`` and ``sys``.
    """
    groups = (max(0, limit - used) for limit, used in _control_groups(root))
    return min((_machine(root, "MemAvailable", "SC_AVPHYS_PAGES"), *groups))


def total_memory_bytes(root: Path = Path("/")) -> int:
    """Return the bytes of the machine, or of the tightest control group of this process."""
    return min((_machine(root, "MemTotal", "SC_PHYS_PAGES"), *(limit for limit, _ in _control_groups(root))))


def _machine(root: Path, field: str, pages: str) -> int:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        fields = {name: rest for name, _, rest in (line.partition(":") for line in lines)}
        return int(fields[field].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")


def _control_groups(root: Path) -> list[tuple[int, int]]:
    """Return limit and usage in bytes of each enclosing control group (version 1 or 2) with a memory limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found: list[tuple[int, int]] = []
    for line in lines:
        _, controllers, inside = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        mount = root / "sys/fs/cgroup" / controllers
        names = ("memory.max", "memory.current", "inactive_file")
        if controllers:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        # In a container the path may be the host's. Then it does not exist, and the mount itself is the group.
        inmost = mount / inside.strip("/")
        folders = [inmost, *inmost.parents]
        groups = (_group(folder, *names) for folder in folders[: folders.index(mount) + 1])
        found += [group for group in groups if group is not None]
    return found


def _group(folder: Path, limit: str, usage: str, reclaimable: str) -> tuple[int, int] | None:
    try:
        limit_bytes = int((folder / limit).read_text())
        used_bytes = int((folder / usage).read_text())
        statistics = dict(line.split(maxsplit=1) for line in (folder / "memory.stat").read_text().splitlines())
        return limit_bytes, used_bytes - int(statistics.get(reclaimable, 0))
    except (OSError, ValueError):
        return None


def in_words(size_bytes: float) -> str:
    """Return a number of bytes in decimal units, such as "3.2 GB"."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.3g} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.4g} TB"
