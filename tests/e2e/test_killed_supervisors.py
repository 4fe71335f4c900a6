"""SIGKILL of the supervisor at random moments: no finished run is lost or doubled, and no reader chokes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.demo_model import demo_policy
from harness.scripted_model import ThreadedScriptedModel
from ledger.attempts import lines_of
from ledger.journal import Journal
from ledger.runs import RunLine
from scoring.score import score_paths
from scoring.verify import verify_log

ROOT = Path(__file__).parents[2]
KILLS = 50
SEEDS = 14


def started(out: Path, manifest: Path, command: str = "run", *, jobs: int = 2) -> subprocess.Popen[bytes]:
    words = (
        ["run", "--manifest", str(manifest), "--jobs", str(jobs), "--out"] if command == "run" else [command]
    )
    return subprocess.Popen(
        [sys.executable, "-m", "proxy", *words, str(out)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=out.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def killed_at_some_moment(process: subprocess.Popen[bytes], after_s: float) -> bool:
    """Whether it was still at work then."""
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True
    return False


def checked(out: Path, known: dict[str, RunLine]) -> dict[str, RunLine]:
    """The run log reads well, nothing that was in it has gone or changed, nothing is in it twice."""
    path = out / "runlog.jsonl"
    if not path.exists():
        return {}
    raw = path.read_bytes()
    assert raw == b"" or raw.endswith(b"\n")
    for line in raw.splitlines():
        json.loads(line)
    lines = lines_of(path)
    found = {str(line.run_id): line for line in lines}
    assert len(found) == len(lines), "a run was written down twice"
    assert {run_id: found[run_id] for run_id in known} == known
    return found


@pytest.mark.timeout(1200)
def test_killed_fifty_times(tmp_path: Path) -> None:
    out, manifest = tmp_path / "out", tmp_path / "m.json"
    moments = random.Random(20260101)
    kills = 0
    known: dict[str, RunLine] = {}
    with ThreadedScriptedModel(demo_policy("careful")) as model:
        data = {"tasks": "shipped", "seed": list(range(SEEDS)), "profile": "moderate", "threshold": 1.0}
        # The sources may change while this goes on; that is not what is looked at here.
        data["runner_sha"] = "this checkout"
        manifest.write_text(json.dumps(data | {"endpoint": {"base_url": model.url}}))
        while kills < KILLS:
            process = started(out, manifest)
            if not killed_at_some_moment(process, moments.uniform(0.3, 5.0)):
                assert process.stderr is not None
                assert process.returncode == 0, process.stderr.read().decode()
                kills += 1  # everything was made: there is nothing left to kill
            else:
                kills += 1
            known = checked(out, known)
            if known:
                score_paths([out], threshold=1.0)
        process = started(out, manifest)
        _, said = process.communicate(timeout=600)
        assert process.returncode == 0, said.decode()
        known = checked(out, known)
        cut = [line for line in known.values() if line.ended == "restart_cut"]
        process = started(out, manifest, "resume")
        _, said = process.communicate(timeout=600)
        assert process.returncode in (0, 1), said.decode()
    assert len(known) == 5 * SEEDS
    assert {line.ended for line in known.values()} <= {"complete", "restart_cut"}
    assert cut, "no run was under way at any kill"
    resumed = lines_of(out / "runlog.resumed.jsonl")
    assert sorted(str(line.run_id) for line in resumed) == sorted(str(line.run_id) for line in cut)
    for line in resumed:
        assert line.ended == "complete" or "no durable checkpoint" in (line.reason or ""), line
    journal = Journal(out / "journal.db")
    assert journal.violations() == []
    journal.close()
    verified = verify_log(out / "decisions.jsonl")
    assert verified.ok, verified.differences
    score = score_paths([out], threshold=1.0)
    assert (score.counts.runs, score.counts.unknown) == (5 * SEEDS, 0)
    assert score.counts.invalid == 0, score.invalid_runs
    assert not left_over(out)


def left_over(out: Path) -> list[str]:
    """Processes that still have a home in the folder, a moment later."""
    for _ in range(100):
        found = [str(entry.parent) for entry in Path("/proc").glob("[0-9]*/environ") if _is_of(entry, out)]
        if not found:
            return []
        time.sleep(0.1)
    return found


def _is_of(environ: Path, out: Path) -> bool:
    try:
        return f"HOME={out}/".encode() in environ.read_bytes()
    except OSError:
        return False
