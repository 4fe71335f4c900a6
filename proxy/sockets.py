"""A WebSocket between a harness and its model: each message that asks for an answer is an exchange of its
own, with the same records as a request has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from proxy.exchange import Exchange, Head
from proxy.injector import Injector
from proxy.protocols.wire import SocketFormat, WireError
from proxy.recognise import could_be_an_agents, socket_of


class Passed(NamedTuple):
    """What becomes of a message: ``on`` goes where it was going, after ``wait_s``; ``back`` to its sender."""

    on: Sequence[bytes]
    back: Sequence[bytes] = ()
    wait_s: float = 0.0


class Socket:
    """One connection. ``head`` is that of the request that opened it."""

    def __init__(self, injector: Injector, run_id: str, head: Head) -> None:
        headers = {name: value for name, value in head.headers.items() if name != "content-encoding"}
        self._injector = injector
        self._run_id = run_id
        self._head = Head("POST", head.path, headers)
        self._spoken: SocketFormat | None = socket_of(head)
        self._told = False
        # By the name of the answer: those that are not over.
        self._open: dict[str, Exchange] = {}

    def asked(self, message: bytes) -> Passed:
        """A message of the harness."""
        if self._spoken is None:
            return self._unknown(message)
        try:
            asked = self._spoken.asks(message)
        except WireError as error:
            return self._unreadable(message, str(error))
        if asked is None:
            return Passed((message,))
        self._end(asked.stream)
        exchange = self._injector.on_request(self._run_id, self._head, message, asked)
        if exchange.refusal is not None:
            return self._refused(exchange)
        self._open[asked.stream] = exchange
        return Passed((exchange.body,), wait_s=exchange.wait_s)

    def answered(self, message: bytes) -> Sequence[bytes]:
        """A message of the endpoint; gives back those that may go on now."""
        if self._spoken is None:
            return (message,)
        try:
            stream, failure = self._spoken.stream_of(message), self._spoken.failure(message)
        except WireError as error:
            held = [self._injector.on_unreadable_answer(found, str(error)) for found in self._open.values()]
            return (*(piece for pieces in held for piece in pieces), message)
        exchange = self._open.get(stream)
        if exchange is None:
            return (message,)
        if exchange.status is None or failure is not None:
            self._injector.on_response_head(exchange, failure or 200, {})
        if failure is not None:
            exchange.reader = None  # there is nothing more to it, and what was held goes on
        passed = self._injector.on_response_message(exchange, message)
        if failure is not None or exchange.asked_for_tools is not None:
            self._end(stream)
        return passed

    def close(self) -> None:
        """The connection is gone. What was held of a call that is not whole goes with it."""
        for stream in list(self._open):
            self._end(stream)

    def _end(self, stream: str) -> None:
        exchange = self._open.pop(stream, None)
        if exchange is not None:
            self._injector.on_response_end(exchange)

    def _unreadable(self, message: bytes, reason: str) -> Passed:
        exchange = self._injector.on_unreadable(self._run_id, self._head, message, reason)
        if exchange.refusal is not None:
            return self._refused(exchange)
        self._injector.on_response_end(exchange)
        return Passed((message,))

    def _refused(self, exchange: Exchange) -> Passed:
        refusal = exchange.refusal
        assert refusal is not None
        assert self._spoken is not None
        self._injector.on_response_end(exchange)
        stream = exchange.message.stream if exchange.message is not None else ""
        return Passed((), (self._spoken.error_message(refusal.status, refusal.body, stream),))

    def _unknown(self, message: bytes) -> Passed:
        """A socket at a path where no wire format has one never looks clean when an agent speaks on it."""
        if not self._told and could_be_an_agents(self._head, message):
            self._told = True
            reason = (
                f"a WebSocket at {self._head.path.partition('?')[0]} looks like an agent's, but no protocol"
                " that this version speaks has one there: nothing was injected into it"
            )
            self._injector.on_response_end(
                self._injector.on_unreadable(self._run_id, self._head, message, reason)
            )
        return Passed((message,))
