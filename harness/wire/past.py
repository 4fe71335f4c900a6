"""Puts the neutral view of a conversation together from what stands in a request, in its order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from harness.turns import Answer, Conversation, PastTurn, Side, ToolCall, ToolResult


class WholeHistory:
    """For wires whose requests carry all that was said: the endpoint has nothing to keep."""

    def continues(self, body: bytes) -> str | None:
        """Never goes on from an answer that the endpoint keeps."""
        return None

    def answer_id(self, answer: Answer) -> str:
        """No request asks for it."""
        return answer.message_id

    def kept(self, before: Sequence[Any], body: bytes, answer: Answer) -> tuple[Any, ...] | None:
        """Nothing."""
        return None


class _OpenTurn:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls: list[ToolCall] = []
        self.results: list[ToolResult] = []
        self.said: list[str] = []

    def closed(self) -> PastTurn:
        return PastTurn("\n".join(self.texts), tuple(self.calls), tuple(self.results), tuple(self.said))


class Past:
    """Takes in a history piece by piece. What the model said after somebody else spoke is a new turn."""

    def __init__(self) -> None:
        self._opening: list[str] = []
        self._turns: list[_OpenTurn] = []
        self._answering = False

    @property
    def opening(self) -> tuple[str, ...]:
        """The texts before the model's first answer."""
        return tuple(self._opening)

    @property
    def turns(self) -> tuple[PastTurn, ...]:
        """The model's answers and what came after each."""
        return tuple(turn.closed() for turn in self._turns)

    def _answer(self) -> _OpenTurn:
        if not self._answering:
            self._turns.append(_OpenTurn())
            self._answering = True
        return self._turns[-1]

    def answered(self, text: str) -> None:
        """The model said ``text``; an empty one only says that it spoke."""
        turn = self._answer()
        if text:
            turn.texts.append(text)

    def called(self, call: ToolCall) -> None:
        """The model asked for a tool."""
        self._answer().calls.append(call)

    def result(self, result: ToolResult) -> None:
        """A tool's result; one that stands before every answer counts to an answer that is not there."""
        self._answering = False
        if not self._turns:
            self._turns.append(_OpenTurn())
        self._turns[-1].results.append(result)

    def said(self, text: str) -> None:
        """Anything else: the user's words, or the harness's in the user's name."""
        self._answering = False
        (self._turns[-1].said if self._turns else self._opening).append(text)

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls of the newest answer, for results that do not name theirs."""
        return tuple(self._turns[-1].calls) if self._turns else ()


def parsed(arguments: str) -> dict[str, Any]:
    """Arguments that came as text; empty when they are no JSON object."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def spelled(call: ToolCall) -> str:
    """The call's arguments as JSON text, in the script's own spelling where it gives one."""
    if call.raw_arguments is not None:
        return call.raw_arguments
    return json.dumps(dict(call.arguments), ensure_ascii=False)


def pieces(text: str, size: int) -> Iterator[str]:
    """``text`` cut into deltas of ``size`` characters."""
    for start in range(0, len(text), size):
        yield text[start : start + size]


def dumps(value: Any) -> bytes:
    """Compact JSON; lone surrogates go through."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def newest(view: Conversation) -> tuple[str, ...]:
    """What was said last that is neither the model's nor a tool's."""
    return view.turns[-1].said if view.turns else view.opening


def side_of(view: Conversation, told: Side | None = None) -> Side | None:
    """What a request is when it is no step of an agent: what the wire is ``told``, or one without tools."""
    return told or (None if view.tools else "no_tools")
