"""How much memory is left, on a machine and within control groups."""

from __future__ import annotations

import functools

import pytest

from mptune.backends.host import HostBackend
from mptune.errors import OutOfMemoryError
from mptune.memory import available_memory_bytes, total_memory_bytes


def machine(root, kilobytes=8_000_000):
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 16000000 kB\nMemAvailable: {kilobytes} kB\nSwapFree: 0 kB\n")


def group(folder, limit, used, reclaimable, names=("memory.max", "memory.current", "inactive_file")):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {reclaimable}\n")


def test_the_machine_alone(tmp_path):
    machine(tmp_path)
    assert available_memory_bytes(tmp_path) == 8_000_000 * 1024
    assert total_memory_bytes(tmp_path) == 16_000_000 * 1024


def test_the_tightest_enclosing_group_counts(tmp_path):
    machine(tmp_path)
    (tmp_path / "proc/self/cgroup").write_text("0::/jobs/42/step\n")
    groups = tmp_path / "sys/fs/cgroup"
    group(groups / "jobs/42/step", "max", 100, 0)
    group(groups / "jobs/42", 5000, 3000, 600)
    group(groups / "jobs", 9000, 3000, 0)
    assert available_memory_bytes(tmp_path) == 5000 - 3000 + 600
    assert total_memory_bytes(tmp_path) == 5000
    group(groups / "jobs", 4000, 5000, 0)
    assert available_memory_bytes(tmp_path) == 0


def test_a_container_that_sees_its_group_as_the_root(tmp_path):
    machine(tmp_path)
    (tmp_path / "proc/self/cgroup").write_text("0::/docker/abc\n")
    group(tmp_path / "sys/fs/cgroup", 7000, 1000, 0)
    assert available_memory_bytes(tmp_path) == 6000


def test_groups_of_version_1(tmp_path):
    machine(tmp_path)
    (tmp_path / "proc/self/cgroup").write_text("5:cpu,cpuacct:/a\n3:memory:/a\n0::/\n")
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    group(tmp_path / "sys/fs/cgroup/memory/a", 4096, 1000, 96, names)
    assert available_memory_bytes(tmp_path) == 3192


def test_the_host_allocates_no_more_than_the_enclosing_groups_allow(tmp_path, monkeypatch):
    machine(tmp_path)
    (tmp_path / "proc/self/cgroup").write_text("0::/jobs/42/step\n")
    group(tmp_path / "sys/fs/cgroup/jobs/42/step", "max", 100, 0)
    group(tmp_path / "sys/fs/cgroup/jobs", 9000, 3000, 0)
    for function in (available_memory_bytes, total_memory_bytes):
        monkeypatch.setattr(f"mptune.backends.host.{function.__name__}", functools.partial(function, tmp_path))
    device = HostBackend().device
    assert device.describe().memory_bytes == 9000
    with pytest.raises(OutOfMemoryError, match="6001 bytes were requested and 6000 bytes of host memory are available"):
        device.allocate(6001)
    device.allocate(6000).free()
