"""The smallest agents that can speak each protocol: each keeps a history and puts answers together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import aiohttp

TOOLS = ("read", "bash")


class Asked(NamedTuple):
    """A call as a harness sees it."""

    call_id: str
    tool: str
    arguments: str


class Said(NamedTuple):
    """An answer as a harness sees it; ``usage`` as the protocol words it."""

    text: str
    calls: tuple[Asked, ...]
    usage: Any
    stop: str | None


def events(raw: str) -> Iterator[Any]:
    """The data of server-sent events; the end mark is None."""
    for block in raw.replace("\r\n", "\n").split("\n\n"):
        lines = [line.removeprefix("data:").strip() for line in block.split("\n") if line.startswith("data:")]
        if lines:
            yield None if lines == ["[DONE]"] else json.loads("\n".join(lines))


class Client:
    """One conversation with one endpoint."""

    path = ""
    stream_path = ""

    def __init__(self, url: str, *, stream: bool) -> None:
        self.url = url
        self.stream = stream
        self.history: list[Any] = []

    def body(self) -> dict[str, Any]:
        raise NotImplementedError

    def whole(self, document: Any) -> Said:
        raise NotImplementedError

    def streamed(self, found: list[Any]) -> Said:
        raise NotImplementedError

    def add_user(self, text: str) -> None:
        raise NotImplementedError

    def add_result(self, call: Asked, text: str) -> None:
        raise NotImplementedError

    def add_answer(self, said: Said) -> None:
        raise NotImplementedError

    def read_stream(self, raw: str, content_type: str) -> list[Any]:
        assert content_type == "text/event-stream"
        return list(events(raw))

    async def ask(self) -> Said:
        """Sends the history as it stands and takes the answer into it."""
        path = self.stream_path if self.stream else self.path
        async with aiohttp.ClientSession() as http, http.post(self.url + path, json=self.body()) as response:
            raw = await response.text()
            assert response.status == 200, raw
            kind = response.headers["content-type"]
        said = self.streamed(self.read_stream(raw, kind)) if self.stream else self.whole(json.loads(raw))
        self.add_answer(said)
        return said


class ChatClient(Client):
    path = stream_path = "/v1/chat/completions"

    def body(self) -> dict[str, Any]:
        tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in TOOLS]
        body = {"model": "m-1", "messages": self.history, "tools": tools, "stream": self.stream}
        return body | ({"stream_options": {"include_usage": True}} if self.stream else {})

    def add_user(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    def add_result(self, call: Asked, text: str) -> None:
        self.history.append({"role": "tool", "tool_call_id": call.call_id, "content": text})

    def add_answer(self, said: Said) -> None:
        calls = [
            {"id": c.call_id, "type": "function", "function": {"name": c.tool, "arguments": c.arguments}}
            for c in said.calls
        ]
        message = {"role": "assistant", "content": said.text or None}
        self.history.append(message | ({"tool_calls": calls} if calls else {}))

    def whole(self, document: Any) -> Said:
        (choice,) = document["choices"]
        message = choice["message"]
        calls = [
            Asked(call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls", ())
        ]
        return Said(message["content"] or "", tuple(calls), document["usage"], choice["finish_reason"])

    def streamed(self, found: list[Any]) -> Said:
        assert found[-1] is None
        text, usage, stop = "", None, None
        calls: dict[int, list[str]] = {}
        for chunk in found[:-1]:
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                stop = choice["finish_reason"] or stop
                text += choice["delta"].get("content") or ""
                for call in choice["delta"].get("tool_calls", ()):
                    opened = calls.setdefault(
                        call["index"], [call.get("id"), call["function"].get("name"), ""]
                    )
                    opened[2] += call["function"]["arguments"]
        return Said(text, tuple(Asked(*call) for call in calls.values()), usage, stop)


class ResponsesClient(Client):
    path = stream_path = "/v1/responses"

    def body(self) -> dict[str, Any]:
        tools = [{"type": "function", "name": name, "parameters": {}} for name in TOOLS]
        return {"model": "m-1", "input": self.history, "tools": tools, "stream": self.stream}

    def add_user(self, text: str) -> None:
        self.history.append({"role": "user", "content": [{"type": "input_text", "text": text}]})

    def add_result(self, call: Asked, text: str) -> None:
        self.history.append({"type": "function_call_output", "call_id": call.call_id, "output": text})

    def add_answer(self, said: Said) -> None:
        if said.text:
            content = [{"type": "output_text", "text": said.text}]
            self.history.append({"type": "message", "role": "assistant", "content": content})
        for call in said.calls:
            item = {"type": "function_call", "call_id": call.call_id, "name": call.tool}
            self.history.append(item | {"arguments": call.arguments})

    def whole(self, document: Any) -> Said:
        text = ""
        calls = []
        for item in document["output"]:
            if item["type"] == "message":
                text += "".join(part["text"] for part in item["content"])
            else:
                calls.append(Asked(item["call_id"], item.get("name", ""), _arguments(item)))
        return Said(text, tuple(calls), document["usage"], document["status"])

    def streamed(self, found: list[Any]) -> Said:
        assert [event["sequence_number"] for event in found] == list(range(len(found)))
        assert found[0]["type"] == "response.created"
        pieces: dict[int, str] = {}
        for event in found:
            if event["type"].endswith(".delta"):
                pieces[event["output_index"]] = pieces.get(event["output_index"], "") + event["delta"]
        last = found[-1]
        assert last["type"] == "response.completed"
        items = [event["item"] for event in found if event["type"] == "response.output_item.done"]
        assert items == last["response"]["output"]
        for index, item in enumerate(items):
            whole = item["content"][0]["text"] if item["type"] == "message" else _arguments(item)
            assert pieces.get(index, "") == whole
        return self.whole(last["response"])


def _arguments(item: Any) -> str:
    found = item.get("arguments", item.get("input", ""))
    assert isinstance(found, str)
    return found


class GeminiClient(Client):
    path = "/v1beta/models/m-1:generateContent"
    stream_path = "/v1beta/models/m-1:streamGenerateContent?alt=sse"

    def body(self) -> dict[str, Any]:
        return {
            "contents": self.history,
            "tools": [{"functionDeclarations": [{"name": name, "parameters": {}} for name in TOOLS]}],
        }

    def add_user(self, text: str) -> None:
        self.history.append({"role": "user", "parts": [{"text": text}]})

    def add_result(self, call: Asked, text: str) -> None:
        if self.history[-1]["role"] == "model":
            self.history.append({"role": "user", "parts": []})
        named = {"id": call.call_id} if call.call_id else {}
        response = named | {"name": call.tool, "response": {"output": text}}
        self.history[-1]["parts"].append({"functionResponse": response})

    def add_answer(self, said: Said) -> None:
        parts: list[Any] = [{"text": said.text}] if said.text else []
        for call in said.calls:
            named = {"id": call.call_id} if call.call_id else {}
            parts.append({"functionCall": named | {"name": call.tool, "args": json.loads(call.arguments)}})
        self.history.append({"role": "model", "parts": parts})

    def whole(self, document: Any) -> Said:
        return self.streamed([document])

    def streamed(self, found: list[Any]) -> Said:
        parts = [part for chunk in found for part in chunk["candidates"][0]["content"]["parts"]]
        text = "".join(part.get("text", "") for part in parts)
        calls = [
            Asked(call.get("id", ""), call["name"], json.dumps(call["args"], ensure_ascii=False))
            for call in (part["functionCall"] for part in parts if "functionCall" in part)
        ]
        last = found[-1]
        return Said(text, tuple(calls), last["usageMetadata"], last["candidates"][0].get("finishReason"))


class GeminiArrayClient(GeminiClient):
    """The stream as one JSON array."""

    stream_path = "/v1beta/models/m-1:streamGenerateContent"

    def read_stream(self, raw: str, content_type: str) -> list[Any]:
        assert content_type == "application/json"
        found = json.loads(raw)
        assert isinstance(found, list)
        return found


CLIENTS = {
    "chat": ChatClient,
    "responses": ResponsesClient,
    "gemini": GeminiClient,
    "gemini-array": GeminiArrayClient,
}
