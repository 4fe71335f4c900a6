"""Rows of numbers on disk instead of in memory, in buckets that can be read back one at a time."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator
from itertools import starmap
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

BUCKETS = 256
_ROWS_HELD = 1 << 15
_NUMPY_CODES = {"q": "<i8", "i": "<i4", "d": "<f8"}


class Spill:
    """Rows of named numbers in ``BUCKETS`` buckets, each bucket in the order of arrival.

    ``fields`` maps names to struct codes: q and i for whole numbers of 8 and 4 bytes, d for a double. The
    first of them, a q, says by its lowest bits which bucket a row goes into. Append tuples to ``rows``, a
    number for each field, and call ``settle`` after some: about 32,768 rows at most are then held in memory;
    the rest lies in one unnamed temporary file.
    """

    def __init__(self, **fields: str) -> None:
        self.rows: list[tuple[float, ...]] = []
        self._pack = struct.Struct("<" + "".join(fields.values())).pack
        self._dtype = np.dtype([(name, _NUMPY_CODES[code]) for name, code in fields.items()])
        self._key = next(iter(fields))
        self._limit = _ROWS_HELD * self._dtype.itemsize
        self._held = bytearray()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by __exit__)
        # Where in the file each bucket of each written block starts; the last entry is the block's end.
        self._starts: list[NDArray[np.int64]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def settle(self) -> None:
        """Packs the new rows, and writes them out when there are many."""
        self._held += b"".join(starmap(self._pack, self.rows))
        self.rows.clear()
        if len(self._held) >= self._limit:
            self._write()

    def _write(self) -> None:
        rows = np.frombuffer(bytes(self._held), dtype=self._dtype)
        bucket = (rows[self._key] & (BUCKETS - 1)).astype(np.uint8)
        ends = np.cumsum(np.bincount(bucket, minlength=BUCKETS)) * self._dtype.itemsize
        self._starts.append(self._file.tell() + np.concatenate(([0], ends)))
        self._file.write(rows[np.argsort(bucket, kind="stable")].tobytes())
        self._held.clear()

    def read(self) -> Iterator[NDArray[Any]]:
        """Each bucket's rows as a structured array. Append nothing any more once this has begun."""
        self.settle()
        self._write()
        self._file.flush()
        fd = self._file.fileno()
        for bucket in range(BUCKETS):
            spans = (starts[bucket : bucket + 2].tolist() for starts in self._starts)
            parts = [os.pread(fd, end - start, start) for start, end in spans]
            yield np.frombuffer(b"".join(parts), dtype=self._dtype)
