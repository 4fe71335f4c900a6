"""What was replaced stays replaced where a harness retells results inside a text."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs import dialects
from proxy.flattened import Showing, Shown, mark_of, newest_told, owns_of, retell, shown_form
from scheduler.dialect import Flattened
from scoring.verify import verify_log
from tests.proxy.build import assistant, body, result, text, user
from tests.proxy.stage import PI, Agent, Answer, Sent, Stage, force, only, read

FOUND = dialects()["pi"].identify.flattened
assert FOUND is not None
PI_FLATTENED: Flattened = FOUND


# Half of a pair reads as U+FFFD: the body that has it is no JSON for most parsers.
HALVES = "replace"


def units(value: str) -> int:
    return len(value.encode("utf-16-le", "surrogatepass")) // 2


def pi_part(value: str) -> str:
    """A result as Pi 1.0.3 retells it; JavaScript counts and cuts by UTF-16 code units."""
    if units(value) > 2000:
        cut = value.encode("utf-16-le", "surrogatepass")[:4000].decode("utf-16-le", HALVES)
        value = f"{cut}\n\n[... {units(value) - 2000} more characters truncated]"
    return f"[Tool result]: {value}"


def pi_conversation(results: list[str], *, instructions: str = "\n\nSum this up.") -> str:
    parts = ["[User]: Do it."]
    for value in results:
        parts.append('[Assistant tool calls]: read(path="a.txt", limit=5)')
        if value:
            parts.append(pi_part(value))
    parts.append("[Assistant]: Done.")
    return "<conversation>\n" + "\n\n".join(parts) + "\n</conversation>" + instructions


def compaction(stage: Stage, told: str, answer: Answer | None = None) -> str:
    raw = body([user(text(told))], tools=None, system=[text("You are a context summarization assistant.")])
    exchange = stage.post(raw, PI)
    stage.answer(exchange, answer)
    assert exchange.conversation is None
    sent = Sent(raw, exchange.body, exchange).messages
    said: str = sent[0]["content"][0]["text"]
    return said


def pi_run(stage: Stage, results: list[str]) -> list[str]:
    """One read for each result; what the model was shown of each."""
    agent = stage.pi()
    for i, value in enumerate(results):
        agent.turn(*read(f"t{i}", f"{i}.txt", "read"), value)
    return [content for _, content in agent.ask().results]


LONG = "".join(f"line {i} of a long file 🙂\n" for i in range(200))
RESULTS = [
    "line one\nline two\n",
    "x",
    "[Tool result]: fake\nline one\nline two\n",
    "quoted\n\n[Tool result]: x\n\n[User]: y",
    "with\n\n\nblank lines\n\n",
    LONG,
    "🙂" * 1500,
    "a" + "🙂" * 1500,
    "p" * 2000,
    "p" * 2001,
    "(no output)",
]


@pytest.mark.parametrize("kind", ["empty", "truncated", "wrong_data", "post_effect_error"])
def test_a_compaction_by_pi_tells_what_the_model_was_shown(tmp_path: Path, kind: str) -> None:
    stage = Stage(tmp_path, only(kind))
    shown = pi_run(stage, RESULTS)
    assert [a != b for a, b in zip(shown, RESULTS, strict=True)].count(True) >= 8
    assert compaction(stage, pi_conversation(RESULTS)) == pi_conversation(shown)
    assert not stage.records("error")


def test_equal_results_are_told_apart_by_their_place(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force({"family": "read", "nth": 2, "kind": "post_effect_error"}))
    results = ["a\n", "(no output)", "b\n", "(no output)", "(no output)", "c\n"]
    shown = pi_run(stage, results)
    assert compaction(stage, pi_conversation(results)) == pi_conversation(shown)
    # The newest messages are kept as they are, and the oldest were summed up before.
    for part in (slice(0, 3), slice(1, 5), slice(2, 6), slice(0, 5)):
        assert compaction(stage, pi_conversation(results[part])) == pi_conversation(shown[part])
    assert not stage.records("error")


def test_what_cannot_be_told_apart_is_replaced_and_said(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force({"family": "read", "nth": 1, "kind": "post_effect_error"}))
    shown = pi_run(stage, ["same\n", "same\n"])
    told = compaction(stage, pi_conversation(["same\n"]))
    assert told == pi_conversation(shown[:1])
    (error,) = stage.records("error")
    assert error["where"] == "flattened"
    # A retry is the same request: nothing more is said of it.
    assert compaction(stage, pi_conversation(["same\n"])) == told
    assert len(stage.records("error")) == 1


def pi_unseen(seen: list[str], *fresh: str) -> str:
    """A history that Pi sums up before the model has seen the results of its newest answer."""
    before = pi_conversation(seen).partition("\n\n[Assistant]: Done.")[0]
    calls = '[Assistant tool calls]: read(path="n.txt")' + '; read(path="n.txt")' * (len(fresh) - 1)
    parts = "\n\n".join([before, calls, *map(pi_part, fresh)])
    return f"{parts}\n</conversation>\n\nSum this up."


@pytest.mark.parametrize("kind", ["post_effect_error", "wrong_data", "empty", "permission_denied"])
@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("earlier", [0, 1])
def test_a_result_that_is_first_told_in_a_summary_is_decided_there(
    tmp_path: Path, kind: str, restart: bool, earlier: int
) -> None:
    stage = Stage(tmp_path, force({"family": "read", "nth": earlier + 1, "kind": kind}))
    agent = stage.pi()
    results = [f"seen {i}\n" for i in range(earlier)]
    for i, value in enumerate(results):
        agent.turn(*read(f"t{i}", f"{i}.txt", "read"), value)
    agent.ask(read("new", "new.txt", "read"))
    if restart:
        stage.restart()
    first = compaction(stage, pi_unseen(results, "the value is 17\n"))
    assert not stage.records("delivery"), "nobody has answered"
    assert compaction(stage, pi_unseen(results, "the value is 17\n"), Answer("A sum.")) == first
    assert "the value is 17" not in first
    assert not stage.records("error")
    (decision,) = [r for r in stage.records("decision") if r["call_id"] == "new" and r["payload_sha256"]]
    assert (decision["kind"], decision["skipped"]) == (kind, None)
    (delivery,) = [r for r in stage.records("delivery") if r["call_id"] == "new"]
    assert (delivery["first"], delivery["payload_sha256"]) == (True, decision["payload_sha256"])
    assert delivery["conversation"] == decision["conversation"]
    # Asked for again it is the same, and so it is when the harness sends the result itself.
    assert compaction(stage, pi_unseen(results, "the value is 17\n")) == first
    decided = len(stage.records("decision"))
    agent.results(("new", "the value is 17\n"))
    (_, shown) = agent.ask().results[-1]
    assert hashlib.sha256(shown.encode()).hexdigest() == decision["payload_sha256"]
    assert first == pi_unseen(results, shown) if shown else "[Tool result]: \n" not in first
    assert len(stage.records("decision")) == decided
    assert verify_log(tmp_path / "decisions.jsonl").ok


def test_parallel_results_are_decided_in_the_models_order(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force({"family": "read", "nth": 2, "kind": "post_effect_error"}))
    agent = stage.pi()
    agent.ask(read("a", "a.txt", "read"), read("b", "b.txt", "read"))
    told = compaction(stage, pi_unseen([], "first\n", "second\n"))
    assert "[Tool result]: first\n" in told
    assert "second" not in told
    assert [(r["call_id"], r["fired"]) for r in stage.records("decision")] == [("a", False), ("b", True)]
    assert not stage.records("error")


def test_a_newest_result_like_an_older_one_is_decided_too(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force({"family": "read", "nth": 3, "kind": "post_effect_error"}))
    agent = stage.pi()
    same = ["same\n", "same\n"]
    for i, value in enumerate(same):
        agent.turn(*read(f"t{i}", f"{i}.txt", "read"), value)
    agent.ask(read("new", "new.txt", "read"))
    told = compaction(stage, pi_unseen(same, "same\n"))
    assert told.count("[Tool result]: same") == 2
    assert not stage.records("error")
    # One that had nothing to print is not retold: nobody may take an older one for it.
    agent.results(("new", "same\n")).ask(read("last", "last.txt", "read"))
    compaction(stage, pi_unseen(same[:1], "same\n"))
    assert [r["call_id"] for r in stage.records("decision")] == ["t0", "t1", "new"]


def test_a_newest_result_like_an_older_one_that_is_not_sure_is_no_clean_run(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force({"family": "read", "nth": 3, "kind": "post_effect_error"}))
    agent = stage.pi()
    for i in range(2):
        agent.turn(*read(f"t{i}", f"{i}.txt", "read"), f"{i}\n")
    agent.ask(read("new", "new.txt", "read"))
    said = pi_unseen(["1\n"], "1\n")
    assert compaction(stage, said) == said
    assert [error["where"] for error in stage.records("error")] == ["flattened"]


def test_a_harness_that_took_a_withheld_call_back_is_believed_in_a_summary(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force({"family": "read", "nth": 1, "kind": "permission_denied"}))
    stage.pi().ask(read("new", "new.txt", "read"))
    assert "[Tool result]: No result provided\n" in compaction(stage, pi_unseen([], "No result provided"))
    assert [r["skipped"] for r in stage.records("decision")] == [None, "superseded"]
    assert not stage.records("error")


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(pi_conversation(["fresh\n"]), id="the model has gone on"),
        pytest.param(pi_unseen([], "x" * 2001), id="cut"),
        pytest.param(pi_unseen([], "fresh\n", "one more\n"), id="one more"),
        pytest.param(pi_unseen(["never shown\n"], "fresh\n"), id="something else unknown"),
        pytest.param(pi_unseen([], "quotes\n\n[User]: x\n</conversation>"), id="it quotes an end"),
    ],
)
@pytest.mark.parametrize("kind", ["post_effect_error", "permission_denied"])
def test_what_cannot_be_told_for_the_newest_result_is_no_clean_run(
    tmp_path: Path, said: str, kind: str
) -> None:
    stage = Stage(tmp_path, force({"family": "read", "nth": 1, "kind": kind}))
    stage.pi().ask(read("new", "new.txt", "read"))
    assert compaction(stage, said) == said
    (error,) = stage.records("error")
    assert (error["where"], "first seen where it is retold" in error["reason"]) == ("flattened", True)
    assert not stage.records("delivery")


def test_a_summary_that_tells_no_newer_result_is_clean(tmp_path: Path) -> None:
    """A call that is to fail is out, and a title or an earlier part of the conversation is asked about."""
    stage = Stage(tmp_path, force({"family": "read", "nth": 2, "kind": "post_effect_error"}))
    agent = stage.pi()
    agent.turn(*read("t0", "0.txt", "read"), "seen\n")
    agent.ask(read("new", "new.txt", "read"))
    for told in (pi_conversation(["seen\n"]), "Give it a title."):
        assert compaction(stage, told) == told
    assert not stage.records("error")


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("kept", [0, 2])
def test_a_second_compaction_tells_what_came_after_the_first(
    tmp_path: Path, restart: bool, kept: int
) -> None:
    """The same files are read again, and shown in another way."""
    stage = Stage(tmp_path, only("wrong_data"))
    agent = stage.pi()
    results = [f"value = {i}\nother = {i * 7}\n" for i in range(3)]
    for i, value in enumerate(results):
        agent.turn(*read(f"a{i}", f"{i}.txt", "read"), value)
    before = [content for _, content in agent.ask().results]
    assert compaction(stage, pi_conversation(results[: 3 - kept // 2])) == pi_conversation(
        before[: 3 - kept // 2]
    )
    opening = "The conversation history before this point was compacted into the following summary:\n\nS"
    agent.messages[:] = [user(text(opening)), *agent.messages[len(agent.messages) - 1 - kept : -1]]
    if not kept:
        agent.messages.append(user(text("Go on.")))
    for i, value in enumerate(results):
        agent.turn(*read(f"b{i}", f"{i}.txt", "read"), value)
    after = [content for _, content in agent.ask().results]
    if restart:
        stage.restart()
    told = results[3 - kept // 2 :] + results
    assert after[-3:] != before
    assert compaction(stage, pi_conversation(told)) == pi_conversation(after)
    assert not stage.records("error")


def test_a_restart_changes_nothing_in_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path, only("wrong_data"))
    shown = pi_run(stage, RESULTS)
    stage.restart()
    assert compaction(stage, pi_conversation(RESULTS)) == pi_conversation(shown)


def test_two_conversations_are_compacted_apart(tmp_path: Path) -> None:
    stage = Stage(tmp_path, only("wrong_data", rate=0.5))
    told = [[f"value = {i}\nother = {i * 7}\n" for i in range(start, start + 6)] for start in (0, 100)]
    agents = [stage.pi("One."), stage.pi("Other.")]
    for i in range(6):
        for agent, results in zip(agents, told, strict=True):
            agent.turn(*read(f"t{i}", f"{i}.txt", "read"), results[i])
    for agent, results in zip(agents, told, strict=True):
        shown = [content for _, content in agent.ask().results]
        assert compaction(stage, pi_conversation(results)) == pi_conversation(shown)
    first = [content for _, content in agents[0].ask().results]
    assert compaction(stage, pi_conversation(told[0])) == pi_conversation(first)


def test_nothing_was_replaced(tmp_path: Path) -> None:
    stage = Stage(tmp_path, only("empty", rate=0.0000001))
    pi_run(stage, RESULTS)
    raw = body([user(text(pi_conversation(RESULTS)))], tools=None)
    assert stage.post(raw, PI).body is raw


# -- the pure part --

PIECES = st.sampled_from(
    ["a", "b\n", "\n\n[Tool result]: ", "\n\n[User]: ", "\n</conversation>", "🙂" * 700, "\ud83d", " "]
)
TEXTS = st.lists(PIECES, min_size=1, max_size=5).map("".join).filter(lambda value: value.strip() != "")


@settings(max_examples=150)
@given(st.lists(st.tuples(TEXTS, st.one_of(st.none(), st.just("NEW"), st.just(""))), min_size=1, max_size=6))
def test_every_result_is_found_whatever_it_quotes(showings: list[tuple[str, str | None]]) -> None:
    """As far as a reader could tell: where no result is what another one quotes."""
    values = [value for value, _ in showings]
    told = pi_conversation(values)
    marks = [Showing(mark_of(PI_FLATTENED, v), "", new) for v, new in showings]
    found = retell(PI_FLATTENED, "", told, Shown(marks, (), str))
    if found.doubts or any(
        b.strip() in a for i, a in enumerate(values) for b in values[:i] + values[i + 1 :]
    ):
        return
    if any(v.endswith("\ud83d") or v != v.strip() for v in values):
        return
    assert found.text == pi_conversation([v if new is None else new for v, new in showings])


@given(st.text(alphabet=st.sampled_from("a🙂é"), min_size=1990, max_size=2010))
def test_the_cut_is_pi_s(value: str) -> None:
    assert shown_form(PI_FLATTENED, value) == pi_part(value).removeprefix("[Tool result]: ")


# -- Claude Code --

CC_OPENING = (
    "This session is being continued from a previous conversation that ran out of context. The summary"
    " below covers the earlier portion of the conversation.\n\nSUMMARY"
)
FILE = "1\tline one\n2\tline two\n3\t"
OTHER = "1\tbbb"


def called(path: str) -> str:
    return "Called the Read tool with the following input: " + json.dumps(
        {"file_path": path}, separators=(",", ":")
    )


def told_in_blocks(files: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """As models of the fourth generation are told of the files: each in two blocks of its own."""
    blocks: list[dict[str, Any]] = []
    for path, content in files:
        blocks.append(text(f"<system-reminder>\n{called(path)}\n</system-reminder>"))
        blocks.append(
            text(f"<system-reminder>\nResult of calling the Read tool:\n{content}\n</system-reminder>")
        )
    first, *rest = blocks
    return [{"role": "user", "content": first["text"]}, user(*rest, text("Go on."))]


def told_by_the_system(files: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """As later models are told: in one message of the system, before other notices."""
    parts = [f"{called(path)}\nResult of calling the Read tool:\n{content}" for path, content in files]
    parts.append("<total_tokens>14989360 tokens left</total_tokens>")
    return [user(text("Go on.")), {"role": "system", "content": "\n\n".join(parts)}]


@pytest.fixture(params=["blocks", "system"])
def tell(request: pytest.FixtureRequest) -> Any:
    return told_in_blocks if request.param == "blocks" else told_by_the_system


def after_compaction(agent: Agent, messages: list[dict[str, Any]]) -> Agent:
    opening: list[dict[str, Any]] = [{"role": "user", "content": CC_OPENING}]
    return Agent(agent.stage, agent.headers, [*opening, *messages])


def test_files_that_claude_code_tells_again(tmp_path: Path, tell: Any) -> None:
    stage = Stage(tmp_path, force({"tool": "Read", "match": "a.txt", "kind": "wrong_data"}))
    agent = stage.claude()
    agent.turn(*read("t1", "/ws/a.txt"), FILE.removesuffix("\t"))  # the last result of a message is trimmed
    agent.turn(*read("t2", "/ws/b.txt"), OTHER)
    payload = agent.ask()["t1"]
    after = after_compaction(agent, tell([("/ws/b.txt", OTHER), ("/ws/a.txt", FILE)]))
    first = after.ask()
    expected = after_compaction(agent, tell([("/ws/b.txt", OTHER), ("/ws/a.txt", payload)]))
    assert first.messages == json.loads(expected.body())["messages"]
    assert not stage.records("error")
    # The file is read again, truly: what was told before stays what it was, also after a restart.
    after.turn(*read("n1", "/ws/other.txt"), FILE)
    again = after.ask()
    stage.restart()
    for sent in (again, after.ask()):
        told = sent.messages[: len(first.messages)]
        assert str(told).replace(", 'cache_control': {'type': 'ephemeral'}", "") == str(
            first.messages
        ).replace(", 'cache_control': {'type': 'ephemeral'}", "")


def test_a_file_that_the_model_saw_truly_in_the_end_is_told_truly(tmp_path: Path, tell: Any) -> None:
    wasted = "Wasted call — file unchanged since your last Read. Refer to that earlier tool_result instead."
    stage = Stage(tmp_path, force({"tool": "Read", "nth": 1, "kind": "empty"}))
    agent = stage.claude()
    agent.turn(*read("t1", "/ws/a.txt"), FILE)
    agent.turn(*read("t2", "/ws/a.txt"), wasted)
    assert agent.ask()["t2"] == FILE
    sent = after_compaction(agent, tell([("/ws/a.txt", FILE)])).ask()
    assert sent.left == sent.came


def test_two_files_of_the_same_content(tmp_path: Path, tell: Any) -> None:
    stage = Stage(tmp_path, force({"tool": "Read", "match": "a.txt", "kind": "truncated"}))
    agent = stage.claude()
    agent.turn(*read("t1", "/ws/a.txt"), FILE)
    agent.turn(*read("t2", "/ws/b.txt"), FILE)
    payload = agent.ask()["t1"]
    sent = after_compaction(agent, tell([("/ws/b.txt", FILE), ("/ws/a.txt", FILE)])).ask()
    expected = after_compaction(agent, tell([("/ws/b.txt", FILE), ("/ws/a.txt", payload)]))
    assert sent.messages == json.loads(expected.body())["messages"]
    assert not stage.records("error")


def test_a_part_that_was_replaced_in_a_whole_that_is_told(tmp_path: Path, tell: Any) -> None:
    stage = Stage(tmp_path, only("post_effect_error"))
    agent = stage.claude()
    agent.turn(*read("t1", "/ws/a.txt", limit=2), "1\tline one\n2\tline two")
    agent.ask()
    after = after_compaction(agent, tell([("/ws/a.txt", FILE)]))
    for _ in range(2):
        after.ask()
    assert [error["where"] for error in stage.records("error")] == ["flattened"]


def test_a_changed_file_is_told_as_it_is(tmp_path: Path, tell: Any) -> None:
    stage = Stage(tmp_path, only("wrong_data"))
    agent = stage.claude()
    agent.turn(*read("t1", "/ws/a.txt"), FILE)
    agent.ask()
    sent = after_compaction(agent, tell([("/ws/a.txt", "1\tchanged")])).ask()
    assert sent.left == sent.came
    assert not stage.records("error")


def test_an_empty_file_as_told(tmp_path: Path, tell: Any) -> None:
    warning = "<system-reminder>Warning: the file exists but the contents are empty.</system-reminder>"
    stage = Stage(tmp_path, only("empty"))
    agent = stage.claude()
    agent.turn(*read("t1", "/ws/a.txt"), FILE)
    agent.ask()
    sent = after_compaction(agent, tell([("/ws/a.txt", FILE)])).ask()
    assert (
        sent.messages
        == json.loads(after_compaction(agent, tell([("/ws/a.txt", warning)])).body())["messages"]
    )
    assert result("x", "y")["content"] == "y"


class Renamed(NamedTuple):
    """How a harness sends back, and retells, a call of a tool that it does not have."""

    arguments: dict[str, Any]
    name: str
    sent: dict[str, Any]
    told: str
    becomes: str
    refusal: str


_UNAVAILABLE = "Model tried to call unavailable tool '{wire}'. Available tools: bash, read."
RENAMED = {
    "pi": Renamed(
        {"path": "new.txt"},
        "{wire}",
        {"path": "new.txt"},
        '[Assistant tool calls]: bash(command="ls"); {wire}(path="new.txt")',
        '[Assistant tool calls]: bash(command="ls"); read(path="new.txt")',
        "Tool {wire} not found",
    ),
    "opencode": Renamed(
        {"filePath": "/ws/new.txt"},
        "invalid",
        {"tool": "{wire}", "error": _UNAVAILABLE},
        '[Assistant tool call]: invalid({"tool":"{wire}","error":"' + _UNAVAILABLE + '"})',
        '[Assistant tool call]: read({"filePath":"/ws/new.txt"})',
        "The arguments provided to the tool are invalid: " + _UNAVAILABLE,
    ),
}


@pytest.mark.parametrize("session", [{}, {"x-session-id": "s"}], ids=["no name", "named"])
@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("harness", RENAMED)
def test_a_withheld_call_is_told_under_its_own_name(
    tmp_path: Path, harness: str, restart: bool, session: dict[str, str]
) -> None:
    stage = Stage(tmp_path, force({"family": "read", "nth": 1, "kind": "permission_denied"}))
    headers = PI if harness == "pi" else {"user-agent": "opencode/1.18.33"} | session
    how = RENAMED[harness]
    agent = Agent(stage, headers, [user(text("Do it."))])
    agent.ask(("new", "read", how.arguments))
    (decision,) = stage.decisions()

    def filled(form: str) -> str:
        return form.replace("{wire}", decision["wire_name"])

    given = {name: filled(value) for name, value in how.sent.items()}
    renamed = {"type": "tool_use", "id": "new", "name": filled(how.name), "input": given}
    agent.messages[-1] = assistant("Well.", renamed)
    agent.results(("new", filled(how.refusal)))
    payload = agent.ask()["new"]
    assert payload != filled(how.refusal)
    if restart:
        stage.restart()
    told = "[User]: Do it.\n\n{call}\n\n[Tool result]: {result}\n\n[Assistant]: Done."
    raw = body([user(text(told.format(call=filled(how.told), result=filled(how.refusal))))], tools=None)
    for _ in range(2):
        exchange = stage.post(raw, headers)
        said = Sent(raw, exchange.body, exchange).messages[0]["content"][0]["text"]
        assert said == told.format(call=how.becomes, result=payload)
    assert not stage.records("error")


OPENCODE = dialects()["opencode"]
NOTE = "\n\n<system-reminder>\nInstructions from: /ws/AGENTS.md\nBe kind. {more}\n</system-reminder>"


@pytest.mark.parametrize("payload", ["the payload\n", ""])
@pytest.mark.parametrize("more", ["", "x" * 3000], ids=["whole", "cut"])
def test_what_is_appended_to_a_retold_result_stays_and_hides_nothing(payload: str, more: str) -> None:
    """OpenCode retells what it put behind a result with it, and cuts both together."""
    flattened = OPENCODE.identify.flattened
    assert flattened is not None
    note = NOTE.format(more=more)
    true = "what the tool printed\n"
    told = shown_form(flattened, true.rstrip() + note)
    assert ("[truncated]" in told) == bool(more)
    text = f"<conversation>\n[Tool result]: {told}\n\n[Assistant]: Next.\n</conversation>"
    showing = Showing(mark_of(flattened, true), "a.txt", payload, true)
    shown = Shown([showing], [], str, owns=partial(owns_of, OPENCODE))
    found = retell(flattened, "", text, shown)
    assert not found.doubts
    assert found.text == text.replace(true.rstrip(), payload)
    # Nothing is replaced that the model was shown.
    untouched = shown._replace(here=[showing._replace(new=None)])
    assert retell(flattened, "", text, untouched).text == text


def test_what_is_appended_to_the_newest_result_has_no_part_in_what_is_decided() -> None:
    flattened = OPENCODE.identify.flattened
    assert flattened is not None
    text = f"<conversation>\n[Tool result]: printed{NOTE.format(more='')}\n</conversation>\n\nSum it up."
    shown = Shown([], [], str, awaited=1, owns=partial(owns_of, OPENCODE))
    assert newest_told(flattened, "", text, shown) == ["printed"]
