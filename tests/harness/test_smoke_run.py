"""`make smoke`: few runs of one harness, from trial to report, and what is said of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.adapter import HarnessError
from harness.smoke_run import SEEDS, TASKS, run_smoke
from harness.turns import Turn
from ledger.manifest import read_frozen


class Heard:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def step(self, done: int, of: int, what: str) -> None:
        self.lines.append(what)

    def say(self, line: str) -> None:
        self.lines.append(line)


def test_from_trial_to_report(tmp_path: Path) -> None:
    heard = Heard()
    folder = tmp_path / "smoke"
    assert run_smoke(folder, "reference", heard) == 0
    for profile in ("off", "moderate"):
        assert len((folder / profile / "runlog.jsonl").read_bytes().splitlines()) == len(TASKS) * len(SEEDS)
        assert read_frozen(folder / profile / "manifest.yaml").profile == profile
    assert b'"event":"delivery"' not in (folder / "off" / "decisions.jsonl").read_bytes()
    assert b'"event":"delivery"' in (folder / "moderate" / "decisions.jsonl").read_bytes()
    page = (folder / "report.html").read_text()
    assert "This is a smoke run." in page
    assert re.search(r"pass rate under off\s+1\.000", "\n".join(heard.lines)), "the effect is against off"
    assert "a smoke run" in heard.lines[-1]

    with pytest.raises(HarnessError, match="is not empty"):
        run_smoke(folder, "reference", heard)


def test_runs_that_fail_without_faults_fail_the_smoke_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.smoke_run.TASKS", ("tax",))
    monkeypatch.setattr("harness.smoke_run.SEEDS", (1,))
    monkeypatch.setattr("harness.smoke_run.demo_policy", lambda _manner: lambda _view: Turn("Done."))
    assert run_smoke(tmp_path / "smoke", "reference", Heard()) == 1
