"""Whoever watches runs on the wire and acts before the next byte goes on: checkpoints, kills, model ids.

The injector calls an observer in its own thread, between writing what it decided and letting anything go on.
What it returns is written to the log before the traffic goes on. When it has stopped the run it sets
``run.stopped``, and nothing of that run goes on any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ledger.memory import CallRow
from ledger.records import Checkpoint
from proxy.conversation import Asked, Conversation
from proxy.exchange import Exchange
from proxy.protocols.wire import ParsedRequest, WireFormat
from proxy.runs import Run
from scheduler.dialect import Dialect


class Answered(NamedTuple):
    """A call whose result is here for the first time: the tool's own output, before any fault.

    ``arguments`` as the harness sent them back; ``text`` is None when the result has no text.
    """

    row: CallRow
    arguments: bytes
    text: str | None
    is_error: bool | None


class AgentRequest(NamedTuple):
    """A turn of an agent that is about to go upstream; ``generates`` is False when it only counts tokens.

    ``arguments_of`` gives the arguments of a call of the present history.
    """

    conversation: Conversation
    request: ParsedRequest
    wire: WireFormat
    dialect: Dialect
    generates: bool
    answered: Sequence[Answered]
    arguments_of: Callable[[Asked], bytes]


class Observer(Protocol):
    """What the injector tells. Raise ``LedgerError`` when something must be durable and is not."""

    def on_agent_request(self, run: Run, turn: AgentRequest) -> Sequence[Checkpoint]:
        """Decided and written down, not yet sent."""
        ...

    def on_calls(
        self, run: Run, conversation: Conversation, dialect: Dialect, calls: Sequence[CallRow]
    ) -> Sequence[Checkpoint]:
        """The model has asked for ``calls``; their last bytes have not gone to the harness."""
        ...

    def on_answer(self, exchange: Exchange) -> str | None:
        """A response is over. What is wrong with it, if that makes the run invalid."""
        ...


class Unobserved:
    """Nobody watches."""

    def on_agent_request(self, run: Run, turn: AgentRequest) -> Sequence[Checkpoint]:
        return ()

    def on_calls(
        self, run: Run, conversation: Conversation, dialect: Dialect, calls: Sequence[CallRow]
    ) -> Sequence[Checkpoint]:
        return ()

    def on_answer(self, exchange: Exchange) -> str | None:
        return None
