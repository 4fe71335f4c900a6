"""Whole sessions of real harnesses: repeated schedules, back-references, parallel calls, resumes, crashes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.script import Script
from harness.scripted_model import ThreadedScriptedModel
from harness.turns import ToolCall
from proxy.options import InjectorOptions
from scheduler.profile import parse_profile
from scoring.verify import verify_log
from tests.e2e.stage import SPEECHES, Played, Stage, call_turns, forced, read_log, result_of

_BOTH = pytest.mark.parametrize("harness", SPEECHES)
Staging = Callable[[str], Stage]


def _long_session(scene: Stage) -> list[ToolCall]:
    speech = scene.speech
    names = [f"part{n}.txt" for n in range(12)]
    scene.write({name: f"content of {name}\nvalue = {len(name)}\n" for name in names})
    return [
        *(speech.reads(name) for name in names),
        *(speech.runs(f"wc -l {name}; echo counted") for name in names),
    ]


def _faults(played: Played) -> dict[str, str | None]:
    """What was decided on each call, by what was called."""
    return {f"{r['tool']} {r['call_digest']} {r['occurrence']}": r["kind"] for r in played.of("decision")}


@_BOTH
def test_same_seed_same_faults_and_moderate_within_severe(stage: Staging, harness: str) -> None:
    scene = stage(harness)
    turns = call_turns(*_long_session(scene))
    first = scene.play(turns, "severe", seed=11, log="first")
    again = scene.play(turns, "severe", seed=11, log="again")
    other = scene.play(turns, "severe", seed=12, log="other")
    moderate = scene.play(turns, "moderate", seed=11, log="moderate")
    assert len(_faults(first)) == 24
    assert _faults(first) == _faults(again)
    assert _faults(first) != _faults(other)
    fired = {key: kind for key, kind in _faults(moderate).items() if kind is not None}
    assert fired.items() <= _faults(first).items()
    assert any(kind is not None for kind in _faults(first).values())
    for played in (first, again, other, moderate):
        result = verify_log(played.log)
        assert result.ok, result.differences
        assert result.decisions == 24


@_BOTH
def test_a_second_read_gets_the_true_content(stage: Staging, harness: str) -> None:
    """Claude Code answers it with a back-reference, which would make every passing fault a lasting one."""
    scene = stage(harness)
    scene.write({"notes.txt": "line one\nline two\n"})
    speech = scene.speech
    played = scene.play(
        call_turns(speech.reads("notes.txt"), speech.reads("notes.txt"), speech.runs("echo between")),
        forced({"tool": speech.read, "nth": 1, "kind": "empty"}),
    )
    for request in played.turns[2:]:
        assert "line two" not in result_of(request, 0).text
        assert "line one" in result_of(request, 1).text
        assert "line two" in result_of(request, 1).text
    second = played.decisions_of(speech.read)[1]
    assert second["skipped"] == ("dereferenced" if harness == "claude-code" else None)
    assert not second["fired"]


@_BOTH
def test_the_same_call_three_times(stage: Staging, harness: str) -> None:
    scene = stage(harness)
    command = scene.speech.runs("cat data.txt; echo end")
    scene.write({"data.txt": "alpha = 10\nbeta = 20\n"})
    weights = {family: {"post_effect_error": 1} for family in ("shell", "search", "list", "read")}

    def kinds(persistence: dict[str, float], seed: int, log: str) -> list[str | None]:
        profile = parse_profile(
            {"name": "half", "rate": 0.5, "weights": weights, "persistence": persistence}, "test"
        )
        played = scene.play(call_turns(command, command, command), profile, seed=seed, log=log)
        return [record["kind"] for record in played.decisions_of(scene.speech.shell)]

    lasting = {tuple(kinds({"permanent": 1, "transient": 0}, seed, f"p{seed}")) for seed in range(4)}
    assert lasting <= {(None,) * 3, ("post_effect_error",) * 3}
    passing = {tuple(kinds({"permanent": 0, "transient": 1}, seed, f"t{seed}")) for seed in range(4)}
    assert any(len(set(three)) > 1 for three in passing)


def test_parallel_results_in_completion_order(stage: Staging) -> None:
    """Claude Code sends results as the tools finish; which call fails does not depend on it."""
    outcomes = []
    scene = stage("claude-code")
    for log, (slow, fast) in {"a": (0.4, 0.0), "b": (0.0, 0.4)}.items():
        scene.write({"a.txt": "text of a\n", "b.txt": "text of b\n"})
        speech = scene.speech
        batch = (
            speech.runs(f"sleep {slow}; cat a.txt"),
            speech.runs(f"sleep {fast}; cat b.txt"),
            speech.reads("a.txt"),
        )
        played = scene.play(
            call_turns(batch, speech.runs("echo between")),
            forced({"tool": speech.shell, "nth": 1, "kind": "post_effect_error"}),
            log=log,
        )
        view = played.turns[1].conversation
        assert view is not None
        failed = [
            result.is_error for call in view.calls[:3] for result in [view.turns[0].result_of(call)] if result
        ]
        outcomes.append(failed)
        assert [r["ordinal"] for r in played.decisions_of(speech.shell)][:2] == [0, 1]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] is True


@_BOTH
@pytest.mark.parametrize("where", ["request", "response"])
def test_an_injector_that_crashes_is_no_clean_run(stage: Staging, harness: str, where: str) -> None:
    scene = stage(harness)
    scene.write({"notes.txt": "line one\n"})
    played = scene.play(
        call_turns(scene.speech.reads("notes.txt")),
        "only-empty",
        options=InjectorOptions(crash_at="request" if where == "request" else "response"),
    )
    assert played.outcome.exit_code == 0, "the harness was not left hanging"
    assert not played.outcome.timed_out
    assert played.of("error")
    assert "crash" in played.of("error")[0]["reason"]
    assert not played.of("delivery")


def _chaosproxy(log: Path, port: int, upstream: str, profile: Path) -> subprocess.Popen[bytes]:
    """The command itself, in a process that can be killed."""
    return subprocess.Popen(
        [
            sys.executable, "-m", "proxy", "--seed", "7", "--profile", str(profile), "--port", str(port),
            "--upstream", upstream, "--log", str(log),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _wait_for(port: int) -> None:
    for _ in range(400):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the proxy did not come up")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@_BOTH
def test_a_killed_proxy_goes_on_as_if_nothing_had_happened(stage: Staging, harness: str) -> None:
    """SIGKILL while a request is in flight; the harness retries against a new proxy on the same log."""
    scene = stage(harness)
    scene.write({"notes.txt": "line one\nline two\n"})
    profile = scene.folder / "p.yaml"
    profile.write_text(
        f"name: forced\nrate: 0\nforce:\n- {{tool: {scene.speech.read}, nth: 1, kind: wrong_data}}\n"
    )
    log = scene.folder / "log" / "decisions.jsonl"
    port = _free_port()
    turns = call_turns(
        scene.speech.reads("notes.txt"), scene.speech.runs("echo two"), scene.speech.runs("echo three")
    )
    with ThreadedScriptedModel(Script(tuple(turns), chunk_delay_s=0.02)) as model:
        victim = _chaosproxy(log, port, model.url, profile)
        _wait_for(port)
        successors: list[subprocess.Popen[bytes]] = []

        def kill_in_flight() -> None:
            while len(model.agent_requests) < 2:
                time.sleep(0.002)
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait()
            successors.append(_chaosproxy(log, port, model.url, profile))

        killer = threading.Thread(target=kill_in_flight)
        killer.start()
        try:
            outcome = scene.start(f"http://127.0.0.1:{port}")
            killer.join()
            received = list(model.agent_requests)
        finally:
            for process in successors:
                process.send_signal(signal.SIGINT)
                process.wait(timeout=20)
    assert outcome.exit_code == 0, outcome.stdout[-2000:]
    shown = [result_of(r, 0).text for r in received if r.conversation and r.conversation.calls]
    assert len(shown) >= 3
    assert len(set(shown)) == 1
    assert "line one\nline two" not in shown[0]
    records = read_log(log)
    assert sum(record["event"] == "start" for record in records) == 2
    decided = {r["payload_sha256"] for r in records if r["event"] == "decision"}
    assert {r["payload_sha256"] for r in records if r["event"] == "delivery"} <= decided
    assert verify_log(log).ok


@_BOTH
def test_a_resumed_session_carries_the_same_payloads(stage: Staging, harness: str) -> None:
    scene = stage(harness)
    scene.write({"notes.txt": "line one\nline two\n"})
    speech = scene.speech
    profile = forced({"tool": speech.read, "nth": 1, "kind": "post_effect_error"})
    session = "0c9c1e9e-5b1d-4f8e-9d57-3f0d6f2f2a11"
    turns = call_turns(speech.reads("notes.txt"))
    first = scene.play(turns, profile, session=session)
    second = scene.play(turns, profile, resume=session, prompt="Go on.")
    assert second.outcome.exit_code == 0, second.outcome.stderr
    before, after = result_of(first.turns[-1], 0), result_of(second.turns[-1], 0)
    assert (
        before.text.split("<system-reminder>")[0].strip() == after.text.split("<system-reminder>")[0].strip()
    )
    assert after.is_error
    assert b"line two" not in second.turns[-1].body
    assert sum(r["event"] == "start" for r in second.records) == 2
    assert verify_log(second.log).ok
