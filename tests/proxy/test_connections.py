"""What stands between a connection and mitmproxy's layers: hooks on the spot, writes in one go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import pytest
from mitmproxy.addonmanager import AddonManager
from mitmproxy.connection import Connection
from mitmproxy.proxy.commands import CloseConnection, Command, Log, SendData, StartHook
from mitmproxy.proxy.events import Event, HookCompleted, Start
from mitmproxy.proxy.layer import Layer

from proxy.connections import AtOnce, Hooks

ONE, OTHER = cast(Connection, object()), cast(Connection, object())


@dataclass
class AskedHook(StartHook):
    """A hook as mitmproxy's are: its name less "Hook" is the addons' method."""

    what: str


class Top:
    """A layer that answers each event with the next of ``answers``."""

    def __init__(self, *answers: list[Command]) -> None:
        self.context = None
        self._answers = list(answers)
        self.events: list[Event] = []

    def handle_event(self, event: Event) -> Iterator[Command]:
        self.events.append(event)
        yield from self._answers.pop(0) if self._answers else []


def hooks(*addons: object) -> Hooks:
    return Hooks(cast(AddonManager, SimpleNamespace(chain=addons)))


def handled(top: Top, found: Hooks) -> list[Command]:
    return list(AtOnce(cast(Layer, top), found).handle_event(Start()))


def sent(commands: list[Command]) -> list[tuple[Connection, bytes]]:
    return [(command.connection, command.data) for command in commands if isinstance(command, SendData)]


class Addon:
    def __init__(self, wait: Awaitable[None] | None = None, fail: bool = False) -> None:
        self.heard: list[str] = []
        self._wait = wait
        self._fail = fail

    def asked(self, what: str) -> Awaitable[None] | None:
        self.heard.append(what)
        if self._fail:
            raise RuntimeError("this addon is broken")
        return self._wait


def test_what_goes_to_one_peer_is_written_at_once() -> None:
    top = Top([SendData(ONE, b"head"), Log("streaming"), SendData(ONE, b"body"), SendData(ONE, b"end")])
    assert sent(handled(top, hooks())) == [(ONE, b"headbodyend")]


def test_the_order_stays() -> None:
    top = Top([SendData(ONE, b"a"), SendData(OTHER, b"b"), SendData(ONE, b"c"), CloseConnection(ONE)])
    commands = handled(top, hooks())
    assert sent(commands) == [(ONE, b"a"), (OTHER, b"b"), (ONE, b"c")]
    assert isinstance(commands[-1], CloseConnection)


def test_a_large_body_is_not_copied() -> None:
    large = bytes(1 << 20)
    (head, body) = handled(Top([SendData(ONE, b"head"), SendData(ONE, large)]), hooks())
    assert isinstance(head, SendData)
    assert isinstance(body, SendData)
    assert head.data == b"head"
    assert body.data is large


def test_a_layer_that_fails_has_sent_what_it_sent() -> None:
    class Failing(Top):
        def handle_event(self, event: Event) -> Iterator[Command]:
            yield SendData(ONE, b"before")
            raise RuntimeError("mitmproxy has crashed")

    commands = AtOnce(cast(Layer, Failing()), hooks()).handle_event(Start())
    assert sent([next(commands)]) == [(ONE, b"before")]
    with pytest.raises(RuntimeError):
        next(commands)


def test_a_hook_that_need_not_wait_is_over_at_once() -> None:
    addon = Addon()
    top = Top([SendData(ONE, b"a"), AskedHook("x")], [SendData(ONE, b"b")])
    assert sent(handled(top, hooks(object(), addon))) == [(ONE, b"ab")]
    assert addon.heard == ["x"]
    assert [type(event) for event in top.events] == [Start, HookCompleted]


def test_a_hook_that_waits_is_left_to_the_handler_and_runs_once() -> None:
    async def main() -> None:
        done = asyncio.Event()
        first, waits, last = Addon(), Addon(cast(Awaitable[None], done.wait())), Addon()
        found = hooks(first, waits, last)
        top = Top([SendData(ONE, b"a"), AskedHook("x")])
        commands = handled(top, found)
        assert sent(commands) == [(ONE, b"a")]
        (hook,) = (command for command in commands if isinstance(command, StartHook))
        rest = asyncio.create_task(found(hook))
        await asyncio.sleep(0)
        assert (first.heard, waits.heard, last.heard) == (["x"], ["x"], [])
        done.set()
        await rest
        assert (first.heard, waits.heard, last.heard) == (["x"], ["x"], ["x"])
        assert [type(event) for event in top.events] == [Start]

    asyncio.run(main())


def test_an_addon_that_fails_does_not_keep_the_others_from_it() -> None:
    broken, sound = Addon(fail=True), Addon()
    top = Top([AskedHook("x")])
    assert handled(top, hooks(broken, sound)) == []
    assert (broken.heard, sound.heard) == (["x"], ["x"])
    assert [type(event) for event in top.events] == [Start, HookCompleted]
