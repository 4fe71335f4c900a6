"""What this machine is, for manifests and run lines. Reads; changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts about the machine; None where it does not tell. ``mem_gb`` in 10^9 bytes.

    ``cpus`` and ``mem_gb`` are what this process may use, which in a container is less than what is there.
    """

    python: str
    os: str
    container_digest: str | None
    cpus: float
    mem_gb: float | None
    disk: str


def this_machine(folder: Path) -> Machine:
    """The machine as it is now; ``disk`` is the file system that ``folder`` (or its parent) is on.

    ``container_digest`` can only be told from outside: whoever starts the container puts it into
    ``CHAOSPROXY_CONTAINER_DIGEST``.
    """
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    disk_gb = shutil.disk_usage(there).total / 1e9
    return Machine(
        python=platform.python_version(),
        os=f"{platform.system()} {platform.release()} {platform.machine()}",
        container_digest=os.environ.get("CHAOSPROXY_CONTAINER_DIGEST") or None,
        cpus=_cpus(),
        mem_gb=_mem_gb(),
        disk=f"{disk_gb:.0f} GB{_file_system(there)}",
    )


@lru_cache(maxsize=1)
def machine_started() -> str | None:
    """When the machine was started, RFC 3339 in UTC to the second; None where it does not tell."""
    for line in _text(Path("/proc/stat")).splitlines():
        if line.startswith("btime "):
            return datetime.fromtimestamp(int(line.split()[1]), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return None


def _cpus() -> float:
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    quota, _, period = _text(_CGROUP / "cpu.max").strip().partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        return min(float(here), round(int(quota) / int(period), 2))
    return float(here)


def _mem_gb() -> float | None:
    total = None
    for line in _text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemTotal:"):
            total = int(line.split()[1]) * 1024
    limit = _text(_CGROUP / "memory.max").strip()
    if limit.isdigit():
        total = int(limit) if total is None else min(total, int(limit))
    return None if total is None else round(total / 1e9, 1)


def _file_system(path: Path) -> str:
    """`` on ext4``, out of the mount whose path is the longest that holds ``path``."""
    best, kind = "", ""
    for line in _text(Path("/proc/mounts")).splitlines():
        _, mount, sort, *_ = line.split(" ")
        if len(mount) >= len(best) and path.is_relative_to(mount):
            best, kind = mount, sort
    return f" on {kind}" if kind else ""


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
