"""A harness that speaks Responses, in each of the ways in which a history can reach its endpoint, and what
the endpoint has in the end: the witness.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from harness.turns import ToolCall, Turn
from harness.wire.openai_responses import ResponsesWire
from proxy.exchange import Exchange, Head
from proxy.injector import Injector
from proxy.sockets import Socket
from tests.proxy.build import dumps
from tests.proxy.protocols.kits import answer

Way = Literal["whole", "kept", "socket"]
WAYS: tuple[Way, ...] = ("whole", "kept", "socket")

CODEX = {"user-agent": "codex_exec/0.171.0 (Debian 12.0.0; x86_64) dumb (codex_exec; 0.171.0)"}
THREAD = CODEX | {"thread-id": "t-1", "session-id": "t-1"}
TOOLS = [
    {"type": "function", "name": "exec_command", "parameters": {"properties": {"cmd": {}}}},
    {"type": "custom", "name": "apply_patch"},
    {"type": "custom", "name": "exec"},
]
OPENING: list[dict[str, Any]] = [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You help."}]},
    {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "<environment_context>\n  <cwd>/ws</cwd>\n"}],
    },
]
_ENDPOINT = ResponsesWire()


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def runs(cmd: str, call_id: str) -> ToolCall:
    return ToolCall("exec_command", {"cmd": cmd}, call_id)


def printed(text: str) -> str:
    """A result of ``exec_command``."""
    tokens = -(-len(text.encode()) // 4)
    return (
        "Chunk ID: 8f9c79\nWall time: 0.0000 seconds\nProcess exited with code 0\n"
        f"Original token count: {tokens}\nOutput:\n{text}"
    )


def output(call_id: str, text: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text} | more


@dataclass
class Endpoint:
    """What a model has been shown: by the id of each of its answers, the items up to it."""

    kept: dict[str, list[Any]] = field(default_factory=dict)
    shown: list[list[Any]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def take(self, body: bytes, turn: Turn | None) -> list[bytes]:
        """The messages that answer a request; none of the model's for a turn that is None."""
        request = json.loads(body)
        before = self.kept[request["previous_response_id"]] if "previous_response_id" in request else []
        shown = [*before, *request["input"]]
        self.bodies.append(body)
        if turn is not None:
            self.shown.append(shown)
        said = replace(answer(turn or Turn()), message_id=f"msg_{len(self.bodies)}")
        offered = replace(said.view, tools=_ENDPOINT.read("/v1/responses", dumps({"tools": TOOLS})).tools)
        messages = list(_ENDPOINT.messages(replace(said, view=offered)))
        last = json.loads(messages[-1])["response"]
        self.kept[last["id"]] = shown + last["output"]
        return messages


class HasInjector(Protocol):
    """A stage: its injector is another one after a restart."""

    injector: Injector


@dataclass
class Harness:
    """A harness with one thread. ``got``: the messages of each answer as they reached it, by message."""

    stage: HasInjector
    way: Way
    headers: dict[str, str] = field(default_factory=lambda: dict(THREAD))
    endpoint: Endpoint = field(default_factory=Endpoint)
    items: list[Any] = field(default_factory=lambda: [*OPENING, user("Do it.")])
    tools: list[Any] = field(default_factory=lambda: list(TOOLS))
    got: list[list[list[bytes]]] = field(default_factory=list)
    answer_id: str | None = None
    sent: int = 0
    socket: Socket | None = None
    run: str = "default"

    def body(self, *, whole: bool = False, **more: Any) -> bytes:
        fields: dict[str, Any] = {"model": "m", "stream": True, "tools": self.tools} | more
        if self.way == "socket":
            fields = {"type": "response.create"} | fields
        if self.way == "whole" or whole or self.answer_id is None:
            return dumps(fields | {"input": self.items})
        return dumps(fields | {"previous_response_id": self.answer_id, "input": self.items[self.sent :]})

    def ask(self, turn: Turn | None, *, lost: bool = False, body: bytes | None = None) -> bytes:
        """Sends what is new (or all) and takes in the model's answer; gives back what reached the endpoint.

        ``turn`` None only makes the endpoint ready. ``lost``: the answer does not arrive.
        """
        if body is None:
            body = self.body(**({"generate": False} if turn is None else {}))
        left = (
            self._over_socket(body, turn, lost) if self.way == "socket" else self._over_http(body, turn, lost)
        )
        if not lost:
            self._take_in()
        return left

    def _over_socket(self, body: bytes, turn: Turn | None, lost: bool) -> bytes:
        if self.socket is None:
            self.reconnect()
        assert self.socket is not None
        passed = self.socket.asked(body)
        assert not passed.back, passed.back
        (left,) = passed.on
        messages = self.endpoint.take(left, turn)
        if not lost:
            self.got.append([list(self.socket.answered(message)) for message in messages])
        return left

    def reconnect(self) -> None:
        if self.socket is not None:
            self.socket.close()
        head = Head("GET", "/v1/responses", self.headers | {"upgrade": "websocket"})
        self.socket = Socket(self.stage.injector, self.run, head)

    def _over_http(self, body: bytes, turn: Turn | None, lost: bool) -> bytes:
        exchange = self.post(body)
        assert exchange.refusal is None
        left = exchange.body
        messages = self.endpoint.take(left, turn)
        injector = self.stage.injector
        if not lost:
            injector.on_response_head(exchange, 200, {"content-type": "text/event-stream"})
            got = []
            for message in messages:
                passed = injector.on_response_chunk(exchange, b"data: " + message + b"\n\n")
                got.append([part for part in passed.split(b"data: ") if part])
            got.append([injector.on_response_chunk(exchange, b"")])
            self.got.append(got)
        injector.on_response_end(exchange)
        return left

    def post(self, body: bytes) -> Exchange:
        return self.stage.injector.on_request(self.run, Head("POST", "/v1/responses", self.headers), body)

    def _take_in(self) -> None:
        """The answer's items stand in the history as they reached the harness."""
        events = [json.loads(message) for messages in self.got[-1] for message in messages if message]
        self.items += [event["item"] for event in events if event["type"] == "response.output_item.done"]
        self.answer_id = events[-1]["response"]["id"]
        self.sent = len(self.items)

    def calls(self) -> list[dict[str, Any]]:
        """The calls of the last answer, as they reached the harness."""
        calls: list[dict[str, Any]] = []
        for item in reversed(self.items[: self.sent]):
            if item["type"] not in ("function_call", "custom_tool_call"):
                if item["type"] == "message" and item["role"] == "assistant":
                    continue
                break
            calls.insert(0, item)
        return calls

    def answers(self, *results: tuple[str, Any] | dict[str, Any]) -> None:
        """Results of the calls of the last answer, in this order; what was kept from running has its own."""
        names = {call["call_id"]: call["name"] for call in self.calls()}
        kinds = {call["call_id"]: call["type"] for call in self.calls()}
        for result in results:
            if isinstance(result, dict):
                self.items.append(result)
                continue
            call_id, text = result
            if names[call_id] not in {tool["name"] for tool in TOOLS}:
                custom = "custom tool " if kinds[call_id] == "custom_tool_call" else ""
                text = f"unsupported {custom}call: {names[call_id]}"
            self.items.append(output(call_id, text, type=f"{kinds[call_id]}_output"))

    def shown(self) -> list[Any]:
        """What the model has been shown in the end."""
        return self.endpoint.shown[-1]


def says(*calls: ToolCall, text: str = "Next.") -> Turn:
    return Turn(text, calls)


def outputs_of(items: Sequence[Any]) -> list[tuple[str, Any]]:
    return [(item["call_id"], item["output"]) for item in items if item["type"].endswith("_output")]
