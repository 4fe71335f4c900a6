"""The journal: durable rows, declared checkpoints only, second rows kept and told."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ledger.decisions import LedgerError
from ledger.journal import CHECKPOINTS, CheckpointRow, Journal, JournaledCall, UndeclaredCheckpoint
from ledger.reading_journal import read_journal


def row(
    checkpoint: str = "patch_applied", attempt: int = 1, digest: str = "d1", run: str = "r1"
) -> CheckpointRow:
    return CheckpointRow(run, "t1", checkpoint, attempt, digest, 12.5, "2026-01-01T00:00:00.000000Z")


def call(position: int, *, changed: bool = False, attempt: int = 1) -> JournaledCall:
    return JournaledCall(
        "r1", attempt, "c0", position, f"id{position}", "edit", "edit", f"digest{position}",
        changed_workspace=changed, failed=False, tokens=100 * position, wall_ms=1.5, ts="2026-01-01T00:00Z",
    )  # fmt: skip


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    made = Journal(tmp_path / "out" / "journal.db")
    made.declare("t1", CHECKPOINTS)
    return made


def test_rows_come_back_as_they_were_written(journal: Journal) -> None:
    rows = [row("context_loaded"), row("patch_applied", digest="d2"), row("context_loaded", attempt=2)]
    journal.write(rows[:1], [call(0), call(1, changed=True)])
    journal.write(rows[1:], [call(0, attempt=2)])
    assert journal.reached("r1") == rows
    assert journal.reached("other") == []
    assert journal.calls("r1") == [call(0), call(1, changed=True), call(0, attempt=2)]
    assert journal.violations() == []


def test_it_is_private_and_durable(journal: Journal) -> None:
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    with sqlite3.connect(journal.path) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    # 2 is FULL: the write-ahead log is synced at every commit.
    assert journal._rows("PRAGMA synchronous", ()) == [(2,)]


def test_an_undeclared_checkpoint_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    journal.declare("t1", ["context_loaded", "tests_run"])
    with pytest.raises(UndeclaredCheckpoint, match="'patch_applied'; it declares context_loaded, tests_run"):
        journal.write([row("context_loaded"), row("patch_applied")], [call(0)])
    with pytest.raises(UndeclaredCheckpoint, match="declares none"):
        journal.write([row()._replace(task_id="t2")])
    assert journal.reached("r1") == []
    assert journal.calls("r1") == []


def test_a_second_row_is_kept_and_reported(journal: Journal) -> None:
    journal.write([row(digest="d1"), row("tests_run")])
    journal.write([row(digest="d2"), row(digest="d9", attempt=2)])
    (found,) = journal.violations()
    assert (found.run_id, found.checkpoint, found.attempt, found.digests) == (
        "r1",
        "patch_applied",
        1,
        ("d1", "d2"),
    )
    assert str(found) == "run r1, attempt 1: 2 rows for patch_applied"
    assert len(journal.reached("r1")) == 4


def test_a_workspace_digest_stands_for_its_attempt(journal: Journal) -> None:
    assert journal.left_behind("r1", 1) is None
    journal.stopped("r1", 1, "aa")
    journal.stopped("r1", 2, "bb")
    assert (journal.left_behind("r1", 1), journal.left_behind("r1", 2)) == ("aa", "bb")
    assert journal.left_behind("r2", 1) is None


def test_readers_of_scores_find_the_rows(journal: Journal) -> None:
    journal.write([row("context_loaded"), row(digest="d2", attempt=2)], [call(0)])
    journal.stopped("r1", 1, "aa")
    found = [
        (r.run_id, r.task_id, r.checkpoint, r.attempt, r.payload_digest, r.wall_ms)
        for r in read_journal(journal.path)
    ]
    assert found == [
        ("r1", "t1", "context_loaded", 1, "d1", 12.5),
        ("r1", "t1", "patch_applied", 2, "d2", 12.5),
    ]


def test_a_file_that_is_no_journal(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"not a database" * 100)
    with pytest.raises(LedgerError, match=r"journal\.db"):
        Journal(tmp_path / "journal.db")


def test_what_was_written_outlives_a_kill(tmp_path: Path) -> None:
    code = """
        import os, sys
        from pathlib import Path
        from ledger.journal import CheckpointRow, Journal
        journal = Journal(Path(sys.argv[1]))
        journal.declare("t1", ["tests_run"])
        for n in range(1000):
            journal.write([CheckpointRow("r1", "t1", "tests_run", n, "d", 0.0, "2026-01-01T00:00:00Z")])
            print(n, flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "journal.db")],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 20:
            break
    process.send_signal(signal.SIGKILL)
    said = [int(line), *(int(more) for more in process.stdout.read().split())]
    process.wait()
    written = [r.attempt for r in Journal(tmp_path / "journal.db").reached("r1")]
    assert written == list(range(len(written)))
    assert len(written) > said[-1], "a row was told to be there and is not"
