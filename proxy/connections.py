"""Connections with less ado: hooks that need not wait run on the spot, and what goes to one peer in one go is
written at once.

mitmproxy asks every addon about every hook, in a task of its own, and after each hook of a flow once more for
the sake of views that show flows; it writes the head of a message, its body and its end one by one; and it
reads bodies in pieces of 64 KB. That is more than half of what a small request costs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from mitmproxy.addonmanager import AddonManager, safecall
from mitmproxy.connection import Connection
from mitmproxy.hooks import Hook
from mitmproxy.http import MessageData
from mitmproxy.proxy import mode_servers
from mitmproxy.proxy.commands import Command, Log, SendData, StartHook
from mitmproxy.proxy.events import Event, HookCompleted
from mitmproxy.proxy.layer import CommandGenerator, Layer

# Beyond this a copy costs more than a write.
_JOINED_BYTES = 1 << 16
_READ_BYTES = 1 << 18

_Handler = Callable[..., Awaitable[None] | None]


class Hooks:
    """Runs a hook in the addons that have it; takes the place of ``AddonManager.handle_lifecycle``."""

    def __init__(self, addons: AddonManager) -> None:
        self._addons = addons
        self._having: dict[str, list[_Handler]] = {}
        self._begun: dict[int, list[Awaitable[None] | _Handler]] = {}

    def _handlers(self, name: str) -> list[_Handler]:
        found = self._having.get(name)
        if found is None:
            found = [getattr(addon, name) for addon in self._addons.chain if hasattr(addon, name)]
            self._having[name] = found
        return found

    def at_once(self, hook: Hook) -> bool:
        """Runs a hook as far as nothing has to be waited for; whether that was all. The rest is up to a call
        with the same hook."""
        handlers = self._handlers(hook.name)
        for number, handler in enumerate(handlers, 1):
            with safecall():
                waiting = handler(*hook.args())
                if waiting is not None:
                    self._begun[id(hook)] = [waiting, *handlers[number:]]
                    return False
        return True

    async def __call__(self, hook: Hook) -> None:
        for step in self._begun.pop(id(hook), None) or self._handlers(hook.name):
            with safecall():
                waiting = step(*hook.args()) if callable(step) else step
                if waiting is not None:
                    await waiting


class AtOnce(Layer):
    """Stands above the top layer of a connection and lets through only what its handler has to do."""

    def __init__(self, top: Layer, hooks: Hooks) -> None:
        # Not a layer of its own: mitmproxy looks at what it has stacked up.
        self.context = top.context
        self._top = top
        self._hooks = hooks
        self._to: Connection | None = None
        self._unsent: list[bytes] = []

    def _handle_event(self, event: Event) -> CommandGenerator[None]:
        return self.handle_event(event)

    def handle_event(self, event: Event) -> CommandGenerator[None]:
        events = deque([event])
        try:
            while events:
                for command in self._top.handle_event(events.popleft()):
                    if isinstance(command, SendData) and len(command.data) <= _JOINED_BYTES:
                        if command.connection is not self._to:
                            yield from self._send()
                        self._to = command.connection
                        self._unsent.append(command.data)
                    elif isinstance(command, StartHook) and self._hooks.at_once(command):
                        if command.blocking:
                            events.append(HookCompleted(command))
                    elif isinstance(command, Log):
                        yield command
                    else:
                        yield from self._send()
                        yield command
        finally:
            yield from self._send()

    def _send(self) -> Iterator[Command]:
        connection, unsent = self._to, self._unsent
        if connection is not None and unsent:
            self._unsent = []
            yield SendData(connection, unsent[0] if len(unsent) == 1 else b"".join(unsent))


class _Greedy:
    """A reader that takes all there is."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    async def read(self, n: int) -> bytes:
        data: bytes = await self._reader.read(max(n, _READ_BYTES))
        return data


class _ConnectionHandler(mode_servers.ProxyConnectionHandler):
    async def handle_client(self) -> None:
        hooks = self.master.addons.handle_lifecycle
        if isinstance(hooks, Hooks):
            self.layer = AtOnce(self.layer, hooks)
            transport = self.transports[self.client]
            if isinstance(transport.reader, asyncio.StreamReader):
                transport.reader = _Greedy(transport.reader)  # type: ignore[assignment]
        await super().handle_client()


def _unchecked(data: MessageData) -> None:
    """What mitmproxy makes of the bytes of a message is of the types that it says."""


def install() -> None:
    """Has mitmproxy make its connections of these; those of a master without ``Hooks`` are as ever. Nor does
    it look at the type of every field of every message any more, as it does where Python is not optimised."""
    mode_servers.ProxyConnectionHandler = _ConnectionHandler  # type: ignore[misc]
    MessageData.__post_init__ = _unchecked  # type: ignore[method-assign]
