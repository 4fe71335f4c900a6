"""Rows of numbers on disk instead of in memory, in buckets that can be read back one at a time."""

from __future__ import annotations

import struct
import tempfile
from array import array
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

BUCKETS = 256
_ROWS_HELD = 64
_NUMPY_CODES = {"q": "<i8", "i": "<i4", "d": "<f8"}


class Spill:
    """Rows of named numbers in ``BUCKETS`` buckets, each bucket in the order of arrival.

    ``fields`` maps names to struct codes: q and i for whole numbers of 8 and 4 bytes, d for a double. At
    most 64 rows of a bucket are held in memory; the rest lies in one unnamed temporary file.
    """

    def __init__(self, **fields: str) -> None:
        self._pack = struct.Struct("<" + "".join(fields.values())).pack
        self._dtype = np.dtype([(name, _NUMPY_CODES[code]) for name, code in fields.items()])
        self._limit = _ROWS_HELD * self._dtype.itemsize
        self._buffers = [bytearray() for _ in range(BUCKETS)]
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by __exit__)
        self._offsets = [array("q") for _ in range(BUCKETS)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, bucket: int, *row: float) -> None:
        """Adds one row, a number for each field, to a bucket."""
        buffer = self._buffers[bucket]
        buffer += self._pack(*row)
        if len(buffer) >= self._limit:
            self._offsets[bucket].append(self._file.tell())
            self._file.write(buffer)
            buffer.clear()

    def read(self) -> Iterator[NDArray[Any]]:
        """Each bucket's rows as a structured array. Append nothing any more once this has begun."""
        for buffer, offsets in zip(self._buffers, self._offsets, strict=True):
            parts = []
            for offset in offsets:
                self._file.seek(offset)
                parts.append(self._file.read(self._limit))
            yield np.frombuffer(b"".join([*parts, buffer]), dtype=self._dtype)
