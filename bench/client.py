"""A client that costs next to nothing: one keep-alive connection, one request at a time, bytes in and out."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_PATH = "/v1/messages?beta=true"


class Reply(NamedTuple):
    """``ns``: from the first byte sent to the last byte received; ``raw`` is all that was received."""

    status: int
    ns: int
    raw: bytes


class BenchError(RuntimeError):
    """Something that was to be measured did not do its work; the message says what."""


def request_head(headers: Sequence[tuple[str, str]], length: int, run_id: str | None = None) -> bytes:
    """The head of a POST of a turn."""
    path = _PATH if run_id is None else f"/run/{run_id}{_PATH}"
    lines = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + f"\r\ncontent-length: {length}\r\n\r\n").encode()


class Client:
    """A connection to ``port``, opened with the first request. ``BenchError`` unless a reply is a 200."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def post(self, headers: Sequence[tuple[str, str]], body: bytes, run_id: str | None = None) -> Reply:
        """Sends a turn and reads its answer to the end."""
        head = request_head(headers, len(body), run_id)
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=60)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.perf_counter_ns()
        # A head that leaves with its body needs no second wake-up of the other side.
        if len(body) <= 1 << 16:
            self._socket.sendall(head + body)
        else:
            self._socket.sendall(head)
            self._socket.sendall(body)
        answer = _read(self._socket)
        spent = time.perf_counter_ns() - began
        if answer.startswith(b"HTTP/1.0"):
            self.close()
        status = int(answer[9:12])
        if status != 200:
            raise BenchError(f"port {self._port} answered {answer[:400]!r}")
        return Reply(status, spent, answer)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _read(connection: socket.socket) -> bytes:
    data = b""
    while True:
        piece = connection.recv(1 << 16)
        if not piece:
            if data.startswith(b"HTTP/1.0 200"):
                return data  # the end of the connection is the end of the answer
            raise BenchError(f"the connection was closed in the middle of an answer: {data[:200]!r}")
        data += piece
        end = data.find(b"\r\n\r\n")
        if end < 0:
            continue
        length = _LENGTH.search(data, 0, end)
        if length is None:
            if data.endswith(b"0\r\n\r\n"):
                return data
        elif len(data) >= end + 4 + int(length[1]):
            return data
