"""Ledgers as they are found on disk: whole, torn, foreign, empty, contradictory."""

from __future__ import annotations

import os
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.problems import (
    BadJournal,
    BadManifest,
    BadRunLine,
    BadVerdicts,
    Damaged,
    EmptyLog,
    NoStart,
    Problem,
    RunIdClash,
    StartMismatch,
    UnusablePath,
)
from ledger.reading import read_blocks, read_decisions, read_resumed, read_runlogs
from ledger.reading_folder import find_folders
from ledger.reading_journal import JournalRow, read_journal
from ledger.reading_stated import Verdict, read_manifest, read_verdicts
from ledger.runs import RunLine, append_run
from tests.scoring.logs import (
    decision,
    end,
    line,
    run,
    start,
    write_decisions,
    write_journal,
    write_resumed,
    write_runs,
)


def read(path: Path) -> tuple[list[Any], list[Problem]]:
    problems: list[Problem] = []
    return list(read_decisions(path, problems)), problems


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    written = [start(seed=2**64 - 1), decision(), end(passed=False, ended="complete")]
    assert read(write_decisions(tmp_path, *written)) == (written, [])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_log_cut_anywhere_gives_its_whole_lines(tmp_path: Path, data: st.DataObject) -> None:
    written = [start(), decision(call=1), decision(call=2)]
    whole = b"".join(map(line, written))
    cut = data.draw(st.integers(len(line(written[0])), len(whole)))
    records, problems = read(write_decisions(tmp_path, whole[:cut]))
    lines = whole[:cut].count(b"\n")
    # A line that lacks nothing but its newline is whole.
    lacks_newline = whole[cut : cut + 1] == b"\n"
    assert records == written[: lines + lacks_newline]
    torn = not lacks_newline and not whole[:cut].endswith(b"\n")
    assert [problem.line for problem in problems] == ([lines + 1] if torn else [])
    assert all("torn last line" in problem.what for problem in problems)


@pytest.mark.parametrize(
    ("foreign", "what"),
    [
        (b"hello\n", "not a JSON object"),
        (b"[1, 2]\n", "not a JSON object"),
        (b"\xff\xfe\n", "not a JSON object"),
        (b"\x00\x00\n", "not a JSON object"),
        (b"[" * 20_000 + b"\n", "not a JSON object"),
        (b'{"a": 1}\n', "foreign line"),
        (b'{"event": 7}\n', "foreign line"),
        (b'{"event": "party", "run_id": "r1"}\n', "unknown event 'party'"),
        (b'{"event": "end"}\n', "damaged end record"),
    ],
)
def test_what_is_no_record_is_said_with_its_line(tmp_path: Path, foreign: bytes, what: str) -> None:
    records, problems = read(write_decisions(tmp_path, start(), foreign, decision()))
    assert records == [start(), decision()]
    assert [(problem.line, what in problem.what) for problem in problems] == [(2, True)]
    assert str(problems[0]).startswith(f"{tmp_path / 'decisions.jsonl'}:2: ")


def test_empty_lines_are_nothing(tmp_path: Path) -> None:
    assert read(write_decisions(tmp_path, start(), b"\n\r\n", decision())) == ([start(), decision()], [])


def test_a_damaged_record_names_its_run(tmp_path: Path) -> None:
    path = write_decisions(tmp_path, start(), b'{"event": "decision", "run_id": "r1", "u": "high"}\n')
    records, problems = read(path)
    assert records[1] == Damaged("r1", "decision", 2)
    assert "damaged decision record" in problems[0].what


def test_a_record_of_a_newer_version_may_have_more_fields(tmp_path: Path) -> None:
    more = line(decision()).replace(b"{", b'{"colour":"red",', 1)
    assert read(write_decisions(tmp_path, start(), more)) == ([start(), decision()], [])


def test_empty_and_without_a_start(tmp_path: Path) -> None:
    for contents in (b"", b"\n", b"hello"):
        with pytest.raises(EmptyLog, match="no record"):
            read(write_decisions(tmp_path, contents))
    with pytest.raises(NoStart, match="no start"):
        read(write_decisions(tmp_path, decision()))


def test_a_second_start_is_a_restart_when_it_agrees(tmp_path: Path) -> None:
    again = start(pid=2, boot_id="c", attempt=2, started="later", harness_version="1.0.4")
    assert len(read(write_decisions(tmp_path, start(), again))[0]) == 2


@pytest.mark.parametrize("changes", [{"seed": 8}, {"profile_sha256": "q"}, {"task_id": "other"}])
def test_a_second_start_that_disagrees_is_an_error(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = write_decisions(tmp_path, start(), decision(), start(**changes))
    with pytest.raises(StartMismatch, match=f":3: run r1 was started with {next(iter(changes))}"):
        read(path)
    assert len(read(write_decisions(tmp_path, start(), start("r2", **changes)))[0]) == 2


def read_runs(*paths: Path) -> tuple[list[RunLine], list[Problem]]:
    problems: list[Problem] = []
    return [found.line for found in read_runlogs(paths, problems)], problems


def test_run_lines_need_five_fields(tmp_path: Path) -> None:
    bare = b'{"task_id":"t","seed":1,"repeat":0,"ended":"error","passed":null,"mood":"fine"}\n'
    lines, problems = read_runs(write_runs(tmp_path, bare))
    assert lines == [RunLine(task_id="t", seed=1, repeat=0, ended="error", passed=None)]
    assert problems == []


@pytest.mark.parametrize(
    "bad",
    [
        b'{"task_id":"t","seed":1,"repeat":0,"ended":"bored","passed":true}\n',
        b'{"task_id":"t","seed":1,"repeat":0,"ended":"complete"}\n',
        b'{"task_id":"t","seed":"1","repeat":0,"ended":"complete","passed":true}\n',
    ],
)
def test_a_run_that_cannot_be_read_is_an_error_not_a_smaller_n(tmp_path: Path, bad: bytes) -> None:
    with pytest.raises(BadRunLine, match=r"runlog\.jsonl:2: .*out of n"):
        read_runs(write_runs(tmp_path, run(), bad))


def test_torn_and_foreign_run_lines(tmp_path: Path) -> None:
    lines, problems = read_runs(write_runs(tmp_path, run(), b'{"a":1}\n', b"x\n", line(run("t2"))[:-9]))
    assert len(lines) == 1
    assert [problem.line for problem in problems] == [2, 3, 4]
    assert "torn last line" in problems[-1].what


def test_two_runs_with_one_id(tmp_path: Path) -> None:
    path = write_runs(tmp_path, run(run_id="r1"), run("t2", run_id="r1"))
    with pytest.raises(RunIdClash, match=r"run_id r1 already stands at .*runlog\.jsonl:1"):
        read_runs(path)


def test_a_line_written_twice_counts_once(tmp_path: Path) -> None:
    lines, problems = read_runs(write_runs(tmp_path, run(run_id="r1"), run(run_id="r1")))
    assert len(lines) == 1
    assert "counted once" in problems[0].what


def test_lines_without_an_id_all_count(tmp_path: Path) -> None:
    lines, problems = read_runs(write_runs(tmp_path, run(), run()))
    assert len(lines) == 2
    assert "a second run of task t1, seed 7, repeat 0: both count" in problems[0].what


def test_folders_and_files(tmp_path: Path) -> None:
    decisions, runlog = write_decisions(tmp_path, start()), write_runs(tmp_path, run())
    (tmp_path / "verdicts.json").write_text("{}")
    problems: list[Problem] = []
    (folder,) = find_folders([tmp_path], problems)
    assert (folder.decisions, folder.runlogs, folder.manifest) == ((decisions,), (runlog,), None)
    assert folder.verdicts == tmp_path / "verdicts.json"
    (alone,) = find_folders([decisions], problems)
    assert (alone.decisions, alone.runlogs) == ((decisions,), ())
    assert problems == []


def test_files_of_other_names_are_told_by_what_is_in_them(tmp_path: Path) -> None:
    log, runs = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    log.write_bytes(b"# mine\n" + line(start()))
    runs.write_bytes(line(run()))
    (folder,) = find_folders([log, runs], [])
    assert (folder.decisions, folder.runlogs) == ((log,), (runs,))


def test_paths_that_are_no_ledger(tmp_path: Path) -> None:
    other, empty = tmp_path / "notes.txt", tmp_path / "empty.jsonl"
    other.write_text("hello\n")
    empty.touch()
    resumed = tmp_path / "runlog.resumed.jsonl"
    resumed.write_bytes(line(run(attempt=2)))
    for path, error, says in (
        (tmp_path, UnusablePath, "holds neither"),
        (tmp_path / "gone", UnusablePath, "does not exist"),
        (other, UnusablePath, "neither a decisions.jsonl nor a runlog.jsonl"),
        (resumed, UnusablePath, "give its folder"),
        (empty, EmptyLog, "is empty"),
    ):
        with pytest.raises(error, match=says):
            find_folders([path], [])


def test_verdicts(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    path.write_text('{"a": true, "b": {"passed": false, "ended": "error"}, "c": {"passed": null}}')
    assert read_verdicts(path) == {"a": Verdict(True), "b": Verdict(False, "error"), "c": Verdict(None)}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[]", "run ids as its keys"),
        ('{"a": "yes"}', "run a: give true, false"),
        ('{"a": null}', "run a: give true, false"),
        ('{"a": {"passed": 1}}', "run a: Expected `bool"),
        ('{"a": {"ended": "complete"}}', "run a: .*missing required field `passed`"),
        ('{"a": {"passed": true, "ended": "bored"}}', "run a: Invalid enum value 'bored'"),
        ('{"a": {"pased": true}}', "run a: unknown key 'pased'"),
    ],
)
def test_verdicts_that_are_none(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "verdicts.json"
    path.write_text(text)
    with pytest.raises(BadVerdicts, match=says):
        read_verdicts(path)


def test_threshold_of_a_manifest(tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    for text, threshold in (("threshold: 0.25", 0.25), ("seed: 7", None), ("", None), ("threshold: 0", 0.0)):
        path.write_text(text)
        assert read_manifest(path).threshold == threshold
    for text in ("threshold: ten", "threshold: 10", "threshold: true", "a: [", "threshold: .nan"):
        path.write_text(text)
        with pytest.raises(BadManifest, match=r"manifest\.yaml"):
            read_manifest(path)


def test_a_manifest_as_the_contract_has_it(tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(
        "run_id: cell-3\ntaskset_sha: abc\nenv: {python: '3.13', container_digest: sha256:1, cpus: 2}\n"
        "endpoint: {model_id: m-1}\nfaults: {plan: off, repeats: 5}\nharness: pi\n"
        "tasks: [b, {id: a, prompt: x}]\nprofile: moderate\ntoken_budget: 50000\nthreshold: 0.1\n"
        "checkpoints: [tests_run, context_loaded]\n"
    )
    found = read_manifest(path)
    assert (found.container_digest, found.cpus, found.taskset_sha) == ("sha256:1", 2.0, "abc")
    assert (found.tasks, found.checkpoints) == (("a", "b"), ("context_loaded", "tests_run"))
    assert (found.plan, found.repeats, found.token_budget) == ("off", 5, 50000)
    assert (found.profile, found.harness, found.model_id) == ("moderate", "pi", "m-1")


def test_resumed_attempts(tmp_path: Path) -> None:
    path = write_resumed(tmp_path, *(run(run_id="r1", attempt=k) for k in (2, 3, 3)), run("t2"))
    problems: list[Problem] = []
    found = list(read_resumed([path], problems))
    assert [(one.number, one.line.attempt) for one in found] == [(1, 2), (2, 3), (4, 1)]
    assert "attempt 3 of r1 again" in str(problems)
    clash = write_resumed(tmp_path, run(run_id="r1", attempt=2), run(run_id="r1", attempt=2, passed=False))
    with pytest.raises(RunIdClash, match="attempt 2 of r1 already stands"):
        list(read_resumed([clash], []))


def test_a_journal_and_one_from_elsewhere(tmp_path: Path) -> None:
    ours = write_journal(tmp_path / "journal.db", ("r1", "t1", "patch_applied", 1, "d1"))
    (row,) = read_journal(ours)
    assert row == JournalRow(
        run_id="r1",
        task_id="t1",
        checkpoint="patch_applied",
        attempt=1,
        payload_digest="d1",
        wall_ms=100.0,
        ts="2026-01-01T00:00:00.000000Z",
    )
    theirs = tmp_path / "theirs.db"
    with closing(sqlite3.connect(theirs)) as database, database:
        database.execute("CREATE TABLE other (x)")
        database.execute(
            "CREATE TABLE steps (task_id TEXT, checkpoint TEXT, attempt INTEGER, payload_digest BLOB,"
            " PRIMARY KEY (task_id, checkpoint, attempt)) WITHOUT ROWID"
        )
        database.execute("INSERT INTO steps VALUES ('t1', 'tests_run', 1, x'00ff')")
    (row,) = read_journal(theirs)
    assert (row.run_id, row.task_id, row.payload_digest, row.ts) == (None, "t1", "00ff", None)
    (folder,) = find_folders([theirs], [])
    assert folder.journals == (theirs,)


def test_a_journal_that_a_killed_writer_left_open_is_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("CREATE TABLE journal (run_id TEXT, checkpoint TEXT, attempt INTEGER)")
    writer.execute("INSERT INTO journal VALUES ('r1', 'context_loaded', 1)")
    writer.commit()
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tmp_path.glob("journal.db*"):
        (copy / file.name).write_bytes(file.read_bytes())
    writer.close()
    assert [row.checkpoint for row in read_journal(copy / "journal.db")] == ["context_loaded"]


@pytest.mark.parametrize("contents", [b"hello", b"", b"SQLite format 3\x00 and no more"])
def test_what_is_no_journal(tmp_path: Path, contents: bytes) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(contents)
    with pytest.raises(BadJournal, match=r"journal\.db"):
        list(read_journal(path))


def test_a_journal_row_of_the_wrong_type(tmp_path: Path) -> None:
    path = write_journal(tmp_path / "journal.db", ("r1", "t1", "patch_applied", "first", "d1"))
    with pytest.raises(BadJournal, match="attempt"):
        list(read_journal(path))


def test_blocks_hold_what_the_lines_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.reading._BLOCK_BYTES", 3000)
    written = [start(), *(decision(call=k) for k in range(50)), b"x\n", b"\n", decision(call=50), end()]
    path = write_decisions(tmp_path, *written)
    problems: list[Problem] = []
    found = {
        number: record
        for block in read_blocks(path, problems)
        for number, record in enumerate(block.records, block.first)
    }
    assert sorted(found) == [*range(1, 52), 54, 55]
    assert [problem.line for problem in problems] == [52]
    assert [found[k].call_id for k in (2, 51, 54)] == ["toolu_0", "toolu_49", "toolu_50"]


def test_two_objects_in_a_line_are_no_two_lines(tmp_path: Path) -> None:
    doubled = line(decision()).strip() + line(decision(call=1)) + b"\n"
    problems: list[Problem] = []
    blocks = list(read_blocks(write_decisions(tmp_path, start(), doubled), problems))
    assert sum(len(block.records) for block in blocks) == 1
    assert problems[0].line == 2


def test_append_run_makes_a_private_file_of_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "runlog.jsonl"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda k: append_run(path, run(f"t{k}", run_id=f"r{k}")), range(50)))
    lines, problems = read_runs(path)
    assert sorted(found.run_id or "" for found in lines) == sorted(f"r{k}" for k in range(50))
    assert problems == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_append_run_closes_a_torn_line_first(tmp_path: Path) -> None:
    path = write_runs(tmp_path, run("t1"), line(run("t2"))[:20])
    append_run(path, run("t3"))
    lines, problems = read_runs(path)
    assert [found.task_id for found in lines] == ["t1", "t3"]
    assert [problem.line for problem in problems] == [2]


def test_append_run_does_not_hide_a_short_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr("ledger.runs.os.write", lambda fd, data: real(fd, data[:10]))
    with pytest.raises(OSError, match="in part only"):
        append_run(tmp_path / "runlog.jsonl", run())
