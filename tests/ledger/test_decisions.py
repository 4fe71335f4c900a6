"""The decision log: whole lines or an error, never something in between."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ledger.decisions import DecisionLog, LedgerError, starts_of, timestamp
from ledger.records import AnyRecord, Error, Start

FULL = Path("/dev/full")


def error(reason: str = "because") -> Error:
    return Error(ts=timestamp(), run_id="r", where="here", reason=reason)


def start(**more: Any) -> Start:
    fields = {
        "ts": timestamp(), "run_id": "r", "version": "1", "seed": 2**64 - 1, "profile": {"name": "p"},
        "profile_sha256": "x", "identity": "content", "harness": None, "harness_version": None, "pid": 1,
        "boot_id": "b", "started": timestamp(), "task_id": "t", "repeat": 0, "attempt": 1,
    }  # fmt: skip
    return msgspec.convert(fields | more, Start)


def test_one_line_a_record_event_first(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "new" / "decisions.jsonl")
    log.write([start(), error()])
    log.write([])
    log.write([error("a\nb\u2028c\x00")])
    log.close()
    lines = log.path.read_bytes().splitlines()
    assert all(line.startswith(b'{"event":"') for line in lines)
    assert [msgspec.json.decode(line, type=AnyRecord).run_id for line in lines] == ["r"] * 3
    assert json.loads(lines[2])["reason"] == "a\nb\u2028c\x00"


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    path.touch(mode=0o644)
    old = os.umask(0)
    try:
        DecisionLog(path).close()
        DecisionLog(tmp_path / "other.jsonl").close()
    finally:
        os.umask(old)
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_appended_never_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    first = DecisionLog(path)
    first.write([start()])
    before = path.read_bytes()
    second = DecisionLog(path)
    second.write([error()])
    first.write([error()])
    assert path.read_bytes().startswith(before)
    assert len(path.read_bytes().splitlines()) == 3


@pytest.mark.parametrize("torn", [b'{"event":"sta', b'{"event":"error"}', b"\x00\xff"])
def test_a_torn_line_does_not_spoil_the_next(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(b'{"event":"x"}\n' + torn)
    log = DecisionLog(path)
    log.write([start()])
    lines = path.read_bytes().splitlines()
    assert lines[:2] == [b'{"event":"x"}', torn]
    assert [found.run_id for found in starts_of(path)] == ["r"]


def test_half_a_surrogate_pair_is_no_reason_to_lose_a_record(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "decisions.jsonl")
    log.write([error("a\ud83db")])
    assert json.loads(log.path.read_bytes())["reason"] == "a?b"
    assert msgspec.json.decode(log.path.read_bytes(), type=AnyRecord) is not None


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match=r"cannot write the log .*decisions\.jsonl"):
        DecisionLog(tmp_path / "file" / "decisions.jsonl")
    with pytest.raises(LedgerError, match="cannot write the log"):
        DecisionLog(tmp_path)


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_a_full_disk(tmp_path: Path) -> None:
    link = tmp_path / "decisions.jsonl"
    link.symlink_to(FULL)
    before = FULL.stat().st_mode
    log = DecisionLog(link)
    with pytest.raises(LedgerError, match="No space left"):
        log.write([error()])
    assert FULL.stat().st_mode == before


def test_a_write_that_takes_a_part_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = DecisionLog(tmp_path / "decisions.jsonl")
    true = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: true(fd, data[:5]))
    with pytest.raises(LedgerError, match="full"):
        log.write([error()])
    monkeypatch.undo()
    # There is room again: what is written now stands on its own.
    log.write([error("later")])
    assert [json.loads(line)["reason"] for line in log.path.read_bytes().splitlines()[1:]] == ["later"]


def test_one_process_serves_with_a_log_until_it_closes_it(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    first, second = DecisionLog(path), DecisionLog(path)
    first.claim()
    with pytest.raises(LedgerError, match="another chaosproxy serves with it"):
        second.claim()
    first.close()
    second.claim()


def test_time_stamps_are_rfc_3339_in_utc_and_go_forward() -> None:
    from datetime import UTC, datetime

    stamps = [timestamp() for _ in range(100)]
    assert stamps == sorted(stamps)
    found = datetime.fromisoformat(stamps[0])
    assert found.tzinfo == UTC
    assert stamps[0].endswith("Z")
