"""A relay that keeps what a harness sends: the second witness, on the harness's side of the proxy.

It can send the bodies on in a content coding: the programs themselves hardly ever compress what they send.
"""

from __future__ import annotations

import socket
import sys
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import brotli

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


CODINGS = {"gzip": _gzip, "deflate": zlib.compress, "br": brotli.compress, "zstd": zstd.compress}
"""What a body can be sent on in, and how it is put into that."""


@dataclass(frozen=True)
class Passed:
    """One request as it was sent on to the proxy."""

    line: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def raw(self) -> bytes:
        head = [self.line, *(f"{name}: {value}" for name, value in self.headers)]
        return "\r\n".join([*head, "", ""]).encode("latin-1") + self.body


class Relay:
    """Listens on a free loopback port and passes requests on to the address it is given.

    With ``codings`` the bodies go through them in turn, "" leaving one as it is.
    """

    def __init__(self, codings: tuple[str, ...] = ("",)) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target: tuple[str, int] | None = None
        self._codings = codings
        self._passed: list[Passed] = []
        self._coded = 0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def forward_to(self, url: str) -> str:
        """Says where requests go, and gives back the address to send them to."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        return self.url + parts.path

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._listener.close()

    @property
    def passed(self) -> list[Passed]:
        """The requests so far, in the order in which they were sent on."""
        with self._lock:
            return list(self._passed)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            assert self._target is not None
            server = socket.create_connection(self._target)
            threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answers, args=(server, client), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        try:
            for request in _read(client):
                with self._lock:
                    request = self._coded_in_turn(request)
                    self._passed.append(request)
                server.sendall(request.raw)
            server.shutdown(socket.SHUT_WR)
        except OSError:
            server.close()

    def _coded_in_turn(self, request: Passed) -> Passed:
        if not request.body:
            return request
        coding = self._codings[self._coded % len(self._codings)]
        self._coded += 1
        if not coding:
            return request
        body = CODINGS[coding](request.body)
        kept = [pair for pair in request.headers if pair[0].lower() != "content-length"]
        length = ("content-length", str(len(body)))
        return Passed(request.line, (*kept, length, ("content-encoding", coding)), body)

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while data := server.recv(1 << 16):
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            client.close()


def _read(client: socket.socket) -> Iterator[Passed]:
    """The requests of one connection. A body without a length would not be understood here."""
    stream = client.makefile("rb")
    while line := stream.readline():
        headers = []
        while head := stream.readline().rstrip(b"\r\n"):
            name, _, value = head.decode("latin-1").partition(":")
            headers.append((name, value.strip()))
        known = {name.lower(): value for name, value in headers}
        assert "transfer-encoding" not in known, "a chunked body: read it as such"
        body = stream.read(int(known.get("content-length", "0")))
        yield Passed(line.decode("latin-1").rstrip("\r\n"), tuple(headers), body)
