"""Conversations in no wire's words, and for each wire how a harness and an endpoint would spell them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from harness.turns import Answer, Conversation, ToolCall, Turn, Usage
from harness.wire import Wire
from harness.wire.anthropic import AnthropicWire
from harness.wire.gemini import GeminiWire
from harness.wire.openai_chat import ChatWire
from harness.wire.openai_responses import ResponsesWire
from proxy.protocols.anthropic import AnthropicMessages
from proxy.protocols.gemini import Gemini
from proxy.protocols.openai_chat import OpenAIChat
from proxy.protocols.openai_responses import OpenAIResponses
from proxy.protocols.wire import Frame, ResponseReader, WireFormat
from tests.proxy.build import dumps

TOOL_NAMES = ("read", "bash", "edit")


class Call(NamedTuple):
    """``arguments`` as JSON text."""

    call_id: str
    tool: str
    arguments: str


class Round(NamedTuple):
    """One answer of the model and what came after it: ``results[i]`` is the text for ``calls[order[i]]``."""

    text: str
    calls: tuple[Call, ...]
    results: tuple[str, ...]
    order: tuple[int, ...]
    said: str


def _anthropic(rounds: Sequence[Round], ids: bool) -> list[Any]:
    history: list[Any] = [{"role": "user", "content": "go"}]
    for turn in rounds:
        blocks = [{"type": "text", "text": turn.text}] if turn.text else []
        for call in turn.calls:
            block = {"type": "tool_use", "id": call.call_id, "name": call.tool}
            blocks.append(block | {"input": json.loads(call.arguments)})
        history.append({"role": "assistant", "content": blocks})
        reply: list[Any] = []
        for text, number in zip(turn.results, turn.order, strict=True):
            result = {"type": "tool_result", "tool_use_id": turn.calls[number].call_id}
            reply.append(result | {"content": text})
        history.append({"role": "user", "content": [*reply, {"type": "text", "text": turn.said}]})
    return history


def _chat(rounds: Sequence[Round], ids: bool) -> list[Any]:
    history: list[Any] = [{"role": "system", "content": "You help."}, {"role": "user", "content": "go"}]
    for turn in rounds:
        message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
        if turn.calls:
            message["tool_calls"] = [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": call.tool, "arguments": call.arguments},
                }
                for call in turn.calls
            ]
        history.append(message)
        for text, number in zip(turn.results, turn.order, strict=True):
            history.append({"role": "tool", "tool_call_id": turn.calls[number].call_id, "content": text})
        history.append({"role": "user", "content": turn.said})
    return history


def _responses(rounds: Sequence[Round], ids: bool) -> list[Any]:
    def message(role: str, kind: str, text: str) -> dict[str, Any]:
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

    history: list[Any] = [message("user", "input_text", "go")]
    for turn in rounds:
        history.append(message("assistant", "output_text", turn.text))
        for call in turn.calls:
            item = {"type": "function_call", "call_id": call.call_id, "name": call.tool}
            history.append(item | {"arguments": call.arguments})
        for text, number in zip(turn.results, turn.order, strict=True):
            result = {"type": "function_call_output", "call_id": turn.calls[number].call_id}
            history.append(result | {"output": text})
        history.append(message("user", "input_text", turn.said))
    return history


def _gemini(rounds: Sequence[Round], ids: bool) -> list[Any]:
    history: list[Any] = [{"role": "user", "parts": [{"text": "go"}]}]
    for turn in rounds:
        parts: list[Any] = [{"text": turn.text}]
        for call in turn.calls:
            named = {"id": call.call_id} if ids else {}
            function = named | {"name": call.tool, "args": json.loads(call.arguments)}
            parts.append({"functionCall": function})
        history.append({"role": "model", "parts": parts})
        reply: list[Any] = []
        for text, number in zip(turn.results, turn.order, strict=True):
            call = turn.calls[number]
            named = {"id": call.call_id} if ids else {}
            answer = named | {"name": call.tool, "response": {"output": text}}
            reply.append({"functionResponse": answer})
        history.append({"role": "user", "parts": [*reply, {"text": turn.said}]})
    return history


def _json_tools(name: str) -> dict[str, Any]:
    return {"name": name, "description": "A tool. " * 20}


class Kit(NamedTuple):
    """A wire format, the endpoint's side of it, and how its history is spelled."""

    wire: WireFormat
    endpoint: Wire
    array: str
    history: Callable[[Sequence[Round], bool], list[Any]]
    tools: list[Any]

    def body(self, rounds: Sequence[Round], *, ids: bool = True, **more: Any) -> bytes:
        """A request; other fields stand on both sides of the history."""
        fields = {"model": "m", self.array: self.history(rounds, ids), "tools": self.tools}
        return dumps(fields | more)

    def around(self, history: bytes) -> bytes:
        """A request with this history, spelled out."""
        name = json.dumps(self.array).encode()
        return b'{"model":"m",' + name + b":" + history + b',"tools":' + dumps(self.tools) + b"}"


ANTHROPIC = Kit(
    AnthropicMessages(),
    AnthropicWire(),
    "messages",
    _anthropic,
    [_json_tools(name) | {"input_schema": {}} for name in TOOL_NAMES],
)
CHAT = Kit(
    OpenAIChat(),
    ChatWire(),
    "messages",
    _chat,
    [{"type": "function", "function": _json_tools(name)} for name in TOOL_NAMES],
)
RESPONSES = Kit(
    OpenAIResponses(),
    ResponsesWire(),
    "input",
    _responses,
    [{"type": "function"} | _json_tools(name) for name in TOOL_NAMES],
)
GEMINI = Kit(
    Gemini(),
    GeminiWire("sse"),
    "contents",
    _gemini,
    [{"functionDeclarations": [_json_tools(name) for name in TOOL_NAMES]}],
)
GEMINI_ARRAY = GEMINI._replace(endpoint=GeminiWire("array"))
KITS = {kit.wire.name: kit for kit in (ANTHROPIC, CHAT, RESPONSES, GEMINI)}
STREAMS = KITS | {"gemini-array": GEMINI_ARRAY}

TEXTS = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from('"\\\n\t\u2028🙂')), max_size=20)
VALUES = st.one_of(
    TEXTS, st.integers(-9, 9), st.booleans(), st.none(), st.lists(st.integers(0, 3), max_size=2)
)
ARGUMENTS = st.dictionaries(st.sampled_from(["path", "command", "n", "ä"]), VALUES, max_size=3).map(
    lambda value: dumps(value).decode()
)


@st.composite
def rounds(draw: st.DrawFn, *, answered: bool = True) -> list[Round]:
    """A conversation in which every call has a result, in whatever order the results came."""
    made: list[Round] = []
    for turn in range(draw(st.integers(0, 4))):
        tools = draw(st.lists(st.sampled_from(TOOL_NAMES), max_size=3))
        calls = tuple(
            Call(f"call_{turn}_{number}", tool, draw(ARGUMENTS)) for number, tool in enumerate(tools)
        )
        order = tuple(draw(st.permutations(range(len(calls)))))
        results = tuple(draw(TEXTS) for _ in calls)
        made.append(Round(draw(TEXTS), calls, results, order, draw(TEXTS)))
    return made


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """What an endpoint says."""
    calls = tuple(
        ToolCall(draw(st.sampled_from(TOOL_NAMES)), {}, f"call_{number}", draw(ARGUMENTS))
        for number in range(draw(st.integers(0, 3)))
    )
    usage = Usage(*(draw(st.integers(0, 1000)) for _ in range(3)))
    return answer(Turn(draw(st.text(max_size=40)), calls), usage)


def answer(turn: Turn, usage: Usage | None = None) -> Answer:
    """An answer to a request that said nothing of interest."""
    view = Conversation("", "m", "", (), (), (), stream=True, bytes_in=0)
    return Answer("msg_1", "m", turn, usage or Usage(10, 5), view)


def frames_of(reader: ResponseReader, chunks: Sequence[bytes]) -> list[Frame]:
    """All frames of a response that came in these chunks."""
    return [frame for chunk in chunks for frame in reader.feed(chunk)] + reader.close()
