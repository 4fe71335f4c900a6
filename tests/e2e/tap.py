"""A tap on WebSockets between a harness and the proxy: what either side says, message by message."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import wsproto
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, TextMessage
from wsproto.extensions import PerMessageDeflate
from wsproto.utilities import split_comma_header


class Tap:
    """Listens on a free loopback port and passes bytes on to the address it is given, both ways."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target: tuple[str, int] | None = None
        self._lines: list[tuple[bytearray, bytearray]] = []
        self._threads: list[threading.Thread] = []

    def forward_to(self, url: str) -> str:
        """Says where bytes go, and gives back the address to send them to."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}{parts.path}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._listener.close()
        for thread in self._threads:
            thread.join(timeout=10)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            assert self._target is not None
            server = socket.create_connection(self._target)
            asked, answered = bytearray(), bytearray()
            self._lines.append((asked, answered))
            for source, sink, kept in ((client, server, asked), (server, client, answered)):
                thread = threading.Thread(target=_pump, args=(source, sink, kept), daemon=True)
                thread.start()
                self._threads.append(thread)

    def asked(self) -> list[bytes]:
        """The messages of the harness, connection by connection."""
        return [message for line in self._lines for message in _messages(*line, of_client=True)]

    def answered(self) -> list[bytes]:
        """The messages that reached the harness, connection by connection."""
        return [message for line in self._lines for message in _messages(*line, of_client=False)]


def _pump(source: socket.socket, sink: socket.socket, kept: bytearray) -> None:
    try:
        while data := source.recv(1 << 16):
            kept += data
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        sink.close()


def _messages(asked: bytearray, answered: bytearray, *, of_client: bool) -> list[bytes]:
    head, _, from_server = bytes(answered).partition(b"\r\n\r\n")
    if b" 101 " not in head.split(b"\r\n")[0]:
        return []
    from_client = bytes(asked).partition(b"\r\n\r\n")[2]
    # The side that reads what the other has sent.
    side = Connection(ConnectionType.SERVER if of_client else ConnectionType.CLIENT, _extensions(head))
    side.receive_data(from_client if of_client else from_server)
    found, message = [], b""
    for event in side.events():
        if isinstance(event, TextMessage | BytesMessage):
            message += event.data.encode() if isinstance(event.data, str) else bytes(event.data)
            if event.message_finished:
                found.append(message)
                message = b""
    return found


def _extensions(head: bytes) -> list[wsproto.extensions.Extension]:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"sec-websocket-extensions":
            for said in split_comma_header(value):
                if said.startswith(PerMessageDeflate.name):
                    deflate = PerMessageDeflate()
                    deflate.finalize(said)
                    return [deflate]
    return []
