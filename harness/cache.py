"""The cache of harness programs: where each stands, and how one gets there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.adapter import Recipe

Progress = Callable[[str], None]


def cache_dir() -> Path:
    """``$CHAOSPROXY_CACHE``, else ``$XDG_CACHE_HOME/chaosproxy``, else ``~/.cache/chaosproxy``."""
    own = os.environ.get("CHAOSPROXY_CACHE")
    if own:
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "chaosproxy"


def installed_dir(recipe: Recipe) -> Path:
    """Where the recipe's version stands in the cache, installed or not."""
    return cache_dir() / "harnesses" / f"{recipe.name}@{recipe.version}"


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A new directory beside ``target`` that becomes it when the block ends without an error.

    An interrupted install leaves nothing that could be taken for one.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        fresh = Path(scratch) / "install"
        fresh.mkdir()
        yield fresh
        _move(fresh, target)


def _move(fresh: Path, target: Path) -> None:
    try:
        fresh.rename(target)
    except OSError:
        # Somebody else finished the same install in the meantime: theirs is as good.
        if not target.is_dir():
            raise


@contextmanager
def scratch_home() -> Iterator[Path]:
    """A HOME for asking a program for its version: it may write there what it likes."""
    with tempfile.TemporaryDirectory(prefix="chaosproxy-home-") as home:
        yield Path(home)
