"""Before-faults: a call that is kept from running, seen from both sides of the proxy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.options import InjectorOptions
from tests.proxy.build import Answer, assistant, body, call, result, streamed, text, user
from tests.proxy.stage import CLAUDE, EVENTS, Agent, Stage, force

PING = b'event: ping\ndata: {"type": "ping"}\n\n'
UNKNOWN = "<tool_use_error>Error: No such tool available: {}</tool_use_error>"
DENY = {"tool": "Read", "nth": 1, "kind": "permission_denied"}


def stage(tmp_path: Path, *rules: dict[str, Any], options: InjectorOptions | None = None) -> Stage:
    return Stage(tmp_path, force(*rules), options=options or InjectorOptions())


def first_request(scene: Stage) -> Any:
    return scene.post(body([user("go")]), CLAUDE)


def relay(scene: Stage, raw: bytes, *, size: int = 0) -> bytes:
    """What the harness is sent of a streamed answer to a first request."""
    exchange = first_request(scene)
    scene.injector.on_response_head(exchange, 200, EVENTS)
    pieces = [raw[i : i + size] for i in range(0, len(raw), size)] if size else [raw]
    passed = b"".join(scene.injector.on_response_chunk(exchange, piece) for piece in pieces)
    passed += scene.injector.on_response_chunk(exchange, b"")
    scene.injector.on_response_end(exchange)
    return passed


def read_a(call_id: str = "t1", tool: str = "Read") -> dict[str, Any]:
    return call(call_id, tool, file_path="/ws/a.txt")


ONE_READ = streamed(Answer("Looking.", (("t1", "Read", '{"file_path":"/ws/a.txt"}'),)))


def test_only_the_name_of_the_call_is_changed(tmp_path: Path) -> None:
    passed = relay(stage(tmp_path, DENY), ONE_READ)
    assert passed == ONE_READ.replace(b'"Read"', b'"Read__permission_denied"')


def test_a_call_that_may_run_passes_byte_for_byte(tmp_path: Path) -> None:
    scene = stage(tmp_path, {"tool": "Read", "nth": 2, "kind": "permission_denied"})
    assert relay(scene, ONE_READ) == ONE_READ


@settings(max_examples=25)
@given(st.data())
def test_however_the_bytes_come_the_same_go_on(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    size = data.draw(st.integers(1, 200))
    scene = stage(tmp_path_factory.mktemp("split"), DENY)
    assert relay(scene, ONE_READ, size=size) == ONE_READ.replace(b'"Read"', b'"Read__permission_denied"')


def test_text_passes_at_once_and_a_block_waits_until_it_is_whole(tmp_path: Path) -> None:
    scene = stage(tmp_path, DENY)
    exchange = first_request(scene)
    scene.injector.on_response_head(exchange, 200, EVENTS)
    frames = [frame + b"\n\n" for frame in ONE_READ.split(b"\n\n") if frame]
    passed: list[bytes] = []
    for frame in frames:
        passed.append(scene.injector.on_response_chunk(exchange, frame))
    opens = next(
        i for i, frame in enumerate(frames) if b"tool_use" in frame and b"content_block_start" in frame
    )
    closes = next(i for i, frame in enumerate(frames) if i > opens and b"content_block_stop" in frame)
    assert passed[:opens] == frames[:opens]
    assert passed[opens:closes] == [b""] * (closes - opens)
    assert b"Read__permission_denied" in passed[closes]
    assert passed[closes + 1 :] == frames[closes + 1 :]


def test_a_ping_overtakes_what_is_held(tmp_path: Path) -> None:
    scene = stage(tmp_path, DENY)
    exchange = first_request(scene)
    scene.injector.on_response_head(exchange, 200, EVENTS)
    head, _, rest = ONE_READ.partition(b'"type":"input_json_delta"')
    cut = head.rfind(b"event:") if b"event:" in head else head.rfind(b"data:")
    scene.injector.on_response_chunk(exchange, ONE_READ[:cut])
    assert scene.injector.on_response_chunk(exchange, PING) == PING
    assert b"permission_denied" in scene.injector.on_response_chunk(exchange, ONE_READ[cut:])
    assert rest


def test_a_stream_that_is_cut_loses_nothing(tmp_path: Path) -> None:
    for end in range(0, len(ONE_READ), 37):
        folder = tmp_path / str(end)
        folder.mkdir()
        passed = relay(stage(folder, DENY), ONE_READ[:end])
        assert passed.replace(b"Read__permission_denied", b"Read") == ONE_READ[:end]
        if b"content_block_stop" not in ONE_READ[:end].partition(b"tool_use")[2]:
            assert passed == ONE_READ[:end], "a call that is not whole is not renamed"


def test_the_decision_is_written_before_the_first_byte_goes_on(tmp_path: Path) -> None:
    scene = stage(tmp_path, DENY)
    exchange = first_request(scene)
    scene.injector.on_response_head(exchange, 200, EVENTS)
    for i in range(len(ONE_READ)):
        if b"Read__" in scene.injector.on_response_chunk(exchange, ONE_READ[i : i + 1]):
            break
        assert exchange.asked == [] or scene.memory.calls("default", "c0")
    (decision,) = scene.decisions()
    assert decision["timing"] == "before"
    assert decision["wire_name"] == "Read__permission_denied"
    assert scene.memory.calls("default", "c0")[0].payload is not None


def turn_two(scene: Stage, name: str = "Read__permission_denied", **more: Any) -> dict[str, Any]:
    """The next request as the endpoint gets it, when the harness says that it has no such tool."""
    messages = [
        user("go"),
        assistant("Looking.", read_a(tool=name)),
        user(result("t1", UNKNOWN.format(name), is_error=True)),
    ]
    exchange = scene.post(body(messages, **more), CLAUDE)
    sent: dict[str, Any] = json.loads(exchange.body)
    scene.answer(exchange, Answer("Well."))
    return sent


def test_the_model_sees_its_own_call_and_the_payload(tmp_path: Path) -> None:
    scene = stage(tmp_path, DENY)
    relay(scene, ONE_READ)
    for _ in range(2):
        sent = turn_two(scene)
        (_, called), (answered,) = sent["messages"][1]["content"], sent["messages"][2]["content"]
        assert called == read_a()
        assert "permission denied" in answered["content"].lower()
        assert answered["is_error"] is True
        assert "__" not in json.dumps(sent["messages"])
    assert [record["first"] for record in scene.records("delivery")] == [True, False]
    assert not scene.records("error")


def test_a_restart_knows_the_call(tmp_path: Path) -> None:
    scene = stage(tmp_path, DENY)
    relay(scene, ONE_READ)
    before = turn_two(scene)
    scene.restart()
    assert turn_two(scene) == before
    assert len(scene.decisions()) == 1


def test_without_memory_the_name_says_it(tmp_path: Path) -> None:
    scene = stage(tmp_path, {"tool": "Read", "match": ".", "kind": "permission_denied"})
    relay(scene, ONE_READ)
    before = turn_two(scene)
    other = tmp_path / "other"
    other.mkdir()
    forgetful = stage(other, {"tool": "Read", "match": ".", "kind": "permission_denied"})
    assert turn_two(forgetful) == before
    assert forgetful.decisions()[0]["wire_name"] == "Read__permission_denied"


@pytest.mark.parametrize(
    ("names", "named"),
    [
        ({"x-session-id": "ses_own"}, "ses_own"),
        ({"x-session-id": "ses_child", "x-parent-session-id": "ses_own"}, "ses_child"),
        ({}, r"ses_\w{26}"),
    ],
)
def test_a_payload_names_the_session_as_the_harness_does(
    tmp_path: Path, names: dict[str, str], named: str
) -> None:
    scene = stage(tmp_path, {"tool": "todowrite", "nth": 1, "kind": "locked"})
    agent = Agent(scene, {"user-agent": "opencode/1.18.33"} | names, [user("go")])
    agent.ask(("t1", "todowrite", {"todos": []}))
    withheld = call("t1", "todowrite__locked", todos=[])
    refused = result("t1", UNKNOWN.format("todowrite__locked"), is_error=True)
    exchange = scene.post(body([user("go"), assistant(withheld), user(refused)]), agent.headers)
    (answered,) = json.loads(exchange.body)["messages"][2]["content"]
    assert re.search(rf"\nparams: {named}\Z", answered["content"])


def test_a_phantom_success_has_no_error_flag_left(tmp_path: Path) -> None:
    rule = {"tool": "Edit", "nth": 1, "kind": "phantom_success"}
    scene = stage(tmp_path, rule)
    edit = {"file_path": "/ws/a.txt", "old_string": "a", "new_string": "b"}
    relay(scene, streamed(Answer("", (("t1", "Edit", json.dumps(edit)),))))
    messages = [
        user("go"),
        assistant(call("t1", "Edit__phantom_success", **edit)),
        user(result("t1", UNKNOWN.format("Edit__phantom_success"), is_error=True)),
    ]
    exchange = scene.post(body(messages), CLAUDE)
    (answered,) = json.loads(exchange.body)["messages"][2]["content"]
    assert "is_error" not in answered
    assert "/ws/a.txt" in answered["content"]


def test_a_call_that_reached_the_harness_is_left_alone(tmp_path: Path) -> None:
    scene = stage(tmp_path, DENY)
    messages = [user("go"), assistant(read_a()), user(result("t1", "1\tline one"))]
    exchange = scene.post(body(messages), CLAUDE)
    assert exchange.body == body(messages)
    (decision,) = scene.decisions()
    assert (decision["kind"], decision["skipped"]) == ("permission_denied", "already_ran")


def test_a_name_that_a_tool_has_is_not_taken(tmp_path: Path) -> None:
    scene = stage(tmp_path, DENY)
    tools = [{"name": name, "input_schema": {}} for name in ("Read", "Read__permission_denied")]
    exchange = scene.post(body([user("go")], tools=tools), CLAUDE)
    scene.injector.on_response_head(exchange, 200, EVENTS)
    passed = scene.injector.on_response_chunk(exchange, ONE_READ)
    assert b'"Read___permission_denied"' in passed


def test_parallel_calls_each_have_their_own_fate(tmp_path: Path) -> None:
    scene = stage(tmp_path, DENY, {"tool": "Bash", "nth": 1, "kind": "post_effect_error"})
    calls = (
        ("t1", "Read", '{"file_path":"/ws/a.txt"}'),
        ("t2", "Bash", '{"command":"echo a"}'),
        ("t3", "Read", '{"file_path":"/ws/a.txt"}'),
    )
    raw = streamed(Answer("Both.", calls))
    passed = relay(scene, raw)
    assert passed == raw.replace(b'"Read"', b'"Read__permission_denied"', 1)
    messages = [
        user("go"),
        assistant(
            text("Both."),
            read_a(tool="Read__permission_denied"),
            call("t2", "Bash", command="echo a"),
            read_a("t3"),
        ),
        user(
            result("t2", "a", is_error=False),
            result("t1", UNKNOWN.format("Read__permission_denied"), is_error=True),
            result("t3", "1\tline one"),
        ),
    ]
    sent = json.loads(scene.post(body(messages), CLAUDE).body)["messages"]
    assert [block.get("name") for block in sent[1]["content"]] == [None, "Read", "Bash", "Read"]
    bash, first, second = sent[2]["content"]
    assert bash["is_error"] is True
    assert "denied" in first["content"].lower()
    assert second == result("t3", "1\tline one")


def test_one_document_is_decided_before_any_of_it_goes_on(tmp_path: Path) -> None:
    scene = stage(tmp_path, DENY)
    exchange = first_request(scene)
    document = {
        "type": "message",
        "model": "m",
        "content": [{"type": "text", "text": "Looking."}, read_a()],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    raw = json.dumps(document, indent=1).encode()
    scene.injector.on_response_head(exchange, 200, {"content-type": "application/json"})
    passed = scene.injector.on_response_chunk(exchange, raw) + scene.injector.on_response_chunk(exchange, b"")
    assert passed == raw.replace(b'"Read"', b'"Read__permission_denied"')


def test_an_injector_that_fails_lets_everything_pass(tmp_path: Path) -> None:
    scene = stage(tmp_path, DENY, options=InjectorOptions(crash_at="response"))
    assert relay(scene, ONE_READ, size=50) == ONE_READ
    assert "crash" in scene.records("error")[0]["reason"]
    assert not scene.decisions()


def test_the_harness_repairs_a_call_that_never_ran(tmp_path: Path) -> None:
    """Killed in the middle: its own repair text wins."""
    scene = stage(tmp_path, DENY)
    relay(scene, ONE_READ)
    repair = (
        "[Tool call interrupted: the session ended before this call's result was recorded, so its outcome is"
        " unknown. Check whether it took effect before relying on it or running it again.]"
    )
    messages = [
        user("go"),
        assistant("Looking.", read_a(tool="Read__permission_denied")),
        user(result("t1", repair, is_error=True)),
    ]
    sent = json.loads(scene.post(body(messages), CLAUDE).body)["messages"]
    assert sent[1]["content"][1] == read_a()
    assert sent[2]["content"][0]["content"] == repair
    assert scene.decisions()[-1]["skipped"] == "superseded"


@pytest.mark.parametrize(
    ("arguments", "told", "is_error", "reason"),
    [
        (
            {},
            "<tool_use_error>InputValidationError: file_path is missing</tool_use_error>",
            True,
            "already_failed",
        ),
        ({}, "1\tline one", None, "already_ran"),
        ({"file_path": "/ws/a.txt"}, "<tool_use_error>no</tool_use_error>", True, "already_ran"),
    ],
)
def test_only_what_failed_is_said_to_have_failed(
    tmp_path: Path, arguments: dict[str, str], told: str, is_error: bool | None, reason: str
) -> None:
    """A call without what its tool is about goes on: its harness refuses it, or makes something of it."""
    scene = stage(tmp_path, DENY)
    flag = {} if is_error is None else {"is_error": is_error}
    messages = [user("go"), assistant(call("t1", "Read", **arguments)), user(result("t1", told, **flag))]
    exchange = scene.post(body(messages), CLAUDE)
    assert exchange.body == body(messages)
    (decision,) = scene.decisions()
    assert (decision["kind"], decision["skipped"]) == ("permission_denied", reason)


def test_a_call_that_went_on_after_all_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was decided and written down, and then its name could not be changed: what it did is not denied."""
    scene = stage(tmp_path, DENY)
    with monkeypatch.context() as broken:
        broken.setattr("proxy.responses._disguise", lambda *_: 1 / 0)
        assert relay(scene, ONE_READ, size=50) == ONE_READ
    assert [record["where"] for record in scene.records("error")] == ["injector"]
    for restarted in (False, True):
        if restarted:
            scene.restart()
        messages = [user("go"), assistant("Looking.", read_a()), user(result("t1", "1\tline one"))]
        exchange = scene.post(body(messages), CLAUDE)
        assert exchange.body == body(messages)
        scene.answer(exchange, Answer("Well."))
    last = scene.decisions()[-1]
    assert (last["call_id"], last["kind"], last["skipped"]) == ("t1", "permission_denied", "already_ran")
    assert (last["wire_name"], last["payload_sha256"]) == (None, None)
    assert not scene.records("delivery")
