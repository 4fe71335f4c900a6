"""Which conversation a request belongs to, and what it keeps through forks, compactions and resumes."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.build import assistant, body, call, result, text, user
from tests.proxy.stage import CLAUDE, PI, Agent, Stage, force, only, profile, read

FILE = "line one\nline two\n"
CC_INTERRUPTED = (
    "[Tool call interrupted: the session ended before this call's result was recorded, so its outcome is"
    " unknown. Check whether it took effect before relying on it or running it again.]"
)
PI_COMPACTED = (
    "The conversation history before this point was compacted into the following summary:"
    "\n\n<summary>\nS\n</summary>"
)
CC_COMPACTED = (
    "This session is being continued from a previous conversation that ran out of context. The summary below…"
)


def fork(agent: Agent, keep: int) -> Agent:
    return Agent(agent.stage, agent.headers, deepcopy(agent.messages[:keep]), agent.fields)


@pytest.mark.parametrize("trunk_first", [True, False])
def test_a_fork_has_what_its_prefix_had(tmp_path: Path, trunk_first: bool) -> None:
    stage = Stage(tmp_path, only("wrong_data"))
    agent = stage.pi()
    agent.turn(*read("t1", tool="read"), FILE)
    agent.turn(*read("t2", tool="read"), FILE)
    first = agent.turn(*read("t3", tool="read"), FILE)
    trunk = fork(agent, 7)
    if trunk_first:
        trunk.ask(read("t4", tool="read"))
    branch = fork(agent, 5)
    branch.messages.append(assistant("Another way.", call("b3", "read", path="a.txt")))
    branch.results(("b3", FILE))
    sent = branch.ask()
    assert sent["t1"] == first["t1"] != FILE
    assert sent["t2"] == first["t2"] != FILE
    found = {d["call_id"]: d for d in stage.decisions()}
    assert found["b3"]["occurrence"] == 2
    # The trunk goes on as if nothing had happened.
    last = agent.ask() if not trunk_first else trunk.results(("t4", FILE)).ask()
    assert [content for _, content in last.results[:2]] == [content for _, content in first.results]
    found = {d["call_id"]: d for d in stage.decisions()}
    assert found["t3"]["occurrence"] == 2
    assert last["t3"] == sent["b3"]  # the same call of the same place in the conversation
    assert found["t3"]["conversation"] != found["b3"]["conversation"]


def test_a_fork_inherits_calls_that_were_never_relayed(tmp_path: Path) -> None:
    stage = Stage(tmp_path, only("empty"))
    agent = stage.pi("hello " * 40)
    agent.messages += [assistant(call("t1", "read", path="a.txt")), user(result("t1", FILE))]
    assert agent.ask(read("t2", tool="read"))["t1"] == ""
    agent.results(("t2", FILE)).ask()
    branch = fork(agent, 3)
    branch.messages += [assistant("Hm."), user(text("Go on."))]
    sent = branch.ask()
    assert sent["t1"] == ""


def test_two_answers_to_one_request_part(tmp_path: Path) -> None:
    """Two harnesses that begin with the same words share a prefix until their models differ."""
    stage = Stage(tmp_path, force({"family": "read", "nth": 1, "kind": "empty"}))
    one, other = stage.pi(), stage.pi()
    one.ask(read("a1", tool="read"))
    other.ask(read("b1", "b.txt", tool="read"))
    assert one.results(("a1", FILE)).ask()["a1"] == ""
    assert other.results(("b1", FILE)).ask()["b1"] == ""
    assert len({d["conversation"] for d in stage.decisions() if d["skipped"] is None}) == 2


def compacted(agent: Agent, *kept: dict[str, Any]) -> Agent:
    opening = PI_COMPACTED if agent.headers is PI else CC_COMPACTED
    return Agent(agent.stage, agent.headers, [user(text(opening)), *kept, user(text("Go on."))], agent.fields)


@pytest.mark.parametrize("harness", ["claude", "pi"])
@pytest.mark.parametrize("identity", ["content", "ordinal"])
def test_counts_are_kept_through_a_compaction(tmp_path: Path, harness: str, identity: str) -> None:
    stage = Stage(tmp_path, only("empty", identity=identity))
    agent: Agent = getattr(stage, harness)()
    tool = "Read" if harness == "claude" else "read"
    for i in range(3):
        agent.turn(*read(f"t{i}", tool=tool), FILE)
    agent.ask()
    after = compacted(agent)
    after.turn(*read("n1", tool=tool), FILE)
    stage.restart()
    after.turn(*read("n2", tool=tool), FILE)
    after.ask()
    found = [(d["call_id"], d["occurrence"], d["ordinal"], d["conversation"]) for d in stage.decisions()]
    assert found[3:] == [("n1", 3, 3, "c0"), ("n2", 4, 4, "c0")]


def test_messages_that_a_compaction_kept_carry_their_payload(tmp_path: Path) -> None:
    stage = Stage(tmp_path, only("empty"))
    agent = stage.pi()
    for i in range(3):
        agent.turn(*read(f"t{i}", f"{i}", tool="read"), FILE)
    agent.ask()
    after = compacted(agent, *agent.messages[3:7])
    sent = after.ask()
    assert [content for _, content in sent.results] == ["", ""]
    assert len(stage.decisions()) == 3


def test_an_id_of_before_the_compaction_that_comes_again_is_a_new_call(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force({"tool": "Read", "nth": 1, "kind": "empty"}))
    agent = stage.claude()
    agent.turn(*read(""), FILE)
    agent.ask()
    after = compacted(agent)
    after.turn(*read(""), FILE)
    assert after.ask()[""] == FILE
    assert [d["occurrence"] for d in stage.decisions()] == [0, 1]


def test_what_the_harness_took_back_stays_taken_back(tmp_path: Path) -> None:
    """After a kill Claude Code puts its own words over a result that it had sent before."""
    stage = Stage(tmp_path, only("truncated"))
    agent = stage.claude()
    agent.turn(*read("t1"), "1\ta\n2\tb\n3\tc")
    agent.ask()
    resumed = fork(agent, 2)
    interrupted = {"type": "tool_result", "content": CC_INTERRUPTED, "is_error": True, "tool_use_id": "t1"}
    resumed.results(interrupted)
    resumed.messages += [assistant("No response requested."), user(text("Go on."))]
    for _ in range(2):
        assert resumed.ask()["t1"] == CC_INTERRUPTED
        stage.restart()
    assert [d["skipped"] for d in stage.decisions()] == [None, "superseded"]


@pytest.mark.parametrize("answered", [True, False])
def test_a_session_taken_up_again_with_a_repair_in_its_middle(tmp_path: Path, answered: bool) -> None:
    """It is the same conversation, although only its beginning is as it was: what was decided behind the
    repair goes on, also when the model had not answered yet."""
    stage = Stage(tmp_path, only("wrong_data"))
    agent = stage.pi()
    agent.turn(*read("t1", tool="read"), FILE)
    agent.turn(*read("t2", tool="read"), FILE)
    agent.turn(*read("t3", "c", tool="read"), FILE)
    seen = agent.ask(lost=not answered)
    resumed = fork(agent, 7)
    resumed.messages[2]["content"].append(text("(stored twice)"))
    resumed.messages += [assistant("[interrupted]"), user(text("Go on."))]
    for _ in range(2):
        sent = resumed.ask()
        assert [sent[name] for name in ("t1", "t2", "t3")] == [seen[name] for name in ("t1", "t2", "t3")]
        assert {d["conversation"] for d in stage.decisions()} == {"c0"}
        stage.restart()
    assert [d["occurrence"] for d in stage.decisions()] == [0, 1, 0]


def test_a_repaired_result_is_not_replaced(tmp_path: Path) -> None:
    stage = Stage(tmp_path, only("empty", "shell", "read"))
    for agent, tool, repair in (
        (stage.claude(), "Bash", CC_INTERRUPTED),
        (stage.pi(), "bash", "No result provided"),
    ):
        agent.ask(("t1", tool, {"command": "sleep 300"}))
        sent = agent.results(("t1", repair)).ask()
        assert sent["t1"] == repair
    assert [d["skipped"] for d in stage.decisions()] == ["superseded", "superseded"]


def test_cleared_results_are_left_alone(tmp_path: Path) -> None:
    stage = Stage(tmp_path, only("empty"))
    agent = stage.claude()
    agent.turn(*read("t1"), "1\tx")
    agent.ask()
    agent.messages[2] = user(result("t1", "[Old tool result content cleared]"))
    agent.messages.append(user(text("Go on.")))
    assert agent.ask()["t1"] == "[Old tool result content cleared]"


@pytest.mark.parametrize(
    ("limits", "skips"),
    [
        ({"skip_first": 2}, ["skip_first", "skip_first", None, None]),
        ({"max_faults": 1}, [None, "max_faults", "max_faults", "max_faults"]),
        ({"min_gap": 1}, [None, "min_gap", None, "min_gap"]),
        ({"min_gap": 1, "skip_first": 1}, ["skip_first", None, "min_gap", None]),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_limits_count_in_one_conversation(
    tmp_path: Path, limits: dict[str, int], skips: list[str | None], together: bool
) -> None:
    stage = Stage(tmp_path, only("empty", **limits))
    for agent in (stage.claude("s1"), stage.claude("s2")):
        if together:
            agent.ask(*(read(f"t{i}", f"{i}") for i in range(4)))
            agent.results(*((f"t{i}", FILE) for i in range(4))).ask()
        else:
            for i in range(4):
                agent.turn(*read(f"t{i}", f"{i}"), FILE)
            agent.ask()
    assert [d["skipped"] for d in stage.decisions()] == skips * 2


def test_rules_force_one_fault_each(tmp_path: Path) -> None:
    rules: list[dict[str, Any]] = [
        {"family": "shell", "nth": 2, "kind": "timeout_after_effect"},
        {"tool": "Read", "match": r"b\.txt", "kind": "empty"},
        {"tool": "Read", "nth": 1, "kind": "post_effect_error"},
    ]
    stage = Stage(tmp_path, force(*rules))
    agent = stage.claude()
    for i, path in enumerate(["a.txt", "b.txt", "a.txt", "b.txt"]):
        agent.turn(*read(f"r{i}", path), "1\tx\n2\ty")
        agent.turn(f"s{i}", "Bash", {"command": f"echo {i} > f"}, "out")
    agent.ask()
    fired = {d["call_id"]: d["kind"] for d in stage.decisions() if d["fired"]}
    assert fired == {
        "r0": "post_effect_error", "r1": "empty", "s1": "timeout_after_effect", "r3": "empty",
    }  # fmt: skip
    assert all(d["forced"] for d in stage.decisions() if d["fired"])


def test_ordinal_identity_hands_a_lasting_fault_down(tmp_path: Path) -> None:
    lasting = {"transient": 0, "permanent": 1}
    stage = Stage(tmp_path, only("wrong_data", identity="ordinal", persistence=lasting, max_faults=10))
    agent = stage.claude()
    for i in range(2):
        agent.turn(*read(f"t{i}"), "1\tx = 7\n2\ty = 8")
    stage.restart()
    agent.turn(*read("t2"), "1\tx = 7\n2\ty = 8")
    sent = agent.ask()
    assert sent["t0"] == sent["t1"] == sent["t2"] != "1\tx = 7\n2\ty = 8"


def lasting_and_passing(tmp_path: Path, permanent: int) -> list[str]:
    weights = {"transient": 1 - permanent, "permanent": permanent}
    stage = Stage(tmp_path / str(permanent), only("wrong_data", persistence=weights, rate=0.5))
    agent = stage.claude()
    for i in range(8):
        agent.turn(*read(f"t{i}"), "1\tx = 7\n2\ty = 8\n3\tz = 9")
    return [content for _, content in agent.ask().results]


def test_the_same_call_again(tmp_path: Path) -> None:
    assert len(set(lasting_and_passing(tmp_path, 1))) == 1
    assert len(set(lasting_and_passing(tmp_path, 0))) > 2


def test_same_seed_same_faults_other_seed_others(tmp_path: Path) -> None:
    def faults(name: str, seed: int) -> list[tuple[Any, ...]]:
        weights = {"read": {"empty": 1, "wrong_data": 1}}
        stage = Stage(tmp_path / name, profile(rate=0.5, weights=weights), seed=seed)
        agent = stage.claude()
        for i in range(30):
            agent.turn(*read(f"{name}{i}", f"{i}"), "1\tx = 7")
        agent.ask()
        return [(d["u"], d["kind"], d["payload_sha256"]) for d in stage.decisions()]

    assert faults("a", 7) == faults("b", 7)
    first, other = faults("c", 7), faults("d", 8)
    assert [f[1] for f in first] != [f[1] for f in other]


def test_a_side_request_with_tools_of_the_same_session(tmp_path: Path) -> None:
    """Claude Code's web search asks a model with one server tool, under the header of its session."""
    stage = Stage(tmp_path, only("empty"))
    agent = stage.claude()
    agent.turn(*read("t1"), "1\tx")
    agent.ask(read("t2"))
    side = body([user("Search.")], tools=[{"type": "web_search_20250305", "name": "web_search"}])
    exchange = stage.post(side, CLAUDE)
    assert exchange.body is side
    stage.answer(exchange, None)
    sent = agent.results(("t2", "1\ty")).ask()
    assert sent["t1"] == sent["t2"]
    assert [d["skipped"] for d in stage.decisions()] == [None, None]


def test_a_title_request_is_no_turn(tmp_path: Path) -> None:
    stage = Stage(tmp_path, only("empty"))
    agent = stage.pi()
    agent.turn(*read("t1", tool="read"), FILE)
    title = body([user("Name this.")], tools=None)
    exchange = stage.post(title, PI)
    stage.answer(exchange, None)
    assert exchange.conversation is None
    assert agent.ask()["t1"] == ""
    assert {d["conversation"] for d in stage.decisions()} == {"c0"}


def test_the_workspace_is_abstract_in_the_draw(tmp_path: Path) -> None:
    digests = []
    for place in ("/ws", "/home/u/other"):
        stage = Stage(tmp_path / place.strip("/").replace("/", "-"), only("empty"))
        agent = stage.claude()
        agent.messages[0] = user(text(f"# Environment\n - Primary working directory: {place}\n"))
        agent.turn(*read("t1", f"{place}/a.txt"), "1\tx")
        agent.ask()
        digests += [d["call_digest"] for d in stage.decisions()]
    assert len(set(digests)) == 1


@pytest.mark.parametrize("kind", ["permission_denied", "post_effect_error"])
def test_a_fork_of_the_turn_with_the_fault_has_it_too(tmp_path: Path, kind: str) -> None:
    """The same response, answered in two ways: the call that it asked for fails in both."""
    stage = Stage(tmp_path, only(kind))
    agent = stage.pi()
    agent.ask(read("t1", tool="read"))
    name = f"read__{kind}" if kind == "permission_denied" else "read"
    agent.messages[-1] = assistant("Well.", call("t1", name, path="a.txt"))
    trunk, branch = fork(agent, 2), fork(agent, 2)
    first = trunk.results(("t1", "Tool not found.")).ask()["t1"]
    other = branch.results(("t1", "There is no such tool.")).ask()["t1"]
    assert other == first != ""
    found = [(d["call_id"], d["skipped"], d["payload_sha256"]) for d in stage.decisions()]
    assert len(found) == 2
    assert found[0] == found[1]
    assert len({d["conversation"] for d in stage.decisions()}) == 2
    stage.restart()
    assert branch.ask()["t1"] == other


def test_a_withheld_call_that_was_given_up_and_comes_back_is_applied_in_the_log(tmp_path: Path) -> None:
    stage = Stage(tmp_path, only("permission_denied"))
    agent = stage.pi()
    agent.ask(read("t1", tool="read"))
    told = fork(agent, 1)
    told.messages += [assistant("Hm."), user(text("Go on."))]
    agent.messages[-1] = assistant("Well.", call("t1", "read__permission_denied", path="a.txt"))
    told.ask()
    told.messages += [assistant("Hm."), user(text("Go on."))]
    told.ask()
    sent = agent.results(("t1", "Tool not found.")).ask()
    last = {(d["conversation"], d["call_id"]): d for d in stage.decisions()}
    carried = [d for d in last.values() if d["skipped"] is None]
    assert [d["payload_bytes"] for d in carried] == [len(sent["t1"])]


def _left_out(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return messages[:1] + messages[3:]


def _reworded(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*messages[:2], user(result("t1", "(removed to save room)")), *messages[3:]]


def _told_before(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [messages[0], assistant("Understood."), user(text("A note.")), *messages[1:]]


@pytest.mark.parametrize("edit", [_left_out, _reworded, _told_before])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_history_changed_in_its_middle_keeps_its_faults(tmp_path: Path, edit: Any, restarted: bool) -> None:
    """Some harnesses make room by leaving old turns out: what the model has seen it sees again."""
    stage = Stage(tmp_path, only("wrong_data"))
    agent = stage.pi()
    for name in ("t1", "t2", "t3"):
        agent.turn(*read(name, tool="read"), FILE)
    first = agent.ask()
    decided = len(stage.decisions())
    if restarted:
        stage.restart()
    agent.messages = edit(agent.messages)
    sent = agent.ask(read("t4", tool="read"))
    assert [sent[name] for name in ("t2", "t3")] == [first[name] for name in ("t2", "t3")]
    assert FILE not in dict(sent.results).values()
    agent.results(("t4", FILE)).ask()
    found = stage.decisions()
    assert len(found) == decided + 1
    assert (found[-1]["call_id"], found[-1]["occurrence"], found[-1]["skipped"]) == ("t4", 3, None)


def test_a_session_under_a_new_name_has_what_its_prefix_had(tmp_path: Path) -> None:
    """Claude Code resumed with ``--fork-session``: the old history under a new id of the session."""
    stage = Stage(tmp_path, only("wrong_data"))
    agent = stage.claude()
    agent.turn(*read("t1"), "1\tline one\n2\tline two 2")
    agent.turn(*read("t2", path="b.txt"), "1\tline three\n2\tline four 4")
    last = agent.ask()
    branch = stage.claude("5f1c0e0e-0000-4000-8000-000000000002")
    branch.messages = [*deepcopy(agent.messages), user("go on")]
    first = branch.turn(*read("t3"), "1\tline one\n2\tline two 2")
    after = branch.ask()
    for sent in (first, after):
        assert (sent["t1"], sent["t2"]) == (last["t1"], last["t2"])
    assert [(d["conversation"], d["call_id"], d["occurrence"]) for d in stage.decisions()][-1] == (
        "c1",
        "t3",
        1,
    )
    assert not any(d["skipped"] for d in stage.decisions())
