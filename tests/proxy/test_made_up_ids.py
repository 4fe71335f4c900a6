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


def test_an_id_made_of_a_name_that_no_tool_has_is_made_of_the_tools_own(tmp_path: Path) -> None:
    """A call without an id that was kept from running: the CLI makes the id of the name that it was told."""
    scene = Stage(tmp_path, force({"tool": "read_file", "nth": 1, "kind": "not_found"}))
    go = [{"text": "go"}]
    exchange = scene.post(_request(go), _HEADERS, path=_PATH)
    scene.injector.on_response_head(exchange, 200, {"content-type": "application/json"})
    got = scene.injector.on_response_chunk(exchange, _answer(_call("a.txt"), _call("b.txt")))
    got += scene.injector.on_response_chunk(exchange, b"")
    scene.injector.on_response_end(exchange)
    asked = json.loads(got)["candidates"][0]["content"]["parts"]
    name = asked[0]["functionCall"]["name"]
    assert name == "read_file__not_found"
    for number, part in enumerate(asked):
        part["functionCall"]["id"] = f"{part['functionCall']['name']}_1764_{number}"
    missing = {"error": f'Tool "{name}" not found. Did you mean one of: "read_file"?'}
    results = [
        {"functionResponse": {"name": name, "id": f"{name}_1764_0", "response": missing}},
        _result("text of b", id="read_file_1764_1"),
    ]
    for _ in range(2):
        sent = _turn(scene, _request(go, asked, results), _answer({"text": "done"}))
        calls = [part["functionCall"] for part in sent["contents"][1]["parts"]]
        answers = [part["functionResponse"] for part in sent["contents"][2]["parts"]]
        assert (
            [c["id"] for c in calls]
            == [a["id"] for a in answers]
            == [
                "read_file_1764_0",
                "read_file_1764_1",
            ]
        )
        assert {c["name"] for c in calls} | {a["name"] for a in answers} == {"read_file"}
        assert "not_found" not in json.dumps(sent)
        assert "Did you mean" not in json.dumps(sent)


def test_a_check_on_the_last_turns_has_the_tools_name_before_every_id(tmp_path: Path) -> None:
    """Gemini CLI 0.61 looks for loops from the thirtieth turn on: the last contents alone, without tools, and
    every id with the tool's name before it. It is shown what the model was shown, and the agent goes on."""
    scene = Stage(tmp_path, force({"tool": "read_file", "nth": 2, "kind": "post_effect_error"}))
    go = [{"text": "go"}]
    turns: list[list[dict[str, Any]]] = [go]
    for number in range(4):
        asked = [_call(f"{number}.txt", id=f"c{number}")]
        _turn(scene, _request(*turns), _answer(*asked))
        turns += [asked, [_result(f"text of {number}", id=f"c{number}")]]
    last = _turn(scene, _request(*turns), _answer({"text": "done"}))
    looked = json.loads(json.dumps(turns[1:]).replace('"id": "c', '"id": "read_file__c'))
    check = json.loads(_request(go, *looked, [{"text": "Is this a loop?"}]))
    del check["tools"]
    check["contents"] = check["contents"][1:]
    sent = _turn(scene, json.dumps(check).encode(), _answer({"text": "{}"}))
    shown = [part for content in sent["contents"] for part in content["parts"]]
    assert "text of 1" not in json.dumps(sent)
    assert [part["functionResponse"]["id"] for part in shown if "functionResponse" in part] == [
        f"read_file__c{number}" for number in range(4)
    ]
    turns += [[{"text": "done"}], [{"text": "go on"}]]
    after = _turn(scene, _request(*turns), _answer(_call("1.txt", id="c4")))
    assert after["contents"][:9] == last["contents"]
    assert [(d["conversation"], d["call_id"]) for d in scene.decisions()] == [
        ("c0", f"c{number}") for number in range(4)
    ]
    assert not scene.records("error")


def test_every_response_twice_after_a_resume(tmp_path: Path) -> None:
    """So does Gemini CLI, and it says what was cut off: both of a pair get the payload."""
    scene = Stage(tmp_path, force({"tool": "read_file", "nth": 2, "kind": "post_effect_error"}))
    go = [{"text": "go"}]
    first, second = _call("a.txt", id="read_file_1764_0"), _call("b.txt", id="read_file_1765_1")
    one, other = _result("text of a", id="read_file_1764_0"), _result("text of b", id="read_file_1765_1")
    _turn(scene, _request(go), _answer(_call("a.txt")))
    _turn(scene, _request(go, [first], [one]), _answer(_call("b.txt")))
    seen = _turn(scene, _request(go, [first], [one], [second], [other]), b"")["contents"][4]["parts"][0]
    assert seen != other
    scene.restart()
    resumed = [[first], [one, one], [second], [other, other], [{"text": "[interrupted]"}], go]
    for _ in range(2):
        sent = _turn(scene, _request(go, *resumed), b"")["contents"]
        assert [sent[2]["parts"], sent[4]["parts"]] == [[one, one], [seen, seen]]
    assert [d["skipped"] for d in scene.decisions()] == [None, None]
    assert {d["conversation"] for d in scene.decisions()} == {"c0"}
