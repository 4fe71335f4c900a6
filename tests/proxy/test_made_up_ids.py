"""A model that gives its calls no ids, and a harness that makes some up for them: Gemini and its CLI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ledger.memory import CallRow
from tests.proxy.stage import Stage, force

_HEADERS = {"user-agent": "something", "x-goog-api-key": "k"}
_PATH = "/v1beta/models/gemini-2.5-pro:generateContent"
_TOOLS = [{"functionDeclarations": [{"name": "read_file"}]}]


def _call(path: str, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": "read_file", "args": {"file_path": path}} | more}


def _result(text: str, **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": "read_file", "response": {"output": text}} | more}


def _request(*turns: list[dict[str, Any]]) -> bytes:
    roles = ("user", "model")
    contents = [{"role": roles[i % 2], "parts": parts} for i, parts in enumerate(turns)]
    return json.dumps({"contents": contents, "tools": _TOOLS}).encode()


def _answer(*parts: dict[str, Any]) -> bytes:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP"}
    usage = {"promptTokenCount": 5, "candidatesTokenCount": 2}
    return json.dumps({"candidates": [candidate], "usageMetadata": usage}).encode()


def _turn(scene: Stage, request: bytes, answer: bytes) -> Any:
    exchange = scene.post(request, _HEADERS, path=_PATH)
    scene.injector.on_response_head(exchange, 200, {"content-type": "application/json"})
    scene.injector.on_response_chunk(exchange, answer)
    scene.injector.on_response_end(exchange)
    return json.loads(exchange.body)


def test_calls_are_known_again_under_ids_of_the_harness(tmp_path: Path) -> None:
    scene = Stage(tmp_path, force({"tool": "read_file", "nth": 2, "kind": "post_effect_error"}))
    go = [{"text": "go"}]
    asked = [_call("a.txt"), _call("b.txt")]
    _turn(scene, _request(go), _answer(*asked))
    named = [_call("a.txt", id="read_file_1764_0"), _call("b.txt", id="read_file_1764_1")]
    results = [
        _result("text of a", id="read_file_1764_0"),
        _result("text of b", id="read_file_1764_1"),
    ]
    sent = _turn(scene, _request(go, named, results), _answer({"text": "done"}))
    first, second = sent["contents"][2]["parts"]
    assert first == results[0]
    assert "text of b" not in json.dumps(second)
    again = _turn(scene, _request(go, named, results, [{"text": "done"}], go), _answer({"text": "done"}))
    assert again["contents"][2]["parts"] == [first, second]
    decisions = scene.decisions()
    assert [(d["fired"], d["skipped"]) for d in decisions] == [(False, None), (True, None)]
    rows: list[CallRow] = scene.memory.calls("default", "c0")
    assert len(rows) == 2
    assert not scene.records("error")
