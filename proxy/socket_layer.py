"""mitmproxy's layer for WebSockets, where one message can go on as several, or be answered here.

An addon can change a message or drop it. Messages that it adds are queued behind whatever has come in the
meantime, a close among them; here they take the place of the message that they stand for. And an addon that
waits holds up both directions, pings and all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import wsproto.events
from mitmproxy import http
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers import websocket
from wsproto.connection import ConnectionState

_KEY = "chaosproxy.instead"


class _Instead(NamedTuple):
    """What becomes of a message. ``to_endpoint`` and ``to_harness`` None: it goes on as it came."""

    to_endpoint: Sequence[bytes] | None
    to_harness: Sequence[bytes] | None
    is_text: bool
    wait_s: float


def send_instead(
    flow: http.HTTPFlow,
    *,
    to_endpoint: Sequence[bytes] | None = None,
    to_harness: Sequence[bytes] | None = None,
    wait_s: float = 0.0,
) -> None:
    """In a message hook: these messages in the place of the one that has come, each whole in one frame.

    What goes to the endpoint waits for ``wait_s``, and what comes behind it with it; nothing else does.
    """
    assert flow.websocket is not None
    message = flow.websocket.messages[-1]
    message.dropped = to_endpoint is not None or to_harness is not None
    flow.metadata[_KEY] = _Instead(to_endpoint, to_harness, message.is_text, wait_s)


class SocketLayer(websocket.WebsocketLayer):
    """Relays messages, and what is sent instead of one."""

    def __init__(self, context: Context, flow: http.HTTPFlow) -> None:
        super().__init__(context, flow)
        self._waits = 0
        self._waiting: list[commands.Command] = []

    def relay_messages(self, event: events.Event) -> layer.CommandGenerator[None]:
        """As it was, and behind the hook of a message what an addon put in its place."""
        if isinstance(event, events.Wakeup):
            yield from self._woken()
            return
        is_message = False
        for command in super().relay_messages(event):
            # Pings and pongs, which are logged, overtake what waits.
            is_message = is_message and not isinstance(command, commands.Log)
            yield from self._in_turn(command) if is_message else (command,)
            if isinstance(command, websocket.WebsocketMessageHook):
                is_message = True
                for sent in self._instead():
                    yield from self._in_turn(sent)

    def done(self, event: events.Event) -> layer.CommandGenerator[None]:
        """As it was; what still waits is for nobody any more."""
        if not isinstance(event, events.Wakeup):
            yield from super().done(event)

    def _instead(self) -> Iterator[commands.Command]:
        instead: _Instead | None = self.flow.metadata.pop(_KEY, None)
        if instead is None:
            return
        if instead.wait_s:
            self._waits += 1
            yield commands.RequestWakeup(instead.wait_s)
        for end, messages in ((self.server_ws, instead.to_endpoint), (self.client_ws, instead.to_harness)):
            for message in messages or ():
                if end.state is ConnectionState.OPEN:
                    yield end.send2(_message(message, is_text=instead.is_text))

    def _in_turn(self, command: commands.Command) -> Iterator[commands.Command]:
        """Nothing goes to the endpoint before what waits."""
        to_endpoint = isinstance(command, commands.SendData) and command.connection is self.context.server
        if self._waits and to_endpoint:
            self._waiting.append(command)
        else:
            yield command

    def _woken(self) -> Iterator[commands.Command]:
        self._waits -= 1
        if not self._waits:
            waiting, self._waiting = self._waiting, []
            yield from waiting


def _message(content: bytes, *, is_text: bool) -> wsproto.events.Event:
    if is_text:
        return wsproto.events.TextMessage(content.decode("utf-8"))
    return wsproto.events.BytesMessage(content)


# The HTTP layer looks its successor up by this name.
websocket.WebsocketLayer = SocketLayer  # type: ignore[misc]
