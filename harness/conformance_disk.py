"""What stands on the disk, and whether anybody has looked at it: the second witness of a tool's work."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

# File systems that keep access times at all keep the first access after a time that is older than the last
# change, so one from long ago shows the next look.
_LONG_AGO_NS = 946_684_800 * 10**9


class Disk(msgspec.Struct, frozen=True):
    """Some folders at one moment. ``files``: (path, digest of the content) of every file, in order.
    ``looked_at``: whether anything was read since the last picture was taken."""

    files: tuple[tuple[str, str], ...]
    looked_at: bool


def picture(folders: Iterable[Path]) -> Disk:
    """The present state; afterwards nothing in it counts as looked at. What vanishes is left out."""
    files: list[tuple[str, str]] = []
    looked_at = False
    for folder in folders:
        for path in _entries(folder):
            with contextlib.suppress(FileNotFoundError):
                looked_at = path.stat().st_atime_ns != _LONG_AGO_NS or looked_at
                if path.is_file():
                    files.append((str(path), hashlib.sha256(path.read_bytes()).hexdigest()))
        # Deepest first: to walk through a directory is to look at it.
        for path in reversed(list(_entries(folder))):
            with contextlib.suppress(FileNotFoundError):
                _forget_looks(path)
    return Disk(tuple(files), looked_at)


def keeps_looks(folder: Path) -> bool:
    """Whether the file system of ``folder`` tells that a file was read."""
    path = folder / "look.txt"
    path.write_text("look\n", encoding="utf-8")
    _forget_looks(path)
    path.read_bytes()
    kept = path.stat().st_atime_ns != _LONG_AGO_NS
    path.unlink()
    return kept


def _entries(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield folder
        for root, directories, names in os.walk(folder):
            directories.sort()
            yield from (Path(root, name) for name in (*directories, *sorted(names)))


def _forget_looks(path: Path) -> None:
    if not path.is_symlink():
        os.utime(path, ns=(_LONG_AGO_NS, path.stat().st_mtime_ns))
