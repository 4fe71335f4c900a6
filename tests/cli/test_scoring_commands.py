"""score, compare, report and plan as a user meets them: exit codes, messages, and what is left on disk."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_cli import run as command
from tests.scoring.logs import (
    OFF,
    delivery,
    end,
    fault,
    line,
    request,
    run,
    start,
    write_decisions,
    write_journal,
    write_resumed,
    write_runs,
)

SOUND = (start(), request(), fault(), delivery(), end(ended="complete", passed=True))
ENVELOPE = "env: {{cpus: 2}}\ntoken_budget: {budget}\nfaults: {{plan: {plan}}}\nfrozen: {{at: now}}\n"


def _study(folder: Path, *, passes: int = 20, seeds: int = 4, profile: str = "moderate") -> Path:
    """A run folder of five tasks whose first ``passes`` runs pass."""
    folder.mkdir()
    cells = [(f"t{task}", seed) for task in range(5) for seed in range(seeds)]
    lines = [
        run(
            task, seed=seed, run_id=f"{task}.{seed}", passed=number < passes, profile=profile, tokens_used=100
        )
        for number, (task, seed) in enumerate(cells)
    ]
    write_runs(folder, *lines)
    records = []
    shape = {"profile": OFF, "profile_sha256": "o" * 64} if profile == "off" else {}
    for task, seed in cells:
        name = f"{task}.{seed}"
        records += [start(name, task_id=task, seed=seed, **shape), request(name)]
        if profile != "off":
            records += [fault(name), delivery(name)]
        records.append(end(name, "complete", None))
    write_decisions(folder, *records)
    return folder


def _manifest(folder: Path, *, budget: str = "null", plan: str = "off") -> None:
    (folder / "manifest.yaml").write_text(ENVELOPE.format(budget=budget, plan=plan))


def test_score_keeps_the_score_in_the_run_folder(tmp_path: Path) -> None:
    folder = _study(tmp_path / "a", passes=15)
    off = _study(tmp_path / "off", profile="off")
    done = command("score", "a", "off", "--json", home=tmp_path)
    assert done.returncode == 0, done.stderr
    kept = folder / "score.json"
    assert kept.read_text() == done.stdout
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(done.stdout)["effect"]["pass_rate"]["difference"] == -0.25
    assert not (off / "score.json").exists()
    again = command("score", "a", home=tmp_path)
    assert again.stdout.splitlines()[-2].startswith("runs: 20 | truncation_rate: 0.000 | strict: 0.750")
    assert json.loads(kept.read_text())["effect"] is None
    assert sorted(path.name for path in folder.iterdir()) == ["decisions.jsonl", "runlog.jsonl", "score.json"]


def test_a_score_of_several_folders_or_of_a_file_is_kept_nowhere(tmp_path: Path) -> None:
    _study(tmp_path / "a")
    lone = write_decisions(tmp_path, *SOUND)
    assert command("score", str(lone), home=tmp_path).returncode == 0
    assert command("score", str(lone), "a", home=tmp_path).returncode == 0
    assert list(tmp_path.rglob("score.json")) == []


def test_a_journal_alone_says_what_it_knows(tmp_path: Path) -> None:
    rows = [("r", "t", "patch_applied", 1, "d1"), ("r", "t", "patch_applied", 2, "d2")]
    write_journal(tmp_path / "journal.db", *rows)
    done = command("score", "journal.db", home=tmp_path)
    assert done.returncode == 3
    assert "no run" in done.stdout
    assert "double-apply tasks  1 of 1" in done.stdout


TOLERATED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a torn last line": (
        lambda at: write_decisions(at, *SOUND, b'{"event":"request","ts":"2026-01'),
        "torn last line",
    ),
    "a foreign line": (lambda at: write_decisions(at, SOUND[0], b"hello\n", *SOUND[1:]), ":2: not a JSON"),
    "a foreign object": (
        lambda at: write_decisions(at, SOUND[0], b'{"level":"info"}\n', *SOUND[1:]),
        "foreign line",
    ),
    "an unknown event": (
        lambda at: write_decisions(at, *SOUND, b'{"event":"weather","run_id":"r1","ts":"x"}\n'),
        "unknown event 'weather'",
    ),
    "a torn run line": (lambda at: write_runs(at, run("t1"), run("t2"), b'{"task_id":'), "torn last line"),
    "a run line twice": (
        lambda at: write_runs(at, run("t1", run_id="a"), run("t1", run_id="a"), run("t2", run_id="b")),
        "counted once",
    ),
}


@pytest.mark.parametrize("what", TOLERATED)
def test_what_is_tolerated_is_said(tmp_path: Path, what: str) -> None:
    make, says = TOLERATED[what]
    path = make(tmp_path)
    done = command("score", path.name, home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert says in " ".join(done.stdout.split())


def _clash(at: Path) -> Path:
    (at / "x").mkdir()
    write_decisions(at / "x", *SOUND)
    write_decisions(at, *SOUND)
    return at / "x"


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "an empty file": (lambda at: write_decisions(at), "has no record"),
    "an empty run folder": (lambda at: at, "neither decisions.jsonl nor runlog.jsonl"),
    "no start": (lambda at: write_decisions(at, *SOUND[1:]), "no start"),
    "mixed seeds": (lambda at: write_decisions(at, *SOUND, start(seed=8)), "started with seed 7, and here"),
    "mixed profiles": (
        lambda at: write_decisions(at, *SOUND, start(profile_sha256="q" * 64)),
        "started with profile_sha256",
    ),
    "two runs with one id": (
        lambda at: write_runs(at, run("t1", run_id="a"), run("t2", run_id="a")),
        "two runs cannot share an id",
    ),
    "two logs with one id": (_clash, "two runs cannot share an id"),
    "a run line that cannot be read": (
        lambda at: write_runs(at, line(run("t1")).replace(b'"complete"', b'"finished"')),
        "would take the run out of n",
    ),
    "resumed attempts alone": (lambda at: write_resumed(at, run("t1", attempt=2)), "no runs of their own"),
    "no such file": (lambda at: at / "nowhere", "does not exist"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_scored_is_one_clear_line(tmp_path: Path, what: str) -> None:
    make, says = REFUSED[what]
    path = make(tmp_path)
    paths = [str(path), str(tmp_path / "decisions.jsonl")] if what == "two logs with one id" else [str(path)]
    done = command("score", *paths, home=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert done.stderr.startswith("chaosproxy: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_run_without_a_start_beside_others_is_invalid(tmp_path: Path) -> None:
    write_decisions(tmp_path, *SOUND, request("r2"), end("r2", "complete", True))
    done = command("score", ".", home=tmp_path)
    assert done.returncode == 1
    assert "r2" in done.stdout
    assert "1 of 2 runs are invalid" in done.stdout


def test_compare_from_the_command_line(tmp_path: Path) -> None:
    _study(tmp_path / "a", passes=15)
    _study(tmp_path / "b", passes=19)
    done = command("compare", "a", "b", "-o", "c.html", home=tmp_path)
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-2:]
    assert last[0] == "tasks: 5 | pairs: 20 | A: 0.750 | B: 0.950 | difference: +0.200"
    assert last[1].startswith("primary: +0.200 [")
    assert "p (Holm)" in done.stdout
    assert "Exploratory" in done.stdout
    assert (tmp_path / "c.html").read_text().startswith("<!DOCTYPE html>")
    as_json = json.loads(command("compare", "a", "b", "--json", home=tmp_path).stdout)
    assert as_json["primary"]["difference"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        ({"budget": "1500"}, {}, "token budget: A 1500, B none"),
        ({"budget": "1500"}, {"budget": "3000"}, "token budget: A 1500, B 3000"),
    ],
)
def test_compare_refuses_arms_of_different_budgets(
    tmp_path: Path, a: dict[str, str], b: dict[str, str], says: str
) -> None:
    for name, envelope in (("a", a), ("b", b)):
        _manifest(_study(tmp_path / name), **envelope)
    done = command("compare", "a", "b", home=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr


def test_compare_refuses_other_profiles_and_other_seeds(tmp_path: Path) -> None:
    _study(tmp_path / "a")
    _study(tmp_path / "off", profile="off")
    refused = command("compare", "a", "off", home=tmp_path)
    assert refused.returncode == 2
    assert "profile" in refused.stderr
    (tmp_path / "c").mkdir()
    write_runs(tmp_path / "c", *(run(f"t{task}", seed=99, profile="moderate") for task in range(5)))
    unpaired = command("compare", "a", "c", home=tmp_path)
    assert unpaired.returncode == 2
    assert "same seeds" in unpaired.stderr


def test_compare_tells_of_another_kill_plan_and_of_a_failed_control(tmp_path: Path) -> None:
    _manifest(_study(tmp_path / "a", passes=15))
    b = _study(tmp_path / "b", passes=19)
    _manifest(b, plan="'patch_applied:hard_exit'")
    (b / "controls").mkdir()
    control = b / "controls" / "positive"
    control.mkdir()
    write_runs(control, run("t0", passed=False), run("t1"))
    done = command("compare", "a", "b", home=tmp_path)
    assert done.returncode == 1
    assert "kill plan: A off, B patch_applied:hard_exit" in done.stdout
    assert done.stdout.splitlines()[-1] == "primary: NOT INTERPRETABLE: a control failed"


def test_report_writes_a_page_with_the_exit_code_of_the_score(tmp_path: Path) -> None:
    _study(tmp_path / "a", passes=15)
    _study(tmp_path / "off", profile="off")
    done = command("report", "a", "off", "-o", "r.html", home=tmp_path)
    assert done.returncode == 0, done.stderr
    page = tmp_path / "r.html"
    assert done.stdout == "wrote r.html\n"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert "Effect of the faults" in page.read_text()
    write_decisions(tmp_path, start(), request(), end())
    assert command("report", "decisions.jsonl", "-o", "s.html", home=tmp_path).returncode == 3
    assert "smoke run" in (tmp_path / "s.html").read_text()
    refused = command("report", "nowhere", "-o", "n.html", home=tmp_path)
    assert refused.returncode == 2
    assert not (tmp_path / "n.html").exists()


def test_plan_tells_before_money_is_spent(tmp_path: Path) -> None:
    arguments = ("plan", "--profile", "moderate", "--calls", "20", "--tasks", "12", "--repeat", "5")
    done = command(*arguments, home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "faults per run   2.00" in done.stdout
    assert "smallest difference" in done.stdout
    as_json = json.loads(command(*arguments, "--json", home=tmp_path).stdout)
    assert as_json["faults_per_run"] == pytest.approx(2)
    assert command("plan", "--tasks", "0", home=tmp_path).returncode == 2
