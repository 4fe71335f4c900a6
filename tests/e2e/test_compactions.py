"""Gemini CLI and Qwen Code sum their sessions up, when they are told to and by themselves: the model that
does it is told what it was told before, and the calls after it are decided where they stand in the session.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from harness.adapter import Adapter, Job, Program
from harness.launch import Launch
from harness.received import Received
from harness.turns import ToolCall, Turn, Usage
from scheduler.profile import Profile
from scoring.verify import verify_log
from tests.e2e.stage import Played, Speech, Stage, call_turns, forced

_SESSION = "0c9c1e9e-5b1d-4f8e-9d57-3f0d6f2f2a11"
_FILES = {f"part{n}.txt": f"content of part {n}\nvalue = {n}\n" for n in range(3)}
# What Qwen Code sums up it compares with its summary: a short history is not worth one.
_NUMBERS = "seq -s ' ' 1 500"
_LAST_NUMBERS = b"498 499 500"
Staging = Callable[[str], Stage]


@dataclass
class _WithSettings:
    """A harness whose settings file says more than the adapter has it say."""

    adapter: Adapter
    settings: Mapping[str, Any]

    def launch(self, program: Program, job: Job) -> Launch:
        launch = self.adapter.launch(program, job)
        ((file, text),) = launch.files
        return replace(launch, files=((file, json.dumps(json.loads(text) | self.settings)),))


def _staged(stage: Staging, name: str, **settings: Any) -> tuple[Stage, list[Turn]]:
    """Each of three files, and one command after each."""
    scene = stage(name)
    scene.adapter = _WithSettings(scene.adapter, settings)  # type: ignore[assignment]
    scene.write(_FILES)
    speech = scene.speech
    command = f"{_NUMBERS}; wc -l part0.txt; echo counted"
    calls = [call for file in _FILES for call in (speech.reads(file), speech.runs(command))]
    return scene, call_turns(*calls)


def _profile(speech: Speech) -> Profile:
    """The first and the last file, the command the first time, when it does not run, and the second."""
    read, shell = speech.read, speech.shell
    return forced(
        {"tool": read, "nth": 1, "kind": "wrong_data"},
        {"tool": shell, "nth": 1, "kind": "permission_denied"},
        {"tool": shell, "nth": 2, "kind": "post_effect_error"},
        {"tool": read, "nth": 3, "kind": "wrong_data"},
    )


def _side(request: Received) -> str | None:
    view = request.conversation
    return None if view is None else view.side


def _told(request: Received) -> dict[int, set[str]]:
    """What is told of each step of the script."""
    found: dict[int, set[str]] = defaultdict(set)
    view = request.conversation
    for result in view.results if view is not None else ():
        found[int(result.call_id.rpartition("_step")[2])].add(result.text)
    return found


def _compactions(received: Sequence[Received]) -> list[Received]:
    return [request for request in received if _side(request) == "compaction"]


def _stands_where_the_script_says(played: Played, received: Sequence[Received], turns: list[Turn]) -> None:
    """Each call was decided once, where it stands in the script, and told in one way ever after."""
    calls: list[ToolCall] = [call for turn in turns for call in turn.calls]
    times: Counter[str] = Counter()
    in_family: Counter[str] = Counter()
    expected = []
    decided = [record for record in played.of("decision") if record["skipped"] != "orphaned"]
    for call, record in zip(calls, decided, strict=True):
        what = f"{call.tool} {dict(call.arguments)}"
        expected.append((call.tool, times[what], in_family[record["family"]]))
        times[what] += 1
        in_family[record["family"]] += 1
    assert [(r["tool"], r["occurrence"], r["ordinal"]) for r in decided] == expected
    kinds = ["wrong_data", "permission_denied", None, "post_effect_error", "wrong_data", None]
    assert [(r["kind"], r["skipped"]) for r in decided] == [(kind, None) for kind in kinds]
    assert {r["conversation"] for r in played.records if r.get("conversation")} == {"c0"}
    assert not played.of("error")
    assert verify_log(played.log).ok

    told: dict[int, set[str]] = defaultdict(set)
    for request in received:
        for step, texts in _told(request).items():
            told[step] |= texts
    assert sorted(told) == list(range(len(calls)))
    for step, record in enumerate(decided):
        (text,) = told[step]
        if record["kind"] is not None:
            assert len(text.encode()) == record["payload_bytes"]
    # Neither as a result nor in any other way: the files are shown again, and calls are known by their names.
    for request in received:
        assert json.dumps(_FILES["part0.txt"])[1:-1].encode() not in request.plain_body
        assert b"__permission_denied" not in request.plain_body
    firsts = [record["call_id"] for record in played.of("delivery") if record["first"]]
    assert firsts == [record["call_id"] for record in decided if record["kind"] is not None]


@pytest.mark.parametrize(("has_tools", "is_taken"), [(True, True), (True, False), (False, True)])
def test_qwen_code_sums_up_what_the_model_has_not_seen_yet(
    stage: Staging, has_tools: bool, is_taken: bool
) -> None:
    """By itself, when the last answer has filled the model. The result of its call is first seen there. A
    summary that is longer than the history is not taken: Qwen Code goes on with what it has."""
    scene, turns = _staged(stage, "qwen-code", model={"generationConfig": {"enableCacheControl": has_tools}})
    if not is_taken:
        usual = scene.script
        scene.script = lambda *said: replace(usual(*said), side_text="long " * 20_000)  # type: ignore[method-assign]
    turns[3] = replace(turns[3], usage=Usage(900_000, 50))
    played = scene.play(turns, _profile(scene.speech))
    assert played.outcome.exit_code == 0, played.outcome.stderr[-2000:]
    (compaction,) = _compactions(played.received)
    place = played.received.index(compaction)
    assert sorted(_told(compaction)) == [0, 1, 2, 3]
    assert sorted(_told(played.received[place - 1])) == [0, 1, 2]
    assert all(_LAST_NUMBERS not in request.plain_body for request in played.received[: place + 1])
    assert compaction.conversation is not None
    assert bool(compaction.conversation.tools) == has_tools
    after = played.received[place + 1]
    assert sorted(_told(after)) == ([3] if is_taken else [0, 1, 2, 3])
    events = [r["event"] for r in played.records if str(r.get("call_id")).endswith("_step3")]
    assert events[:2] == ["decision", "delivery"]
    _stands_where_the_script_says(played, played.received, turns)


def test_qwen_code_is_told_to_sum_up_and_goes_on(stage: Staging) -> None:
    """Nothing of the history is left: what comes after it is known by the words behind the summary."""
    scene, turns = _staged(stage, "qwen-code")
    profile = _profile(scene.speech)
    first = scene.play(turns[:4], profile, session=_SESSION)
    summed = scene.play(turns, profile, resume=_SESSION, prompt="/compress")
    last = scene.play(turns, profile, resume=_SESSION, prompt="Go on.")
    for played in (first, summed, last):
        assert played.outcome.exit_code == 0, played.outcome.stderr[-2000:]
    (compaction,) = summed.received
    assert _side(compaction) == "compaction"
    assert _told(compaction) == _told(first.received[-1])
    assert not _told(last.received[0])
    received = [*first.received, *summed.received, *last.received]
    _stands_where_the_script_says(last, received, turns)


@pytest.mark.parametrize("when", ["at once", "in the middle"])
def test_gemini_cli_sums_up_and_goes_on(stage: Staging, when: str) -> None:
    """By itself, and asks whether the summary is whole: all of a session that it takes up again, or, where
    its work has filled the model, what stands before the newest prompt."""
    # A session of few words is enough, when a part of 0.0003 of what the model can take in is.
    settings = {"model": {"compressionThreshold": 0.0003}} if when == "at once" else {}
    scene, turns = _staged(stage, "gemini-cli", **settings)
    profile = _profile(scene.speech)
    turns = [replace(turn, usage=Usage(10, 50)) for turn in turns]
    first = scene.play(turns[:4], profile, session=_SESSION)
    if when == "in the middle":
        turns[4] = replace(turns[4], usage=Usage(600_000, 50))
    last = scene.play(turns, profile, resume=_SESSION, prompt="Go on.")
    for played in (first, last):
        assert played.outcome.exit_code == 0, played.outcome.stderr[-2000:]
    summary, check = _compactions(last.received)
    assert not _compactions(first.received)
    for request in (summary, check):
        assert _told(request) == _told(first.received[-1])
        assert request.conversation is not None
        assert not request.conversation.tools
        assert _LAST_NUMBERS not in request.plain_body
    place = last.received.index(check)
    assert sorted(_told(last.received[place + 1])) == ([] if when == "at once" else [4])
    assert last.received.index(summary) == (0 if when == "at once" else 1)
    _stands_where_the_script_says(last, [*first.received, *last.received], turns)
