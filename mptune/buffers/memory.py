"""How much memory is left, and sizes in words a person reads."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["available_memory_bytes", "in_words"]


def available_memory_bytes(root: Path = Path("/")) -> int:
    """Return the bytes this process can still allocate without swapping.

    The least of what the machine has left and what the control groups (containers, batch systems) of this
    process allow.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    return min([_machine(root), *_control_groups(root)])


def _machine(root: Path) -> int:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        fields = {name: rest for name, _, rest in (line.partition(":") for line in lines)}
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _control_groups(root: Path) -> list[int]:
    """Return what each enclosing memory group has left, of version 2 or 1."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    left: list[int] = []
    for line in lines:
        _, controllers, inside = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        mount = root / "sys/fs/cgroup" / controllers
        names = ("memory.max", "memory.current", "inactive_file")
        if controllers:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        # Inside a container the path may be the host's and not exist here: the mount itself then is the group.
        group = mount / inside.strip("/")
        folders = [group, *group.parents]
        left += [
            bytes_left
            for folder in folders[: folders.index(mount) + 1]
            if (bytes_left := _left(folder, *names)) is not None
        ]
    return left


def _left(folder: Path, limit: str, usage: str, reclaimable: str) -> int | None:
    try:
        limit_bytes = int((folder / limit).read_text())
        used_bytes = int((folder / usage).read_text())
        statistics = dict(line.split(maxsplit=1) for line in (folder / "memory.stat").read_text().splitlines())
        return max(0, limit_bytes - used_bytes + int(statistics.get(reclaimable, 0)))
    except (OSError, ValueError):
        return None


def in_words(size_bytes: float) -> str:
    """Return a number of bytes in decimal units, "3.2 GB"."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.3g} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.4g} TB"
