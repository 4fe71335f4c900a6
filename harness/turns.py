"""What a model is asked and what it answers, without the wording of any wire format.

A script says ``Turn``; the scripted model shows a policy the ``Conversation`` it was sent. Each file in
``harness/wire`` translates between these and the bytes of one protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Side = Literal["count_tokens", "no_tools", "compaction", "warm_up"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool: ``arguments`` is the JSON object, ``call_id`` None lets the model choose one.

    ``raw_arguments``, when given, is sent in place of our own JSON spelling of ``arguments``: odd spacing,
    key order or text that is no JSON at all.
    """

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    call_id: str | None = None
    raw_arguments: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the endpoint reports them; ``input_tokens`` excludes what the cache gave or took."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the model: its text, then its calls. Without calls it ends the harness's turn.

    ``usage`` None means counts made up from the sizes of the request and of the answer. ``step``, when given,
    is written into the ids that the model chooses for the calls, so that the turn is known again later.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A result as the harness sent it: text blocks joined by newlines; ``is_error`` None means not said.

    ``blocks`` are the texts by themselves, where a protocol has results of several.
    """

    call_id: str
    text: str
    is_error: bool | None
    blocks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PastTurn:
    """An earlier answer as the harness sends it back, and what it said before the next one.

    ``results`` stand in the order in which they were sent; ``said`` are the other texts (user or system) that
    came with them.
    """

    text: str
    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...]
    said: tuple[str, ...]

    def result_of(self, call: ToolCall) -> ToolResult | None:
        """The result sent for ``call``, the last one if there are several."""
        return next((result for result in reversed(self.results) if result.call_id == call.call_id), None)


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """A tool on offer and the names of the arguments it takes; ``takes_text``: raw text in place of JSON.

    ``namespace`` is the group it is offered in, where a protocol has such groups.
    """

    name: str
    parameters: tuple[str, ...] = ()
    takes_text: bool = False
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """One request as a model sees it.

    ``opening`` are the texts before the model's first answer, ``turns`` its answers so far. ``side`` names a
    request that is not the agent's next step: a token count, one without tools (titles, summaries), the
    harness asking for its history to be compacted, or one that only prepares the endpoint.
    ``counts_wanted``: a streamed answer says its usage.
    """

    wire: str
    model: str
    system: str
    opening: tuple[str, ...]
    turns: tuple[PastTurn, ...]
    tools: tuple[ToolOffer, ...]
    stream: bool
    bytes_in: int
    side: Side | None = None
    counts_wanted: bool = True

    @property
    def user_texts(self) -> tuple[str, ...]:
        """Every text that is not the model's and not a tool's, in order."""
        return self.opening + tuple(text for turn in self.turns for text in turn.said)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Every call the model has made, in order."""
        return tuple(call for turn in self.turns for call in turn.calls)

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """Every result, in the order in which they were sent."""
        return tuple(result for turn in self.turns for result in turn.results)

    def offers(self, name: str) -> bool:
        """Whether a tool of exactly this name is on offer."""
        return any(tool.name == name for tool in self.tools)


@dataclass(frozen=True, slots=True)
class Answer:
    """A ``Turn`` ready for the wire: all call ids chosen, usage filled in. ``view`` is what it answers."""

    message_id: str
    model: str
    turn: Turn
    usage: Usage
    view: Conversation
