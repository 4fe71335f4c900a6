"""Calls that are kept from running by harmless arguments: the harness cannot live with an unknown tool.

What goes on to the harness, and what the model is sent in all later turns.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.turns import ToolCall, Turn
from proxy.exchange import Exchange
from proxy.options import InjectorOptions
from proxy.protocols.wire import CallDone
from tests.proxy.protocols.kits import ANTHROPIC, CHAT, RESPONSES, Call, Kit, Round, answer, frames_of
from tests.proxy.stage import Stage, force

# What it says of itself on every wire, and what its tool prints when a command does nothing.
_TASK = "Fix it. COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_HEADERS = {"user-agent": "OpenAI/Python 1.99"}
_NOTHING = '{\n  "returncode": 0,\n  "output": ""\n}'
_PATHS = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
}
# As only this model spells it.
_OWN = '{"command":  "make \\u00e9 > marker.txt", "n": 1.50}'
_OTHER = '{"command":"echo two"}'
_HARMLESS = '{"command": ":"}'
_DENY = {"tool": "bash", "nth": 1, "kind": "permission_denied"}

every_wire = pytest.mark.parametrize("kit", [ANTHROPIC, CHAT, RESPONSES], ids=lambda kit: kit.wire.name)
either_way = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def request(kit: Kit, *rounds: Round) -> bytes:
    return kit.body(rounds, instructions=_TASK)


def post(scene: Stage, kit: Kit, *rounds: Round) -> Exchange:
    return scene.post(request(kit, *rounds), _HEADERS, path=_PATHS[kit.wire.name])


def reply(
    scene: Stage, kit: Kit, exchange: Exchange, *calls: Call, streamed: bool = False, text: str = "Well."
) -> bytes:
    """What the harness is sent of an answer with these calls."""
    turn = Turn(text, tuple(ToolCall(c.tool, {}, c.call_id, c.arguments) for c in calls))
    said = answer(turn)
    kind = kit.endpoint.stream_type if streamed else "application/json"
    pieces = list(kit.endpoint.streamed(said)) if streamed else [kit.endpoint.whole(said)]
    scene.injector.on_response_head(exchange, 200, {"content-type": kind})
    passed = b"".join(scene.injector.on_response_chunk(exchange, piece) for piece in pieces)
    passed += scene.injector.on_response_chunk(exchange, b"")
    scene.injector.on_response_end(exchange)
    return passed


def heard(kit: Kit, passed: bytes, *, streamed: bool = False) -> list[tuple[str, str, Any]]:
    """(id, tool, arguments) of the calls in a response."""
    reader = kit.wire.reader(kit.endpoint.stream_type if streamed else "application/json")
    events = [event for frame in frames_of(reader, [passed]) for event in frame.events]
    return [
        (event.call_id, event.tool, json.loads(event.arguments))
        for event in events
        if isinstance(event, CallDone)
    ]


def first_turn(scene: Stage, kit: Kit, *calls: Call, streamed: bool = False, text: str = "Well.") -> bytes:
    return reply(scene, kit, post(scene, kit), *calls, streamed=streamed, text=text)


def turn(*calls: Call, results: tuple[str, ...]) -> Round:
    """One answer as the harness keeps it, and the results."""
    return Round("Well.", calls, results, tuple(range(len(calls))), "on")


def harmless(call_id: str) -> Call:
    return Call(call_id, "bash", _HARMLESS)


def calls_of(kit: Kit, raw: bytes) -> list[tuple[str, str]]:
    """(tool, arguments as they are spelled) of every call that the endpoint received."""
    parsed = kit.wire.parse_request(raw, None)
    return [
        (call.tool, kit.wire.call_arguments(parsed, call).decode())
        for item in parsed.items
        for call in item.calls
    ]


def results_of(kit: Kit, raw: bytes) -> list[str]:
    parsed = kit.wire.parse_request(raw, None)
    return [
        part.text or ""
        for item in parsed.items
        for result in item.results
        for part in kit.wire.result_parts(parsed, result)
    ]


@every_wire
@either_way
def test_the_harness_is_told_to_do_nothing_and_the_model_sees_its_own_call(
    tmp_path: Path, kit: Kit, streamed: bool
) -> None:
    scene = Stage(tmp_path, force(_DENY))
    own = Call("c1", "bash", _OWN)
    passed = first_turn(scene, kit, own, streamed=streamed)
    assert heard(kit, passed, streamed=streamed) == [("c1", "bash", {"command": ":"})]
    assert b"marker" not in passed
    for _ in range(2):
        left = post(scene, kit, turn(harmless("c1"), results=(_NOTHING,))).body
        assert calls_of(kit, left) == [("bash", _OWN)]
        (shown,) = results_of(kit, left)
        assert "ermission denied" in shown
        assert json.loads(shown)["returncode"] == 126
    (decision,) = scene.decisions()
    assert decision["wire_name"] == "bash"
    assert (decision["timing"], decision["skipped"]) == ("before", None)
    assert not scene.records("error")


@every_wire
def test_only_the_call_and_its_result_are_changed(tmp_path: Path, kit: Kit) -> None:
    scene = Stage(tmp_path, force(_DENY))
    first_turn(scene, kit, Call("c1", "bash", _OTHER))
    before = request(kit, turn(harmless("c1"), results=(_NOTHING,)))
    left = post(scene, kit, turn(harmless("c1"), results=(_NOTHING,))).body
    shown = results_of(kit, left)[0]
    wanted = request(kit, turn(Call("c1", "bash", _OTHER), results=(shown,)))
    assert json.loads(left) == json.loads(wanted)
    assert left != before


@every_wire
@either_way
def test_a_call_that_may_run_passes_byte_for_byte(tmp_path: Path, kit: Kit, streamed: bool) -> None:
    scene = Stage(tmp_path, force({"tool": "bash", "nth": 2, "kind": "permission_denied"}))
    own = Call("c1", "bash", _OWN)
    said = answer(Turn("Well.", (ToolCall("bash", {}, "c1", _OWN),)))
    raw = b"".join(kit.endpoint.streamed(said)) if streamed else kit.endpoint.whole(said)
    assert first_turn(scene, kit, own, streamed=streamed) == raw


@every_wire
@either_way
def test_of_parallel_calls_only_the_withheld_one_does_nothing(
    tmp_path: Path, kit: Kit, streamed: bool
) -> None:
    scene = Stage(tmp_path, force({"tool": "bash", "nth": 2, "kind": "not_found"}))
    mine, theirs, last = Call("c1", "bash", _OTHER), Call("c2", "bash", _OWN), Call("c3", "bash", _OTHER)
    passed = first_turn(scene, kit, mine, theirs, last, streamed=streamed)
    assert [arguments for _, _, arguments in heard(kit, passed, streamed=streamed)] == [
        {"command": "echo two"},
        {"command": ":"},
        {"command": "echo two"},
    ]
    ran = '{\n  "returncode": 0,\n  "output": "two\\n"\n}'
    left = post(scene, kit, turn(mine, harmless("c2"), last, results=(ran, _NOTHING, ran))).body
    assert [arguments for _, arguments in calls_of(kit, left)] == [_OTHER, _OWN, _OTHER]
    shown = results_of(kit, left)
    assert shown[0] == shown[2] == ran
    assert "not found" in shown[1]


@every_wire
def test_a_restart_gives_the_call_back_all_the_same(tmp_path: Path, kit: Kit) -> None:
    scene = Stage(tmp_path, force(_DENY))
    first_turn(scene, kit, Call("c1", "bash", _OWN))
    history = turn(harmless("c1"), results=(_NOTHING,))
    left = post(scene, kit, history).body
    scene.restart()
    assert post(scene, kit, history).body == left
    assert len(scene.decisions()) == 1
    assert not scene.records("error")


@every_wire
def test_two_withheld_calls_with_one_id_each_get_their_own_arguments(tmp_path: Path, kit: Kit) -> None:
    """Some endpoints count calls anew in every answer."""
    scene = Stage(tmp_path, force({"tool": "bash", "match": ".", "kind": "locked"}))
    first_turn(scene, kit, Call("c1", "bash", _OWN))
    one = turn(harmless("c1"), results=(_NOTHING,))
    reply(scene, kit, post(scene, kit, one), Call("c1", "bash", _OTHER))
    left = post(scene, kit, one, one).body
    assert [arguments for _, arguments in calls_of(kit, left)] == [_OWN, _OTHER]
    scene.restart()
    assert post(scene, kit, one, one).body == left


@every_wire
def test_what_the_model_itself_asked_to_do_nothing_is_its_own(tmp_path: Path, kit: Kit) -> None:
    scene = Stage(tmp_path, force({"tool": "bash", "match": "make", "kind": "locked"}))
    first_turn(scene, kit, Call("c1", "bash", _HARMLESS), Call("c2", "bash", _OWN))
    history = turn(harmless("c1"), harmless("c2"), results=(_NOTHING, _NOTHING))
    left = post(scene, kit, history).body
    assert json.loads(calls_of(kit, left)[0][1]) == {"command": ":"}
    assert calls_of(kit, left)[1] == ("bash", _OWN)
    assert results_of(kit, left)[0] == _NOTHING
    assert not scene.records("error")


@every_wire
def test_without_memory_nothing_looks_clean(tmp_path: Path, kit: Kit) -> None:
    """What the model asked for stands in the memory alone."""
    scene = Stage(tmp_path, force({"tool": "bash", "match": ".", "kind": "locked"}))
    history = turn(harmless("c1"), results=(_NOTHING,))
    for _ in range(2):
        exchange = post(scene, kit, history)
        assert calls_of(kit, exchange.body)[0] == calls_of(kit, request(kit, history))[0]
    (error,) = scene.records("error")
    assert "nothing is remembered" in error["reason"]
    assert scene.injector.runs.get("default").invalid


@every_wire
def test_where_nothing_is_withheld_the_same_call_is_no_loss(tmp_path: Path, kit: Kit) -> None:
    scene = Stage(tmp_path, force({"tool": "bash", "match": "x", "kind": "empty"}))
    history = turn(harmless("c1"), results=(_NOTHING,))
    assert post(scene, kit, history).body == request(kit, history)
    assert not scene.records("error")


@every_wire
def test_an_injector_that_fails_lets_the_call_pass(tmp_path: Path, kit: Kit) -> None:
    scene = Stage(tmp_path, force(_DENY), options=InjectorOptions(crash_at="response"))
    passed = first_turn(scene, kit, Call("c1", "bash", _OWN), streamed=True)
    assert [call[2]["command"] for call in heard(kit, passed, streamed=True)] == ["make é > marker.txt"]
    assert scene.records("error")


@every_wire
@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        ("permission_denied", 126, "make: Permission denied"),
        ("not_found", 127, "make: not found"),
        ("locked", 126, "make: Text file busy"),
        ("timeout", -1, "timed out after 30 seconds"),
        ("phantom_success", 0, ""),
    ],
)
def test_it_is_worded_as_this_harness_words_it(
    tmp_path: Path, kit: Kit, kind: str, code: int, words: str
) -> None:
    scene = Stage(tmp_path, force({"tool": "bash", "nth": 1, "kind": kind}))
    first_turn(scene, kit, Call("c1", "bash", '{"command":"make all"}'))
    left = post(scene, kit, turn(harmless("c1"), results=(_NOTHING,))).body
    shown = json.loads(results_of(kit, left)[0])
    assert shown["returncode"] == code
    assert words in shown.get("exception_info", "") + shown["output"]


@every_wire
@either_way
@pytest.mark.parametrize(
    ("command", "kind", "claimed"),
    [
        ("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", None, "done"),
        ("echo 'COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT' && cat patch.txt", None, "done"),
        ("grep COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT notes.txt", None, None),
        # It does not end what never ran.
        ("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "locked", None),
    ],
)
def test_the_call_that_ends_a_session_asks_for_nothing_more(
    tmp_path: Path, kit: Kit, streamed: bool, command: str, kind: str | None, claimed: str | None
) -> None:
    match = "COMPLETE" if kind else "never"
    scene = Stage(tmp_path, force({"tool": "bash", "match": match, "kind": kind or "locked"}))
    call = Call("c1", "bash", json.dumps({"command": command}))
    first_turn(scene, kit, call, streamed=streamed, text="All is fixed.")
    run = scene.injector.runs.get("default")
    assert (run.complete, run.claimed) == (claimed is not None, claimed)


@every_wire
def test_a_fork_gives_the_call_back_too(tmp_path: Path, kit: Kit) -> None:
    scene = Stage(tmp_path, force(_DENY))
    first_turn(scene, kit, Call("c1", "bash", _OWN))
    trunk = turn(harmless("c1"), results=(_NOTHING,))
    reply(scene, kit, post(scene, kit, trunk), Call("c2", "bash", _OTHER))
    went = turn(Call("c2", "bash", _OTHER), results=("two",))
    left = post(scene, kit, trunk, went).body
    # The same turn again, and from there on another way.
    other = post(scene, kit, trunk._replace(said="another way")).body
    assert calls_of(kit, left)[0] == calls_of(kit, other)[0] == ("bash", _OWN)
    assert results_of(kit, left)[0] == results_of(kit, other)[0] != _NOTHING
    scene.restart()
    assert post(scene, kit, trunk._replace(said="another way")).body == other
    assert post(scene, kit, trunk, went).body == left
    assert not scene.records("error")
