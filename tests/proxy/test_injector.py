"""Decide when fresh, remember, replay."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.build import Answer, assistant, body, call, image, result, text, user
from tests.proxy.stage import CLAUDE, PI, Agent, Stage, force, only, profile, read

EMPTY = "<system-reminder>Warning: the file exists but the contents are empty.</system-reminder>"
REMINDER = "\n\n<system-reminder>\n<total_tokens>12 tokens left</total_tokens>\n</system-reminder>"
FILE = "1\tline one\n2\tline two\n3\t"


@pytest.fixture
def empties(tmp_path: Path) -> Stage:
    return Stage(tmp_path, only("empty"))


@pytest.fixture(params=["claude", "pi"])
def agent(request: pytest.FixtureRequest, empties: Stage) -> Agent:
    found: Agent = getattr(empties, request.param)()
    return found


def tool_of(agent: Agent) -> str:
    return "Read" if "x-claude-code-session-id" in agent.headers else "read"


def test_a_fault_is_in_every_request_from_the_first_on(agent: Agent, empties: Stage) -> None:
    tool = tool_of(agent)
    agent.ask(read("t1", tool=tool))
    sent = [agent.results(("t1", FILE)).ask(read("t2", "b.txt", tool))]
    sent += [agent.results(("t2", "other")).ask(read(f"n{i}", f"{i}", tool)) for i in range(1)]
    for i in range(4):
        sent.append(agent.results((f"n{i}", "x")).ask(read(f"n{i + 1}", f"{i + 1}", tool)))
    payload = sent[0]["t1"]
    assert payload in (EMPTY, "")
    assert all(request["t1"] == payload for request in sent)
    assert all(FILE not in request.left.decode() for request in sent)
    empties.end()
    deliveries = [d for d in empties.records("delivery") if d["call_id"] == "t1"]
    assert [d["first"] for d in deliveries] == [True] + [False] * (len(sent) - 1)
    (decision,) = [d for d in empties.decisions() if d["call_id"] == "t1"]
    assert decision["fired"]
    assert decision["kind"] == "empty"
    assert decision["latency_us"] > 0
    assert decision["payload_sha256"] == deliveries[0]["payload_sha256"]


def test_an_error_names_the_file_from_the_root(tmp_path: Path) -> None:
    """As the harness does, which says where it works: an after-kind knows that as a before-kind does."""
    agent = Stage(tmp_path, only("post_effect_error")).claude()
    agent.turn("t1", "Read", {"file_path": "src/a.txt"}, FILE)
    assert "'/ws/src/a.txt'" in agent.ask()["t1"]


def test_no_fault_no_change(tmp_path: Path) -> None:
    stage = Stage(tmp_path, profile(name="off"))
    agent = stage.claude()
    agent.turn(*read("t1"), FILE)
    raw = agent.body()
    assert stage.post(raw, CLAUDE).body is raw
    assert not stage.records("error")


def test_only_the_result_changes(empties: Stage) -> None:
    agent = empties.claude()
    agent.turn(*read("t1"), FILE + REMINDER)
    sent = agent.ask()
    before, behind = sent.came.split(json.dumps(FILE)[1:-1].encode(), 1)
    assert sent.left == before + EMPTY.encode() + behind


@pytest.mark.parametrize("shape", ["string", "list", "marked"])
def test_the_shape_of_a_result_can_flip_from_turn_to_turn(empties: Stage, shape: str) -> None:
    agent = empties.claude()
    agent.turn(*read("t1"), FILE + REMINDER)
    agent.turn(*read("t2", "b"), "x")
    agent.messages[2] = user(
        {
            "string": result("t1", FILE + REMINDER),
            "list": result("t1", [text(FILE + REMINDER)]),
            "marked": result("t1", [text(FILE + REMINDER)], cache_control={"type": "ephemeral"}),
        }[shape]
    )
    found = agent.ask()["t1"]
    assert (found if isinstance(found, str) else found[0]["text"]) == EMPTY + REMINDER


def test_retry_of_the_same_request_is_the_same(agent: Agent, empties: Stage) -> None:
    agent.turn(*read("t1", tool=tool_of(agent)), FILE)
    first = agent.ask(lost=True)
    second = agent.ask(lost=True)
    third = agent.ask(status=529)
    fourth = agent.ask()
    assert first.left == second.left == third.left == fourth.left
    assert len([d for d in empties.decisions() if d["call_id"] == "t1"]) == 1
    assert [d["upstream_status"] for d in empties.records("delivery")] == [200]


def test_a_response_that_was_lost_does_not_count(agent: Agent, empties: Stage) -> None:
    tool = tool_of(agent)
    for attempt in range(3):
        raw = agent.body()
        exchange = empties.post(raw, agent.headers)
        empties.answer(
            exchange, Answer("", [(f"lost{attempt}", tool, '{"path":"a.txt","file_path":"a.txt"}')])
        )
    agent.ask(("t1", tool, {"path": "a.txt", "file_path": "a.txt"}))
    agent.results(("t1", FILE)).ask()
    (decision,) = [d for d in empties.decisions() if d["call_id"] == "t1"]
    assert decision["occurrence"] == 0
    assert decision["ordinal"] == 0
    lost = [d for d in empties.decisions() if d["call_id"].startswith("lost")]
    assert [d["skipped"] for d in lost] == ["orphaned"] * 3


def test_two_conversations_with_the_same_call_ids(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force({"family": "read", "match": "bad", "kind": "empty"}))
    one, other = stage.pi("One."), stage.pi("Other.")
    for i in range(4):
        one.ask(read(f"t{i}", "bad.txt" if i % 2 else "good.txt", "read"))
        other.ask(read(f"t{i}", "good.txt" if i % 2 else "bad.txt", "read"))
        one.results((f"t{i}", f"one {i}"))
        other.results((f"t{i}", f"other {i}"))
    sent_one, sent_other = one.ask(), other.ask()
    assert [c for _, c in sent_one.results] == ["one 0", "", "one 2", ""]
    assert [c for _, c in sent_other.results] == ["", "other 1", "", "other 3"]
    assert {d["conversation"] for d in stage.decisions()} == {"c0", "c1"}


def test_main_and_sub_agents_of_one_session(tmp_path: Path) -> None:
    stage = Stage(tmp_path, only("empty"))
    main, sub = stage.claude(), stage.claude(sub="a1cfa852b54ca19f0")
    main.ask(read("t1"))
    sub.ask(read("t1"))
    main.results(("t1", "main")).ask()
    sub.results(("t1", "sub")).ask()
    assert [(d["role"], d["conversation"]) for d in stage.decisions()] == [("main", "c0"), ("sub", "c1")]


def test_counting_tokens_decides_but_does_not_count(empties: Stage) -> None:
    agent = empties.claude()
    agent.ask(read("t1"))
    agent.results(("t1", FILE))
    count = agent.ask(path="/v1/messages/count_tokens?beta=true")
    assert count["t1"] == EMPTY
    assert not empties.records("delivery")
    assert agent.ask(read("t2")).left == count.left
    assert len(empties.decisions()) == 1
    (first,) = empties.records("delivery")
    assert first["first"]


def test_counting_something_else_orphans_nothing(empties: Stage) -> None:
    agent = empties.claude()
    agent.ask(read("t1"))
    part = body([user("a"), assistant("b"), user("c"), assistant("d"), user("e")])
    exchange = empties.post(part, CLAUDE, path="/v1/messages/count_tokens")
    empties.answer(exchange, None)
    assert exchange.body == part
    agent.results(("t1", FILE)).ask()
    assert [d["skipped"] for d in empties.decisions()] == [None]


def parallel(stage: Stage, order: list[int]) -> list[dict[str, Any]]:
    agent = stage.claude()
    calls = [read(f"t{i}", "same.txt" if i % 2 else f"{i}.txt") for i in range(6)]
    agent.ask(*calls)
    agent.results(*((f"t{i}", f"text {i}") for i in order))
    agent.ask(read("n", "same.txt"))
    agent.results(("n", "more")).ask()
    wanted = ("call_id", "occurrence", "ordinal", "u", "fired", "kind", "payload_sha256", "skipped")
    return [{name: decision[name] for name in wanted} for decision in stage.decisions()]


@pytest.mark.parametrize("order", [[5, 4, 3, 2, 1, 0], [3, 0, 5, 1, 4, 2]])
@pytest.mark.parametrize("identity", ["content", "ordinal"])
def test_parallel_results_in_any_order(tmp_path: Path, order: list[int], identity: str) -> None:
    def stage(name: str) -> Stage:
        weights = {"read": {"empty": 1, "truncated": 1, "wrong_data": 1, "stale": 1, "post_effect_error": 1}}
        split = {"transient": 1, "permanent": 1}
        fields = {"rate": 0.5, "weights": weights, "persistence": split, "identity": identity}
        return Stage(tmp_path / name, profile(**fields, min_gap=1, skip_first=1, max_faults=3))

    assert parallel(stage("a"), list(range(6))) == parallel(stage("b"), order)


def test_results_in_several_messages_and_any_order(tmp_path: Path) -> None:
    def run(name: str, groups: list[list[str]]) -> list[tuple[str, bool, str | None]]:
        stage = Stage(tmp_path / name, only("empty", min_gap=2))
        agent = stage.pi()
        agent.ask(*(read(f"t{i}", f"{i}", "read") for i in range(4)))
        for group in groups:
            agent.results(*((call_id, "x") for call_id in group))
        agent.ask(read("n1", "n1", "read"), read("n2", "n2", "read"))
        agent.results(("n1", "x"), ("n2", "x")).ask()
        return sorted((d["call_id"], d["fired"], d["skipped"]) for d in stage.decisions())

    together = run("a", [["t0", "t1", "t2", "t3"]])
    assert together == run("b", [["t3", "t1"], ["t2"], ["t0"]])
    assert [skipped for _, _, skipped in together] == ["min_gap", "min_gap", None, "min_gap", "min_gap", None]


@pytest.mark.parametrize(
    ("tool", "sent", "back"),
    [
        ("Edit", {"file_path": "a", "old_string": "x", "new_string": "y"},
         {"replace_all": False, "file_path": "a", "old_string": "x", "new_string": "y"}),
        ("Write", {"file_path": "a", "content": "x  \n\n"}, {"file_path": "a", "content": "x\n\n"}),
        ("Read", {"limit": 1.0, "file_path": "a"}, {"limit": 1, "file_path": "a"}),
        ("Bash", {"command": "a > x", "timeout": 5e3}, {"command": "a > x", "timeout": 5000}),
        ("Bash", {"command": "x"}, {"__unparsedToolInput": {"raw": "{", "len": 1}}),
    ],
)  # fmt: skip
def test_arguments_that_the_harness_writes_anew(
    tmp_path: Path, tool: str, sent: dict[str, Any], back: dict[str, Any]
) -> None:
    stage = Stage(tmp_path, only("post_effect_error", "read", "write", "edit", "shell"))
    agent = stage.claude()
    agent.ask(("t1", tool, sent), ("t2", tool, sent))
    agent.messages[-1] = assistant("Well.", call("t1", tool, **back), call("t2", tool, **back))
    agent.results(("t1", "ok"), ("t2", "ok")).ask()
    decisions = stage.decisions()
    assert [(d["call_id"], d["occurrence"]) for d in decisions] == [("t1", 0), ("t2", 1)]
    assert all(d["payload_sha256"] for d in decisions)
    assert len({d["call_digest"] for d in decisions}) == 1


@pytest.mark.parametrize("harness", [CLAUDE, PI])
def test_a_history_that_came_some_other_way(tmp_path: Path, harness: dict[str, str]) -> None:
    """What the model has answered already is left alone; what it has not seen is decided."""
    stage = Stage(tmp_path, only("empty"))
    agent = Agent(stage, harness, [user("hi" * 60)])
    tool = "Read" if harness is CLAUDE else "read"
    for i in range(3):
        agent.messages += [
            assistant(call(f"t{i}", tool, path="a", file_path="a")),
            user(result(f"t{i}", "x")),
        ]
    first = agent.ask(read("n", "b", tool))
    assert [content for _, content in first.results][:2] == ["x", "x"]
    assert first["t2"] != "x"
    second = agent.results(("n", "y")).ask()
    assert [content for _, content in second.results][:3] == [content for _, content in first.results]
    found = {d["call_id"]: (d["skipped"], d["occurrence"]) for d in stage.decisions()}
    assert found == {
        "t0": ("already_answered", 0), "t1": ("already_answered", 1), "t2": (None, 2), "n": (None, 0),
    }  # fmt: skip


def test_calls_that_nobody_answered(empties: Stage) -> None:
    agent = empties.claude()
    agent.ask(read("t1"), read("t2"))
    agent.results(("t1", "x")).ask(read("t3"))
    empties.end()
    assert {d["call_id"]: d["skipped"] for d in empties.decisions()} == {
        "t1": None, "t2": "orphaned", "t3": "orphaned",
    }  # fmt: skip
    (end,) = empties.records("end")
    assert end["ended"] is None


def test_a_call_that_the_harness_dropped(empties: Stage) -> None:
    agent = empties.claude()
    agent.ask(read("t1"), read("t2"))
    agent.messages[-1] = assistant("Well.", call("t1", "Read", file_path="a.txt"))
    agent.results(("t1", "x")).ask()
    assert [(d["call_id"], d["skipped"]) for d in empties.decisions()] == [("t1", None), ("t2", "orphaned")]


@pytest.mark.parametrize("call_id", ["same", ""])
def test_ids_that_repeat_or_are_missing(tmp_path: Path, call_id: str) -> None:
    stage = Stage(tmp_path, force({"family": "read", "nth": 2, "kind": "empty"}))
    agent = stage.claude()
    for _ in range(3):
        agent.turn(*read(call_id), FILE)
    sent = agent.ask()
    assert [content for _, content in sent.results] == [FILE, EMPTY, FILE]
    assert [(d["nth"], d["occurrence"]) for d in stage.decisions()] == [(0, 0), (1, 1), (2, 2)]
    assert agent.ask().results == sent.results


def test_ids_that_repeat_in_one_message(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force({"family": "read", "nth": 2, "kind": "empty"}))
    agent = stage.claude()
    agent.ask(read("same"), read("same"), read("same", "b"))
    agent.results(("same", "1"), ("same", "2"), ("same", "3"))
    assert [content for _, content in agent.ask().results] == ["1", EMPTY, "3"]


def test_ids_that_repeat_keep_apart_when_nothing_stays_loaded(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force({"family": "read", "nth": 2, "kind": "empty"}), max_loaded=1)
    one, other = stage.claude("s1"), stage.claude("s2")
    for agent in (one, other):
        agent.turn(*read("same"), FILE)
    raw = one.body()
    exchange = stage.post(raw, one.headers)
    other.ask(read("x"))  # takes the only place, while one waits for its answer
    stage.answer(exchange, Answer("", [("same", "Read", '{"file_path": "a.txt"}')]))
    one.messages.append(assistant("Well.", call("same", "Read", file_path="a.txt")))
    one.results(("same", FILE))
    assert [content for _, content in one.ask().results] == [FILE, EMPTY]
    assert not stage.records("error")


def test_a_turn_that_was_taken_back_and_asked_again(tmp_path: Path) -> None:
    """The harness forgot its last turn; the model gives the same id to the same call again."""
    stage = Stage(tmp_path, force({"family": "read", "nth": 2, "kind": "empty"}))
    agent = stage.claude()
    agent.turn(*read("t1"), "one")
    agent.ask()
    del agent.messages[1:]
    agent.turn(*read("t1"), "two")
    assert agent.ask()["t1"] == EMPTY
    stage.restart()
    assert agent.ask()["t1"] == EMPTY
    assert [d["occurrence"] for d in stage.decisions()] == [0, 1]
    assert not stage.records("error")


def test_one_result_twice(empties: Stage) -> None:
    agent = empties.claude()
    agent.turn(*read("t1"), FILE)
    agent.results(("t1", FILE))
    assert [content for _, content in agent.ask().results] == [EMPTY, EMPTY]
    assert len(empties.decisions()) == 1


@pytest.mark.parametrize(
    ("kind", "stays"), [("wrong_data", True), ("truncated", True), ("post_effect_error", False)]
)
def test_an_image_beside_the_text(tmp_path: Path, kind: str, stays: bool) -> None:
    """What alters a result's text leaves its image alone; what replaces the result replaces all of it."""
    agent = Stage(tmp_path, only(kind)).claude()
    agent.turn(*read("t1"), [image(), text("1\tline 1\n2\tline 2\n3\tline 3\n")])
    shown = agent.ask()["t1"]
    assert (image() in shown) == stays
    assert len(shown) == 1 + stays


def test_the_log_says_of_each_call_what_it_was_about_without_naming_it(tmp_path: Path) -> None:
    """A file in the workspace is the same however its path is spelled; what is about nothing has none."""
    scene = Stage(tmp_path, only("empty"))
    claude = scene.claude()
    claude.turn(*read("t1", "a.txt"), "one")
    claude.turn(*read("t2", "/ws/a.txt", limit=3), "one")
    claude.turn(*read("t3", "b.txt"), "two")
    claude.turn("t4", "Unheard", {"x": 1}, "three")
    claude.ask()
    found = [decision.get("target_digest") for decision in scene.decisions()]
    assert found[0] == found[1] == sha256(b"a.txt").hexdigest()
    assert found[2] == sha256(b"b.txt").hexdigest()
    assert found[3] is None
    assert b"a.txt" not in (tmp_path / "decisions.jsonl").read_bytes()
