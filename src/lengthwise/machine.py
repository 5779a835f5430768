"""What this machine has: CPUs a process may really use, memory, and how much of it was used."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


def wait_without_spinning() -> None:
    """Let OpenMP's threads sleep while they wait for each other; has to come before torch is loaded.

    By default they spin. Where another program wants a core too, a thread that spins keeps the one it
    waits for from running: measured 2 to 7 times slower with two threads on two busy cores. An
    OMP_WAIT_POLICY that is set already is respected.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def usable_cpus() -> int:
    """CPUs this process may keep busy, at least 1: the least of CPUs, affinity and the cgroup's quota.

    A quota of 2.5 CPUs counts as 2: a third thread would stand still half of the time, and the others
    wait for it.
    """
    counts = [float(_allowed_cpus())]
    if (quota := cpu_quota()) is not None:
        counts.append(quota)
    return max(1, int(min(counts)))


def _allowed_cpus() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_quota(proc: Path = PROC, cgroups: Path = CGROUPS) -> float | None:
    """CPUs that cgroup v1 or v2 grants this process, ``None`` without a limit; the tightest on its path."""
    quotas = []
    for folder in _cgroup_folders("cpu", proc, cgroups):
        words = _words(folder / "cpu.max") or [
            *_words(folder / "cpu.cfs_quota_us"),
            *_words(folder / "cpu.cfs_period_us"),
        ]
        # "max" and -1 both mean that there is no limit
        if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal() and int(words[1]):
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def memory_limit(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Bytes of memory that cgroup v1 or v2 grants this process, ``None`` without a limit; the tightest."""
    limits = []
    for folder in _cgroup_folders("memory", proc, cgroups):
        words = _words(folder / "memory.max") or _words(folder / "memory.limit_in_bytes")
        # version 1 writes "no limit" as a number near 2**63
        if words and words[0].isdecimal() and int(words[0]) < 1 << 60:
            limits.append(int(words[0]))
    return min(limits, default=None)


def _cgroup_folders(controller: str, proc: Path, cgroups: Path) -> Iterator[Path]:
    """The folders that may limit this process, from its own group up to the root; v2 and v1."""
    for line in _lines(proc / "self" / "cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            root = cgroups
        elif controller in controllers.split(","):
            root = next((r for r in (cgroups / controllers, cgroups / controller) if r.is_dir()), cgroups)
        else:
            continue
        # in a container the path may be the host's and not exist here; the root is then the container's
        parts = [part for part in path.split("/") if part not in {"", ".."}]
        for depth in range(len(parts), -1, -1):
            yield root.joinpath(*parts[:depth])


def total_memory() -> int | None:
    """Bytes of memory of the machine, or of the cgroup where that is less; ``None`` when unknown."""
    installed = _installed_memory()
    limit = memory_limit()
    return min((size for size in (installed, limit) if size), default=None)


def _installed_memory() -> int | None:
    if sys.platform == "win32":
        return _windows_memory()
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def peak_memory_bytes() -> int | None:
    """The most memory this process ever held at once, mapped files included; ``None`` when unknown."""
    for line in _lines(PROC / "self" / "status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return _windows_peak()
    import resource  # noqa: PLC0415 - not there on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def describe() -> dict[str, Any]:
    """The machine in a few words, for reports: platform, cpu, cores, usable_cpus, memory_bytes, python."""
    return {
        "platform": platform.platform(),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "usable_cpus": usable_cpus(),
        "memory_bytes": total_memory(),
        "python": platform.python_version(),
    }


def cpu_model() -> str:
    """The processor's name as its maker writes it, or its architecture where that is unknown."""
    for line in _lines(PROC / "cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() in {"model name", "Model"} and value.strip():
            return re.sub(r"\s+", " ", value.strip())
    if sys.platform == "darwin":
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            run = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)  # noqa: S603 - fixed
            return run.stdout.strip()
    return platform.processor() or platform.machine() or "unknown"


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _words(file: Path) -> list[str]:
    return [word for line in _lines(file) for word in line.split()]


def _windows_memory() -> int | None:
    """Installed memory from GlobalMemoryStatusEx: the structure is 64 bytes, the total stands at byte 8."""
    import ctypes  # noqa: PLC0415 - used on Windows only

    status = (ctypes.c_uint64 * 8)(64)
    library: Any = getattr(ctypes, "windll").kernel32  # noqa: B009 - absent elsewhere, also for the type checker
    return int(status[1]) if library.GlobalMemoryStatusEx(ctypes.byref(status)) else None


def _windows_peak() -> int | None:
    """The peak working set from GetProcessMemoryInfo: second field behind two 32-bit counters."""
    import ctypes  # noqa: PLC0415 - used on Windows only

    counters = (ctypes.c_size_t * 9)(ctypes.sizeof(ctypes.c_size_t) * 9)
    libraries: Any = getattr(ctypes, "windll")  # noqa: B009 - absent elsewhere, also for the type checker
    libraries.kernel32.GetCurrentProcess.restype = ctypes.c_void_p
    process = ctypes.c_void_p(libraries.kernel32.GetCurrentProcess())
    found = libraries.psapi.GetProcessMemoryInfo(process, ctypes.byref(counters), ctypes.sizeof(counters))
    return int(counters[1]) if found else None
