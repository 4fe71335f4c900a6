"""What is no step of the agent does not count: retries, cut answers, titles and compactions on real programs.

Where a call stands is known from the script alone, so that a shift is seen in one session.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from harness.received import Received
from harness.script import Branch, Misstep
from harness.turns import ToolCall, Turn, Usage
from scoring.verify import verify_log
from tests.e2e.stage import SPEECHES, Played, Speech, Stage, call_turns, forced, result_of

_SESSION = "0c9c1e9e-5b1d-4f8e-9d57-3f0d6f2f2a11"
_BUSY = Misstep(status=503, headers=(("retry-after", "0"),))
_CUT = Misstep(cut_after_bytes=400)
_WHOLE = Misstep()
# One answer is lost before it begins, a later one in its middle. Gemini CLI gives up on the second kind.
_BOTH = (*SPEECHES, "pi-chat", "pi-responses", "codex", "opencode", "qwen-code", "mini-swe-agent")
_MISSTEPS = {"gemini-cli": (_WHOLE, _BUSY)} | dict.fromkeys(_BOTH, (_WHOLE, _BUSY, _WHOLE, _CUT))
Staging = Callable[[str], Stage]


def _calls(scene: Stage) -> list[ToolCall]:
    """Some of them more than once, so that a call that is counted twice draws another fate."""
    scene.write({f"part{n}.txt": f"content of part {n}\nvalue = {n}\n" for n in range(3)})
    speech = scene.speech
    return [
        call
        for n in range(3)
        for call in (speech.reads(f"part{n}.txt"), speech.runs("wc -l part0.txt; echo counted"))
    ]


def _stand_where_the_script_says(played: Played, calls: Sequence[ToolCall]) -> None:
    """Each call was decided once, where it stands in the script."""
    asked = [r for r in played.of("decision") if r["skipped"] not in ("orphaned", "superseded")]
    times: Counter[str] = Counter()
    in_family: Counter[str] = Counter()
    expected = []
    for call, record in zip(calls, asked, strict=False):
        what = f"{call.tool} {dict(call.arguments)}"
        expected.append((call.tool, times[what], in_family[record["family"]]))
        times[what] += 1
        in_family[record["family"]] += 1
    assert [(r["tool"], r["occurrence"], r["ordinal"]) for r in asked[: len(calls)]] == expected
    assert len({r["conversation"] for r in asked}) == 1
    assert not played.of("error")
    assert verify_log(played.log).ok


def _rules(speech: Speech) -> list[dict[str, Any]]:
    """The second command, and the last read: they come after a retry each."""
    rules: list[dict[str, Any]] = [
        {"tool": speech.shell, "match": "counted", "nth": 2, "kind": "post_effect_error"}
    ]
    if speech.read:
        rules.append({"tool": speech.read, "nth": 3, "kind": "wrong_data"})
    return rules


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", _MISSTEPS)
def test_a_request_that_is_made_again_shifts_nothing(stage: Staging, name: str) -> None:
    scene = stage(name)
    calls = _calls(scene)
    missteps = _MISSTEPS[name]
    played = scene.play(call_turns(*calls), forced(*_rules(scene.speech)), missteps=missteps)
    assert played.outcome.exit_code == 0, played.outcome.stderr[-2000:]
    tries = len(calls) + 1 + sum(m is not _WHOLE for m in missteps)
    assert len(played.turns) >= tries
    _stand_where_the_script_says(played, calls)
    fired = [record for record in played.of("decision") if record["fired"]]
    assert [record["kind"] for record in fired] == [rule["kind"] for rule in _rules(scene.speech)]
    assert all(record["skipped"] is None for record in fired)
    for record in fired:
        deliveries = [r for r in played.of("delivery") if r["call_id"] == record["call_id"]]
        assert [r["first"] for r in deliveries].count(True) == 1
    if name == "opencode":
        # A title was asked for, and had no part in it.
        assert any(
            request.conversation.side == "no_tools" for request in played.received if request.conversation
        )


def test_a_compaction_shifts_nothing_and_is_told_the_payload(stage: Staging) -> None:
    """Claude Code sums its session up with all tools on offer, and goes on."""
    scene = stage("claude-code")
    calls = _calls(scene)
    profile = forced(*_rules(scene.speech))
    first = scene.play(call_turns(*calls[:4]), profile, session=_SESSION)
    summed = scene.play(call_turns(*calls), profile, resume=_SESSION, prompt="/compact")
    last = scene.play(call_turns(*calls), profile, resume=_SESSION, prompt="Go on.")
    assert last.outcome.exit_code == 0, last.outcome.stderr
    views = [request.conversation for request in summed.received]
    (compaction,) = [view for view in views if view is not None and view.side == "compaction"]
    assert len(compaction.results) == 4
    shown = result_of(first.turns[-1], 3).text.split("\n\n<system-reminder>")[0]
    assert compaction.results[3].text.startswith(shown)
    assert "Steps done" in "\n".join(last.turns[0].conversation.opening)  # type: ignore[union-attr]
    _stand_where_the_script_says(last, calls)
    assert [r["kind"] for r in last.of("decision") if r["fired"]] == ["post_effect_error", "wrong_data"]


def test_a_summary_made_of_text_tells_what_the_model_was_told(stage: Staging) -> None:
    """OpenCode sends its history as one text, a call that never ran under its own name and with its payload.
    The newest results are told there before the model has seen them: they are decided there.
    """
    scene = stage("opencode")
    scene.write({"part0.txt": "content of part 0\n", "part1.txt": "content of part 1\n"})
    speech = scene.speech
    newest = (speech.reads("part1.txt"), speech.runs("echo coun''ted"))
    turns = call_turns(speech.reads("part0.txt"), newest)
    # More than the model can take in: OpenCode sums up before it goes on.
    turns[-1] = replace(turns[-1], usage=Usage(input_tokens=195_000))
    rules = (
        {"tool": speech.read, "nth": 1, "kind": "permission_denied"},
        {"tool": speech.shell, "nth": 1, "kind": "post_effect_error"},
    )
    goes_on = Branch("What did we do so far?", tuple(call_turns(speech.runs("echo after"))))
    played = scene.play(turns, forced(*rules), branches=[goes_on])
    assert played.outcome.exit_code == 0, played.outcome.stderr[-2000:]
    (summary,) = _summaries(played.received)
    denied = result_of(played.turns[1], 0).text
    told = summary.body.decode()
    call = f"[Assistant tool call]: read({json.dumps({'filePath': 'part0.txt'}, separators=(',', ':'))})"
    assert json.dumps(f"{call}\n[Tool result]: {denied}\n")[1:-1] in told
    assert played.decisions_of("read")[0]["wire_name"] not in told
    assert "unavailable tool" not in told
    assert "content of part 1" in told
    assert "counted" not in told
    record, later = played.decisions_of(speech.shell)
    assert (record["kind"], record["skipped"], record["fired"]) == ("post_effect_error", None, True)
    assert (later["ordinal"], later["conversation"]) == (1, record["conversation"])
    (delivery,) = [r for r in played.of("delivery") if r["call_id"] == record["call_id"]]
    assert (delivery["first"], delivery["payload_sha256"]) == (True, record["payload_sha256"])
    shown = told.rpartition("[Tool result]: ")[2].partition("\\n</conversation>")[0]
    payload = json.loads(f'"{shown}"')
    assert hashlib.sha256(payload.encode()).hexdigest() == record["payload_sha256"], payload
    assert not played.of("error")
    assert verify_log(played.log).ok


def test_a_summary_tells_what_stands_behind_a_result_and_not_the_result(stage: Staging) -> None:
    """OpenCode puts what a directory says of its files behind the first one that it reads there."""
    scene = stage("opencode")
    for n in range(2):
        (scene.workspace / f"sub{n}").mkdir()
        scene.write({f"sub{n}/AGENTS.md": f"Rule {n}.\n", f"sub{n}/part.txt": f"value = {n}\n"})
    speech = scene.speech
    turns = call_turns(*(speech.reads(f"sub{n}/part.txt") for n in range(2)))
    turns[-1] = replace(turns[-1], usage=Usage(input_tokens=195_000))
    rule = {"tool": speech.read, "match": "part", "kind": "wrong_data"}
    goes_on = Branch("What did we do so far?", tuple(call_turns(speech.runs("echo after"))))
    played = scene.play(turns, forced(rule), branches=[goes_on])
    (summary,) = _summaries(played.received)
    text = json.loads(summary.body)["messages"][-1]["content"]
    told = text.partition("</conversation>")[0].split("[Tool result]: ")[1:]
    records = played.decisions_of(speech.read)
    assert [record["kind"] for record in records] == ["wrong_data"] * 2
    for n, (result, record) in enumerate(zip(told, records, strict=True)):
        own, _, appended = result.partition("\n\n<system-reminder>")
        assert f"Rule {n}." in appended
        assert f"value = {n}" not in own
        assert hashlib.sha256(own.encode()).hexdigest() == record["payload_sha256"]
    assert not played.of("error")


def test_a_summary_by_pi_tells_what_the_model_was_told(stage: Staging) -> None:
    """Pi sums up the older part of its history as one text, when an answer says that it has got too long."""
    scene = stage("pi")
    scene.write({"part0.txt": "value = 70\n", "part1.txt": "value = 71\n"})
    # The newest messages stay as they are, this much of them.
    scene.write({"long.txt": "".join(f"line {i} of a long file\n" for i in range(4000))})
    speech = scene.speech
    reads = [speech.reads(f"{name}.txt") for name in ("part0", "part1", "long", "long", "long")]
    turns = [*call_turns(*reads), Turn("All is read.", usage=Usage(input_tokens=195_000))]
    rules = (
        {"tool": speech.read, "match": "part0", "kind": "wrong_data"},
        {"tool": speech.read, "match": "part1", "kind": "permission_denied"},
    )
    first = scene.play(turns, forced(*rules), session=_SESSION)
    (summary,) = [r for r in first.received if r.conversation and r.conversation.side == "no_tools"]
    text = json.loads(summary.body)["messages"][-1]["content"][0]["text"]
    told = [part.split("\n\n[Assistant]")[0] for part in text.split("[Tool result]: ")[1:]]
    shown = [result_of(first.turns[-1], call).text for call in (0, 1)]
    assert told[:2] == shown
    assert "value = 70" not in text
    assert "value = 71" not in text
    assert "__permission_denied" not in text
    later = call_turns(*reads, speech.reads("part0.txt"))
    second = scene.play(later, forced(*rules), resume=_SESSION, prompt="Go on.")
    assert second.outcome.exit_code == 0, second.outcome.stderr
    again = second.decisions_of(speech.read)[-1]
    assert (again["occurrence"], again["ordinal"]) == (1, 5)
    assert len({record["conversation"] for record in second.of("decision")}) == 1
    assert not second.of("error")
    assert verify_log(second.log).ok


def _summaries(received: Sequence[Received]) -> list[Received]:
    return [request for request in received if b"<conversation>" in request.body]
