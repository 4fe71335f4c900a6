"""Rows of whole numbers on disk instead of in memory, in buckets that can be read back one at a time."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

BUCKETS = 64
_ROWS_HELD = 256


class Spill:
    """Rows of ``width`` signed 64-bit numbers in ``BUCKETS`` buckets, each in the order of arrival.

    At most 256 rows of a bucket are held in memory; the rest lies in one unnamed temporary file. Append
    with ``spill.buffers[bucket].extend(row)`` followed by ``spill.settle(bucket)``.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.buffers = [array("q") for _ in range(BUCKETS)]
        self.limit = _ROWS_HELD * width
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by __exit__)
        self._extents: list[list[tuple[int, int]]] = [[] for _ in range(BUCKETS)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def settle(self, bucket: int) -> None:
        """Moves the bucket's buffer to disk when it is full."""
        buffer = self.buffers[bucket]
        if len(buffer) >= self.limit:
            self._extents[bucket].append((self._file.tell(), len(buffer) * buffer.itemsize))
            self._file.write(buffer)
            del buffer[:]

    def read(self) -> Iterator[NDArray[np.int64]]:
        """Each bucket's rows, of shape (rows, width). Append nothing any more once this has begun."""
        for buffer, extents in zip(self.buffers, self._extents, strict=True):
            parts = []
            for offset, size in extents:
                self._file.seek(offset)
                parts.append(self._file.read(size))
            flat = np.frombuffer(b"".join([*parts, buffer.tobytes()]), dtype=np.int64)
            yield flat.reshape(-1, self.width)
