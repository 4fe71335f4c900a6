"""decisions.jsonl, the write-ahead log: a line is in the file before what it speaks of leaves the proxy."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import msgspec

from ledger.records import AnyRecord, Start

_encoder = msgspec.json.Encoder()
_starts = msgspec.json.Decoder(Start)


class LedgerError(OSError):
    """The ledger cannot be written (no space, no permission): nothing may leave the proxy any more."""


def timestamp() -> str:
    """Now, RFC 3339 in UTC with microseconds."""
    seconds, ns = divmod(time.time_ns(), 1_000_000_000)
    return f"{_second(seconds)}.{ns // 1000:06d}Z"


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    # Many records fall into the same second, and strftime is slow.
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def starts_of(path: Path) -> Iterator[Start]:
    """The ``start`` records of a log, in order; lines that are none (or are torn) are passed over."""
    if not path.is_file():
        return  # a device or a pipe keeps nothing, or has no end
    with path.open("rb") as lines:
        for line in lines:
            if b'"event":"start"' in line:
                try:
                    yield _starts.decode(line)
                except msgspec.DecodeError:
                    continue


def open_private(path: Path, flags: int = 0) -> int:
    """A descriptor of ``path``, created when missing, for its owner's eyes alone; raises ``OSError``."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        os.fchmod(fd, 0o600)
    return fd


def _line(record: AnyRecord) -> bytes:
    try:
        return _encoder.encode(record) + b"\n"
    except UnicodeEncodeError:
        # Half a surrogate pair in a name that came over the wire: no JSON can hold it.
        text = json.dumps(msgspec.to_builtins(record), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace") + b"\n"


class DecisionLog:
    """Appends records, each batch in one write; a process that is killed leaves whole lines behind.

    The bytes are handed to the operating system before ``write`` returns, so they outlive the process; they
    are not forced to the disk, so a power cut can take the last ones.
    """

    def __init__(self, path: Path) -> None:
        """Opens (or creates, 0600) ``path``; raises ``LedgerError`` when that cannot be done."""
        self.path = path
        self._torn = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fd = open_private(path, os.O_APPEND)
        except OSError as error:
            raise LedgerError(f"cannot write the log {path}: {error.strerror}") from error
        try:
            self._close_torn_line()
        except LedgerError:
            self.close()
            raise

    def _close_torn_line(self) -> None:
        """A killed writer on a full disk can leave half a line; what comes next must stand on its own."""
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            self._append(b"\n")

    def claim(self) -> None:
        """Makes this process the one that serves with this log, until it closes it or dies; raises
        ``LedgerError`` when another one does: each would decide what the other has decided already."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
                return  # a file system that has no locks
            raise LedgerError(
                f"cannot write the log {self.path}: another chaosproxy serves with it; stop that one, or give"
                " another --log"
            ) from error

    def write(self, records: Sequence[AnyRecord]) -> None:
        """Appends ``records`` in order; raises ``LedgerError`` when not every byte was taken."""
        if records:
            self._append(b"".join(_line(record) for record in records))

    def _append(self, data: bytes) -> None:
        if self._torn:
            data = b"\n" + data
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            raise LedgerError(f"cannot write the log {self.path}: {error.strerror}") from error
        self._torn = 0 < written < len(data)
        if written != len(data):
            raise LedgerError(f"cannot write the log {self.path}: the disk is full")

    def close(self) -> None:
        os.close(self._fd)
