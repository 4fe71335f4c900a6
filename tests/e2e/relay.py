"""A TCP relay that keeps what a client sends: the second witness, on the harness's side of the proxy."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Relay:
    """Listens on a free loopback port and passes bytes on to the address it is given."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target: tuple[str, int] | None = None
        self._streams: list[bytearray] = []
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def forward_to(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            assert self._target is not None
            server = socket.create_connection(self._target)
            kept = bytearray()
            with self._lock:
                self._streams.append(kept)
            threading.Thread(target=self._pump, args=(client, server, kept), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, None), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, kept: bytearray | None) -> None:
        try:
            while data := source.recv(1 << 16):
                if kept is not None:
                    kept += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            sink.close()

    def bodies(self) -> list[bytes]:
        """The request bodies, connection by connection in the order of their first request."""
        found: list[bytes] = []
        for stream in self._streams:
            rest = bytes(stream)
            while rest:
                head, _, rest = rest.partition(b"\r\n\r\n")
                length = 0
                for line in head.split(b"\r\n")[1:]:
                    name, _, value = line.partition(b":")
                    if name.lower() == b"content-length":
                        length = int(value)
                    assert name.lower() != b"transfer-encoding", "a chunked body: read it as such"
                found.append(rest[:length])
                rest = rest[length:]
        return found
