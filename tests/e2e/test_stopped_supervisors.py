"""SIGINT and SIGTERM to the supervisor: what runs is cut, no other run begins, the same command goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness.scripted_model import ThreadedScriptedModel
from ledger.attempts import lines_of
from tests.e2e.test_killed_supervisors import left_over, started
from tests.harness.supervised import TASK, TEST, alive, append, script, shell

REPEATS = 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_supervisor_leaves_a_whole_ledger(tmp_path: Path, number: signal.Signals) -> None:
    out, manifest = tmp_path / "out", tmp_path / "m.json"
    # A command that no other process of this machine has.
    word = f"6{os.getpid()}.{number:d}"
    # It sleeps only once: what goes on after the stop gets the same script.
    slept = tmp_path / "slept"
    turns = [append("second"), shell(f"[ -e {slept} ] || {{ touch {slept}; sleep {word}; }}"), TEST]
    with ThreadedScriptedModel(script(*turns)) as model:
        data = {"tasks": [TASK], "runner_sha": "this checkout", "faults": {"plan": "off", "repeats": REPEATS}}
        manifest.write_text(json.dumps(data | {"endpoint": {"base_url": model.url}}))
        process = started(out, manifest, jobs=1)
        _wait_for(word, process)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 3, said.decode()
        assert f"stopped: {REPEATS - 1} runs were not made" in said.decode()
        (line,) = lines_of(out / "runlog.jsonl")
        assert (line.ended, line.reason) == ("restart_cut", "the supervisor was stopped")
        assert len(list((out / "work").iterdir())) == 1, "a run was begun after the stop"
        assert left_over(out) == []
        assert alive(word) == []
        for command in ("run", "resume"):
            process = started(out, manifest, command)
            _, said = process.communicate(timeout=60)
            assert process.returncode == 0, said.decode()
    ended = [line.ended for line in lines_of(out / "runlog.jsonl")]
    assert sorted(ended) == ["complete"] * (REPEATS - 1) + ["restart_cut"]
    (line,) = lines_of(out / "runlog.resumed.jsonl")
    assert (line.ended, line.passed) == ("complete", True)


def _wait_for(word: str, process: subprocess.Popen[bytes]) -> None:
    while not alive(word):
        assert process.poll() is None, process.communicate()[1].decode()
        time.sleep(0.05)
