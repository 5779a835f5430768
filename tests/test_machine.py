"""CPUs and memory are those a process may really use, not those the machine has."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise import machine


def cgroup(tmp_path: Path, membership: str, files: dict[str, str]) -> tuple[Path, Path]:
    """A made-up /proc and /sys/fs/cgroup."""
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(membership)
    cgroups.mkdir()
    for name, text in files.items():
        (cgroups / name).parent.mkdir(parents=True, exist_ok=True)
        (cgroups / name).write_text(text)
    return proc, cgroups


def test_quota_of_version_2(tmp_path: Path) -> None:
    """cpu.max of the process's own group counts: 250 ms of every 100 ms are 2.5 CPUs."""
    where = cgroup(tmp_path, "0::/app/job\n", {"app/job/cpu.max": "250000 100000\n"})
    assert machine.cpu_quota(*where) == 2.5


def test_tightest_group_on_the_path_counts(tmp_path: Path) -> None:
    """A limit of a parent group binds its children, whatever they are given."""
    files = {"app/cpu.max": "150000 100000", "app/job/cpu.max": "max 100000", "cpu.max": "400000 100000"}
    assert machine.cpu_quota(*cgroup(tmp_path, "0::/app/job\n", files)) == 1.5


def test_quota_of_version_1(tmp_path: Path) -> None:
    """cpu.cfs_quota_us and cpu.cfs_period_us count, in a folder named after one or both controllers."""
    files = {"cpu,cpuacct/box/cpu.cfs_quota_us": "50000", "cpu,cpuacct/box/cpu.cfs_period_us": "100000"}
    assert machine.cpu_quota(*cgroup(tmp_path, "5:memory:/x\n3:cpu,cpuacct:/box\n", files)) == 0.5


def test_group_path_of_the_host(tmp_path: Path) -> None:
    """In a container the path may be the host's and not exist; the root of the mount is then the group."""
    where = cgroup(tmp_path, "0::/../../docker/abc\n", {"cpu.max": "300000 100000"})
    assert machine.cpu_quota(*where) == 3.0


@pytest.mark.parametrize("text", ["max 100000", "", "-1 100000", "100000 0", "garbage", "1 2 3"])
def test_no_limit(text: str, tmp_path: Path) -> None:
    """Unlimited, empty or unreadable settings are no limit."""
    assert machine.cpu_quota(*cgroup(tmp_path, "0::/\n", {"cpu.max": text})) is None


def test_no_cgroups_at_all(tmp_path: Path) -> None:
    """Without /proc, as on macOS and Windows, there is no limit and no error."""
    assert machine.cpu_quota(tmp_path / "proc", tmp_path / "cgroup") is None
    assert machine.memory_limit(tmp_path / "proc", tmp_path / "cgroup") is None


@given(cpus=st.integers(1, 256), quota=st.none() | st.floats(0.001, 512))
def test_usable_cpus_is_the_least_rounded_down(cpus: int, quota: float | None) -> None:
    """Never more than CPUs or quota allow, never less than 1, and a whole number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "_allowed_cpus", lambda: cpus)
        patch.setattr(machine, "cpu_quota", lambda: quota)
        usable = machine.usable_cpus()
    least = cpus if quota is None else min(cpus, quota)
    assert usable == max(1, int(least))
    assert isinstance(usable, int)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinity can be set on Linux only")
def test_affinity_counts() -> None:
    """A process that may run on one CPU only uses one."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert machine.usable_cpus() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_memory_limits(tmp_path: Path) -> None:
    """The tightest memory limit counts; version 1's huge number means none."""
    tight = cgroup(tmp_path / "a", "0::/j\n", {"j/memory.max": "1000", "memory.max": "max"})
    assert machine.memory_limit(*tight) == 1000
    files = {"memory/memory.limit_in_bytes": "9223372036854771712"}
    assert machine.memory_limit(*cgroup(tmp_path / "b", "4:memory:/\n", files)) is None


def test_peak_memory_grows_with_use() -> None:
    """Touching 64 MB more than ever before raises the peak by about that, in bytes."""
    before = machine.peak_memory_bytes()
    block = bytearray(os.urandom(1) * (64 << 20))
    after = machine.peak_memory_bytes()
    assert before is not None
    assert after is not None
    assert len(block) == 64 << 20
    assert 5 << 20 < before < 64 << 30
    assert after >= before


def test_peak_memory_without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without /proc the system's own count is used, in bytes on every platform."""
    usual = machine.peak_memory_bytes()
    monkeypatch.setattr(machine, "PROC", tmp_path)
    other = machine.peak_memory_bytes()
    assert usual is not None
    assert other is not None
    assert 0.5 * usual < other < 2 * usual


def test_description_is_plain_data() -> None:
    """The description can be written as JSON and names what reports need."""
    described = json.loads(json.dumps(machine.describe()))
    assert set(described) == {"platform", "cpu", "cores", "usable_cpus", "memory_bytes", "python"}
    assert described["cpu"]
    assert described["python"] == ".".join(map(str, sys.version_info[:3]))
    assert described["memory_bytes"] > 1 << 28


def test_cpu_model_is_read_and_tidied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The maker's name without its runs of blanks."""
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Fast  CPU   @ 3GHz\n")
    monkeypatch.setattr(machine, "PROC", tmp_path)
    assert machine.cpu_model() == "Fast CPU @ 3GHz"


def test_waiting_threads_sleep_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy is set where nothing is set, and a user's own is kept."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    machine.wait_without_spinning()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    machine.wait_without_spinning()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
