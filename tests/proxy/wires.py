"""A proxy in this process, and the two ends of its wire as plain sockets."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from proxy.injector import Injector
from proxy.options import InjectorOptions
from proxy.server import BackgroundServer, ProxyServer
from proxy.service import ServiceSettings, open_service
from proxy.upstream import parse_upstreams
from scheduler.profile import Profile

CLAUDE = {
    "User-Agent": "claude-cli/2.1.289 (external, sdk-cli)",
    "X-Claude-Code-Session-Id": "5f1c0e0e-0000-4000-8000-000000000001",
    "Content-Type": "application/json",
    "anthropic-version": "2023-06-01",
}
MESSAGES = "/v1/messages?beta=true"


@dataclass
class Proxy:
    """A proxy that listens on ``port``."""

    folder: Path
    port: int
    injector: Injector
    server: BackgroundServer
    told: list[str] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.folder / "decisions.jsonl"

    def records(self, event: str | None = None) -> list[dict[str, Any]]:
        """What the log has, once the proxy has done all that it had begun."""
        self.server.do(lambda: None)
        found = [json.loads(line) for line in self.log.read_bytes().splitlines()]
        return [record for record in found if event is None or record["event"] == event]


@contextmanager
def proxy(
    folder: Path,
    upstream: str,
    profile: Profile,
    *,
    seed: int = 7,
    port: int = 0,
    options: InjectorOptions | None = None,
) -> Iterator[Proxy]:
    upstreams = parse_upstreams([upstream])
    log = folder / "decisions.jsonl"
    told: list[str] = []
    settings = ServiceSettings(seed, profile, upstreams, log, options=options or InjectorOptions())
    injector = open_service(settings, told.append)
    with BackgroundServer(ProxyServer(injector, upstreams, "127.0.0.1", port)) as server:
        yield Proxy(folder, server.port, injector, server, told)


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def send(
    port: int,
    body: bytes | None = None,
    *,
    method: str = "POST",
    path: str = MESSAGES,
    headers: dict[str, str] | None = None,
    chunks: list[bytes] | None = None,
) -> Reply:
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        content = iter(chunks) if chunks is not None else body
        connection.request(
            method, path, body=content, headers=CLAUDE | (headers or {}), encode_chunked=chunks is not None
        )
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, found, response.read())


class Request(NamedTuple):
    head: bytes
    body: bytes


class RawModel:
    """An endpoint that does with each connection what ``answer`` says, one request a connection.

    ``answer`` gets the connection and the request, and writes what it likes.
    """

    def __init__(self, answer: Callable[[socket.socket, Request], None]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self.requests: list[Request] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            request = _read(connection)
            if request is None:
                return
            self.requests.append(request)
            with contextlib.suppress(OSError):
                self._answer(connection, request)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone does not wake a thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(timeout=10)


def _read(connection: socket.socket) -> Request | None:
    """A request with its body, by its content-length or until the last chunk."""
    data = b""
    while b"\r\n\r\n" not in data:
        got = connection.recv(65536)
        if not got:
            return None
        data += got
    head, _, body = data.partition(b"\r\n\r\n")
    lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    size = int(lines.get(b"content-length", 0))
    while len(body) < size or (
        b"chunked" in lines.get(b"transfer-encoding", b"") and not body.endswith(b"0\r\n\r\n")
    ):
        got = connection.recv(65536)
        if not got:
            return None
        body += got
    return Request(head, body)


EVENT_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def document(body: bytes, status: bytes = b"200 OK", headers: bytes = b"") -> bytes:
    """A whole response."""
    return (
        b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n"
        % (status, headers, len(body))
    ) + body
