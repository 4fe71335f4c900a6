"""mitmproxy's layer for WebSockets, where one message can go on as several, or be answered here.

An addon can change a message or drop it. Messages that it adds are queued behind whatever has come in the
meantime, a close among them; here they take the place of the message that they stand for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import wsproto.events
from mitmproxy import http
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers import websocket
from wsproto.connection import ConnectionState

_KEY = "chaosproxy.instead"


class _Instead(NamedTuple):
    is_text: bool
    to_endpoint: Sequence[bytes]
    to_harness: Sequence[bytes]


def send_instead(
    flow: http.HTTPFlow, *, to_endpoint: Sequence[bytes] = (), to_harness: Sequence[bytes] = ()
) -> None:
    """In a message hook: these messages in the place of the one that has come, each whole in one frame."""
    assert flow.websocket is not None
    message = flow.websocket.messages[-1]
    message.dropped = True
    flow.metadata[_KEY] = _Instead(message.is_text, to_endpoint, to_harness)


class SocketLayer(websocket.WebsocketLayer):
    """Relays messages, and what is sent instead of one."""

    def relay_messages(self, event: events.Event) -> layer.CommandGenerator[None]:
        """As it was, and behind the hook of a message what an addon put in its place."""
        for command in super().relay_messages(event):
            yield command
            if isinstance(command, websocket.WebsocketMessageHook):
                yield from self._instead()

    def _instead(self) -> Iterator[commands.Command]:
        instead: _Instead | None = self.flow.metadata.pop(_KEY, None)
        if instead is None:
            return
        for end, messages in ((self.server_ws, instead.to_endpoint), (self.client_ws, instead.to_harness)):
            for message in messages:
                if end.state is ConnectionState.OPEN:
                    yield end.send2(_message(message, is_text=instead.is_text))


def _message(content: bytes, *, is_text: bool) -> wsproto.events.Event:
    if is_text:
        return wsproto.events.TextMessage(content.decode("utf-8"))
    return wsproto.events.BytesMessage(content)


# The HTTP layer looks its successor up by this name.
websocket.WebsocketLayer = SocketLayer  # type: ignore[misc]
