"""Which machine, which boot and which version wrote a record."""

from __future__ import annotations

import platform
import uuid
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@lru_cache(maxsize=1)
def boot_id() -> str:
    """An id that changes with every start of the machine; where the system has none, one of this process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return f"{platform.node()}-{uuid.uuid4()}"


@lru_cache(maxsize=1)
def package_version() -> str:
    """The version of the installed distribution."""
    try:
        return version("chaosproxy")
    except PackageNotFoundError:
        return "unknown"
