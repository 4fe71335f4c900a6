"""Resumed attempts and journals: figures that can be counted by hand, and what a failed control does."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import scipy.stats

from ledger.journal import CheckpointRow, Journal, JournaledCall
from scoring.recovery import Recovery
from scoring.score import Score, save_score, score_json, score_paths
from scoring.text import score_lines, score_text
from tests.scoring.logs import (
    OFF,
    request,
    run,
    start,
    write_decisions,
    write_journal,
    write_resumed,
    write_runs,
)


def at(seconds: int) -> str:
    return f"2026-01-01T00:{seconds // 60:02d}:{seconds % 60:02d}.000000Z"


def recovery(folder: Path) -> Recovery:
    found = score_paths([folder]).recovery
    assert found is not None
    return found


def cut(task: str, **changes: Any) -> Any:
    return run(task, run_id=task, ended="restart_cut", passed=None, **changes)


def again(task: str, attempt: int = 2, **changes: Any) -> Any:
    return run(task, run_id=task, attempt=attempt, **changes)


def test_ratios_by_hand(tmp_path: Path) -> None:
    # Four runs, three cut: a passes after one resume, b after two, c never; five resumed attempts, two pass.
    write_runs(tmp_path, cut("a"), cut("b"), cut("c"), run("d", run_id="d"))
    write_resumed(
        tmp_path,
        again("a"),
        again("b", passed=False),
        again("b", 3),
        again("c", ended="quota_cut", passed=None),
        again("c", 3, ended="restart_cut", passed=True),
    )
    score = score_paths([tmp_path])
    found = score.recovery
    assert found is not None
    assert (found.recovery_ratio, found.rsr) == (2 / 5, 2 / 3)
    assert (found.resumed_passed, found.resumed_attempts) == (2, 5)
    assert (found.recovered, found.interrupted, found.attempts_total) == (2, 3, 9)
    assert (found.recovered_tasks, found.interrupted_tasks) == (2, 3)
    assert found.double_apply_tasks is None
    assert found.repeated_effects is None
    # Never folded in: the resumed passes change neither strict nor n.
    assert (score.runs, score.strict, score.truncation_rate) == (4, 1 / 4, 3 / 4)
    assert score.estimates["recovery_ratio"].value == 2 / 5
    assert score.estimates["rsr"].value == 2 / 3
    assert score.estimates["rsr"].wilson is not None


def test_zero_denominators_are_null(tmp_path: Path) -> None:
    write_runs(tmp_path, run("a", run_id="a"))
    assert score_paths([tmp_path]).recovery is None
    write_resumed(tmp_path)
    found = recovery(tmp_path)
    assert (found.recovery_ratio, found.rsr, found.attempts_total) == (None, None, 1)


def test_without_a_resume_pass_nothing_is_said_of_resuming(tmp_path: Path) -> None:
    write_runs(tmp_path, cut("a"))
    score = score_paths([tmp_path])
    assert score.recovery is None
    assert score.estimates["rsr"].value is None


def test_lines_without_ids_are_joined_by_cell(tmp_path: Path) -> None:
    write_runs(tmp_path, *(run("a", seed=s, ended="quota_cut", passed=None) for s in (1, 2)))
    write_resumed(tmp_path, run("a", seed=2))
    found = recovery(tmp_path)
    assert (found.rsr, found.recovered_tasks, found.interrupted_tasks) == (0.5, 0, 1)


def test_a_resumed_attempt_of_nobody_is_said_and_counted(tmp_path: Path) -> None:
    write_runs(tmp_path, cut("a"), run("b", run_id="b"))
    write_resumed(tmp_path, again("z"), again("b"))
    score = score_paths([tmp_path])
    assert score.recovery is not None
    assert (score.recovery.recovery_ratio, score.recovery.rsr) == (1.0, 0.0)
    said = "\n".join(map(str, score.problems))
    assert "runlog.resumed.jsonl:1: a resumed attempt of a run that has no first attempt" in said
    assert "runlog.resumed.jsonl:2: a resumed attempt of run b, which was not cut" in said


def test_double_applies_and_repeated_effects(tmp_path: Path) -> None:
    write_runs(tmp_path, *(cut(task) for task in "abcd"))
    write_journal(
        tmp_path / "journal.db",
        ("a", "a", "patch_applied", 1, "x"),
        ("a", "a", "patch_applied", 2, "y"),  # another patch: a double apply and a repeated effect
        ("b", "b", "patch_applied", 1, "x"),
        ("b", "b", "patch_applied", 2, "x"),  # the same patch again: a repeated effect alone
        ("c", "c", "context_loaded", 1, "x"),
        ("c", "c", "context_loaded", 2, "z"),  # no effect, but two payloads at one checkpoint
        ("d", "d", "patch_applied", 2, "x"),  # first reached in the second attempt
    )
    found = recovery(tmp_path)
    assert (found.double_apply_tasks, found.journaled_tasks) == (2, 4)
    assert found.double_apply_by_checkpoint == {"context_loaded": 1, "patch_applied": 1}
    assert (found.repeated_effects, found.repeated_effect_runs, found.identical_repeats) == (2, 2, 1)
    assert (found.violations, found.checkpoints) == (0, ("context_loaded", "patch_applied"))
    assert [double.digests for double in found.double_applies if double.run == "a"] == [("x", "y")]


def test_a_second_row_is_a_violation_that_is_told(tmp_path: Path) -> None:
    write_runs(tmp_path, cut("a"))
    write_journal(tmp_path / "journal.db", ("a", "a", "tests_run", 1, "x"), ("a", "a", "tests_run", 1, "y"))
    score = score_paths([tmp_path])
    assert score.recovery is not None
    assert (score.recovery.violations, score.recovery.double_apply_tasks) == (1, 1)
    assert "a second row for tests_run of a, attempt 1" in "\n".join(map(str, score.problems))


def test_a_journal_from_elsewhere_is_joined_by_task(tmp_path: Path) -> None:
    write_runs(tmp_path, run("a", ended="restart_cut", passed=None))
    with closing(sqlite3.connect(tmp_path / "journal.db")) as database, database:
        database.execute(
            "CREATE TABLE journal (task_id TEXT, checkpoint TEXT, attempt INTEGER, payload_digest TEXT,"
            " PRIMARY KEY (task_id, checkpoint, attempt))"
        )
        rows = [("a", "patch_applied", 1, "x"), ("a", "patch_applied", 2, "y")]
        database.executemany("INSERT INTO journal VALUES (?, ?, ?, ?)", rows)
    assert recovery(tmp_path).double_apply_tasks == 1


def test_a_journal_alone_is_shown_and_inconclusive(tmp_path: Path) -> None:
    path = write_journal(
        tmp_path / "journal.db", ("a", "t", "patch_applied", 1, "x"), ("a", "t", "patch_applied", 2, "y")
    )
    score = score_paths([path])
    assert (score.exit_code, score.runs, score.strict) == (3, 0, None)
    assert score.recovery is not None
    assert score.recovery.double_apply_tasks == 1
    assert "double-apply tasks" in score_text(score)
    assert score_lines(score)[0].startswith("runs: 0 | truncation_rate: null")


def test_runs_that_never_reached_the_kill_are_untreated(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(
        "faults: {plan: 'patch_applied:hard_exit'}\ncheckpoints: [context_loaded, patch_applied]\n"
    )
    write_runs(tmp_path, cut("a"), run("b", run_id="b"))
    write_journal(tmp_path / "journal.db", ("a", "a", "patch_applied", 1, "x"))
    found = recovery(tmp_path)
    assert (found.untreated, found.checkpoints) == (1, ("context_loaded", "patch_applied"))


def test_replay_cost_by_hand(tmp_path: Path) -> None:
    # a's second attempt starts at 100 s, is where the journal was at 130 s, after two requests of 135 tokens.
    # b's goes on from where it was: nothing is replayed.
    tasks = {"a": (100, 130), "b": (200, None)}
    write_runs(tmp_path, *(cut(task) for task in tasks))
    write_resumed(tmp_path, *(again(task, started=at(began)) for task, (began, _) in tasks.items()))
    log: list[Any] = []
    rows: list[Any] = []
    for task, (began, until) in tasks.items():
        log += [start(task, profile=OFF), request(task, ts=at(10))]
        log += [start(task, profile=OFF, attempt=2, ts=at(began))]
        log += [request(task, ts=at(began + after)) for after in (10, 20, 40)]
        rows += [(task, task, "patch_applied", 1, "x", at(50)), (task, task, "tests_run", 2, "y", at(290))]
        if until is not None:
            rows.append((task, task, "patch_applied", 2, "x", at(until)))
    write_decisions(tmp_path, *log)
    write_journal(tmp_path / "journal.db", *rows)
    found = recovery(tmp_path)
    assert found.replay_tokens is not None
    assert found.replay_wall_s is not None
    assert (found.replay_tokens.value, found.replay_tokens.per) == (135.0, 2)
    assert (found.replay_wall_s.value, found.replay_wall_s.total) == (15.0, 30.0)
    theirs = scipy.stats.ttest_1samp([30.0, 0.0], 0).confidence_interval(0.95)
    assert found.replay_wall_s.interval == pytest.approx((0.0, theirs.high))


def test_the_journal_of_a_supervised_run(tmp_path: Path) -> None:
    # Attempt 1 reads, edits and tests. Attempt 2 reads again, edits in the same way again, then elsewhere.
    write_runs(tmp_path, cut("a"))
    write_resumed(tmp_path, again("a", started=at(100)))
    calls = (
        (1, "read", "r", False, 100, 1000.0),
        (1, "edit", "e", True, 250, 2500.0),
        (2, "read", "r", False, 400, 1500.0),
        (2, "edit", "e", True, 900, 2000.0),
        (2, "edit", "f", True, 1000, 9000.0),
    )
    journal = Journal(tmp_path / "journal.db")
    journal.declare("a", ["patch_applied"])
    for attempt, digest in ((1, "e"), (2, "e")):
        row = CheckpointRow("a", "a", "patch_applied", attempt, digest, 2500.0, at(50))
        mine = [
            JournaledCall("a", k, "c", n, f"id{n}", tool, tool, d, changed, False, tokens, wall, at(50))
            for n, (k, tool, d, changed, tokens, wall) in enumerate(calls)
            if k == attempt
        ]
        journal.write([row], mine)
    journal.close()
    found = recovery(tmp_path)
    assert (found.double_apply_tasks, found.repeated_effects, found.identical_repeats) == (0, 1, 1)
    assert found.replay_tokens is not None
    assert found.replay_wall_s is not None
    # Reading cost 400 − 250 tokens and 1.5 s, the same edit 500 tokens and 0.5 s; the other edit was new.
    assert (found.replay_tokens.value, found.replay_wall_s.value) == (650.0, 2.0)


def test_replay_cost_is_null_where_nothing_is_known(tmp_path: Path) -> None:
    write_runs(tmp_path, cut("a"))
    write_resumed(tmp_path, again("a"))
    write_journal(tmp_path / "journal.db", ("a", "a", "tests_run", 1, "x"))
    assert recovery(tmp_path).replay_tokens is None


def controlled(folder: Path, positive: list[Any], negative: list[Any], **options: Any) -> Score:
    folders = {}
    for name, runs in (("treated", [run("t1"), run("t2")]), ("pos", positive), ("neg", negative)):
        folders[name] = folder / name
        folders[name].mkdir(exist_ok=True)
        write_runs(folders[name], *runs)
    given = {"positive": [folders["pos"]], "negative": [folders["neg"]]}
    return score_paths([folders["treated"]], **given, **options)


def test_controls_that_hold(tmp_path: Path) -> None:
    score = controlled(tmp_path, [run("t1")], [run("t1", ended="restart_cut", passed=False)])
    assert (score.interpretable, score.exit_code) == (True, 0)
    assert [control.value for control in score.controls] == [1.0, 0.0]
    assert "the positive control scored 1.000 (1/1), as it must" in score_text(score)


@pytest.mark.parametrize(
    ("positive", "negative", "failed"),
    [
        ([run("t1"), run("t2", passed=False)], [cut("t1")], "positive"),
        ([run("t1"), cut("t2")], [cut("t1")], "positive"),
        ([run("t1")], [run("t1")], "negative"),
    ],
)
def test_a_failed_control_takes_the_numbers_away(
    tmp_path: Path, positive: list[Any], negative: list[Any], failed: str
) -> None:
    score = controlled(tmp_path, positive, negative)
    assert (score.interpretable, score.exit_code) == (False, 1)
    assert f"the {failed} control scored" in score.findings[0].what
    assert score_lines(score)[1].endswith(f"NOT INTERPRETABLE: the {failed} control failed")
    assert b'"interpretable": false' in score_json(score)


def test_a_positive_control_is_judged_on_tasks_that_are_known_to_pass(tmp_path: Path) -> None:
    runs = [run("t1"), run("hard", passed=False)]
    assert controlled(tmp_path, runs, [cut("t1")], known_to_pass={"t1"}).interpretable
    assert not controlled(tmp_path, runs, [cut("t1")], known_to_pass={"other"}).interpretable


def test_repeats_are_labelled(tmp_path: Path) -> None:
    few = score_paths([write_runs(tmp_path, *(run(repeat=k, passed=k > 0) for k in range(4)))]).repeats
    assert (few.fewest, few.sanity_check, few.disagreeing, few.smoke) == (4, True, 1, True)
    lines = [run(f"t{k % 2}", repeat=k) for k in range(10)]
    enough = score_paths([write_runs(tmp_path, *lines)]).repeats
    assert (enough.fewest, enough.sanity_check, enough.disagreeing, enough.smoke) == (5, False, 0, False)


def test_the_score_is_saved_into_its_folder(tmp_path: Path) -> None:
    score = score_paths([write_runs(tmp_path, run())])
    path = save_score(score, tmp_path)
    assert path.read_bytes() == score_json(score)
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["runlog.jsonl", "score.json"]
