"""YAML that was read before: what a text came to is kept in the user's cache, named by the text's digest.

Reading the YAML of all dialects takes as long as all the rest of a start.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import orjson


def parsed(text: str, parse: Callable[[str], Any]) -> Any:
    """``parse(text)``, or what is kept of it. A cache that cannot be used is done without."""
    path = _directory() / f"{sha256(text.encode()).hexdigest()}.json"
    try:
        return orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        data = parse(text)
    _keep(path, data)
    return data


def _directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(base)) / "chaosproxy" / "configs"  # noqa: PTH111 - never raises


def _keep(path: Path, data: Any) -> None:
    try:
        encoded = orjson.dumps(data)
    except TypeError:
        return
    if orjson.loads(encoded) != data:
        return  # not all that YAML can say can be said in JSON
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, delete=False) as new:
            new.write(encoded)
        Path(new.name).replace(path)
    except OSError:
        return
