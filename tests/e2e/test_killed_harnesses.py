"""SIGKILL of each harness, in a tool and while the model answers; then its own resume: all payloads go on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import pytest

from configs import dialect
from harness.received import Received
from harness.script import Misstep
from harness.scripted_model import ThreadedScriptedModel
from scheduler.profile import Profile
from scoring.verify import verify_log
from tests.e2e.relay import Relay
from tests.e2e.stage import Played, Stage, call_turns, forced, result_of

_SESSION = "0c9c1e9e-5b1d-4f8e-9d57-3f0d6f2f2a11"
_TRUE = "the true words"
_RESUMABLE = ["claude-code", "pi", "pi-chat", "pi-responses", "codex", "opencode", "gemini-cli", "qwen-code"]
Moment = Literal["tool", "answer"]
Staging = Callable[[str], Stage]


def _profile(stage: Stage) -> Profile:
    read, shell = stage.speech.tool("read"), stage.speech.shell
    return forced(
        {"tool": read, "match": "notes", "kind": "wrong_data"},
        {"tool": shell, "match": "true.txt", "kind": "post_effect_error"},
    )


def _played(stage: Stage, moment: Moment, *, forgets: bool = False) -> tuple[Played, Played, list[Received]]:
    """A session that is killed and taken up again, and what the harness sent in both.

    It is killed when it has stored every result that it has sent. ``forgets``: its file is then cut before
    the second one, as a kill right after the request leaves it.
    """
    stage.write({"notes.txt": "line one\nline two\n", "true.txt": f"{_TRUE}\n"})
    speech = stage.speech
    pause = "test -e started || { echo on > started; sleep 200; }" if moment == "tool" else "echo quick"
    calls = [speech.reads("notes.txt"), speech.runs("cat true.txt"), speech.runs(pause)]
    turns = call_turns(*calls, speech.runs("echo after"))
    missteps = [] if moment == "tool" else [Misstep(times=2), Misstep(delay_s=30)]

    def reached(model: ThreadedScriptedModel) -> bool:
        if moment == "tool":
            return (stage.workspace / "started").exists() and _stored(stage, _TRUE)
        return len(model.agent_requests) >= 3 and _stored(stage, _TRUE)

    with Relay() as relay:
        common: dict[str, Any] = {"base": relay.forward_to, "profile": _profile(stage)}
        first = stage.play(turns, **common, missteps=missteps, killed_when=reached, session=_SESSION)
        if forgets:
            _forget(stage, "_step1")
        second = stage.play(turns, **common, resume=_SESSION, prompt="Go on.")
        sent = [Received("POST", p.line.split()[1], p.headers, p.body, 0.0) for p in relay.passed]
    assert first.outcome.exit_code == -9
    assert second.outcome.exit_code == 0, second.outcome.stderr[-2000:]
    return first, second, [request for request in sent if request.is_agent]


def _stored(stage: Stage, text: str) -> bool:
    """Whether the harness has written this down, in whatever it keeps its sessions in."""
    # A file can go while one looks.
    with suppress(OSError):
        return any(text.encode() in path.read_bytes() for path in stage.home.rglob("*") if path.is_file())
    return False


def _forget(stage: Stage, call: str) -> None:
    """Cuts Claude Code's file of the session before the result of a call."""
    (path,) = stage.home.rglob(f"{_SESSION}.jsonl")
    lines = path.read_text("utf-8").splitlines(keepends=True)
    (cut, *_) = [n for n, line in enumerate(lines) if '"tool_result"' in line and f'{call}"' in line]
    path.write_text("".join(lines[:cut]), "utf-8")


def _shape(request: Received) -> list[tuple[list[str | None], list[str]]]:
    """Which calls and which results stand where."""
    view = request.conversation
    assert view is not None
    return [([c.call_id for c in turn.calls], [r.call_id for r in turn.results]) for turn in view.turns]


def _hash(stage: Stage, text: str) -> str:
    own, _ = dialect(stage.speech.name).split_appended(text)
    return hashlib.sha256(own.encode()).hexdigest()


def _last(played: Played, call: int) -> dict[str, Any]:
    """What the log says last of a call that the resumed session has."""
    view = played.turns[-1].conversation
    assert view is not None
    call_id = view.calls[call].call_id
    return [record for record in played.of("decision") if record["call_id"] == call_id][-1]


@pytest.mark.parametrize("moment", ["tool", "answer"])
@pytest.mark.parametrize("name", _RESUMABLE)
def test_a_killed_session_goes_on_with_the_same_payloads(stage: Staging, name: str, moment: Moment) -> None:
    scene = stage(name)
    first, second, sent = _played(scene, moment)
    assert not second.of("error")

    # The history is as the harness tells it, and whole: what it sends twice after a resume stays twice.
    got = first.turns + second.turns
    assert [_shape(request) for request in got] == [_shape(request) for request in sent]
    for request in second.turns:
        for calls, results in _shape(request):
            assert set(calls) == set(results)
            assert len(results) in (len(calls), 2 * len(calls) if name == "gemini-cli" else 0)

    payloads = {r["kind"]: r["payload_sha256"] for r in first.of("decision") if r["payload_sha256"]}
    assert set(payloads) == {"wrong_data", "post_effect_error"}
    for request in second.turns:
        assert b"line one\\nline two" not in request.body
        assert b"1: line one" not in request.body
        assert _TRUE.encode() not in request.body
        for call, kind in enumerate(("wrong_data", "post_effect_error")):
            if _last(second, call)["skipped"] == "superseded":
                assert dialect(scene.speech.name).is_superseding(result_of(request, call).text)
            else:
                assert _hash(scene, result_of(request, call).text) == payloads[kind]
    assert len({record["conversation"] for record in second.of("decision")}) == 1
    if moment == "tool":
        _is_told_of_the_dangling_call(first, second)
    # Two attempts are one run, and it can all be computed again.
    assert len(second.of("start")) == 2
    result = verify_log(second.log)
    assert result.ok, result.differences


def _is_told_of_the_dangling_call(first: Played, second: Played) -> None:
    """The harness was killed in its tool: it forgot the call, or it has put words of its own there."""
    (dangling,) = [record for record in first.of("decision") if record["skipped"] == "orphaned"]
    view = second.turns[-1].conversation
    assert view is not None
    told = [r["skipped"] for r in second.of("decision") if r["call_id"] == dangling["call_id"]]
    repaired = dangling["call_id"] in [call.call_id for call in view.calls]
    assert told == (["orphaned", "superseded"] if repaired else ["orphaned"])


def test_a_repair_of_what_the_model_has_seen(stage: Staging) -> None:
    """Claude Code stores a result after it has sent it: killed in between, it puts its own words there."""
    first, second, _ = _played(stage("claude-code"), "answer", forgets=True)
    assert {r["kind"] for r in first.of("decision")} == {"wrong_data", "post_effect_error"}
    record = _last(second, 1)
    assert record["skipped"] == "superseded"
    assert record["fired"]
    for request in second.turns:
        assert result_of(request, 1).text.startswith("[Tool call interrupted: ")
        assert len(request.conversation.results) == len(request.conversation.calls)  # type: ignore[union-attr]
    # It was shown once, and the log says that it is no more.
    shown = [r for r in second.of("delivery") if r["call_id"] == record["call_id"]]
    assert len(shown) <= 1
    assert verify_log(second.log).ok
