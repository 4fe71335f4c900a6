"""memory.db: what went in comes out, all of it or nothing."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from ledger.decisions import LedgerError
from ledger.memory import CallRow, ConversationRow, Memory, Tip

TEXT = st.text(st.one_of(st.characters(), st.sampled_from("\x00\ud83d\udc7e")), max_size=12)
ROWS = st.builds(
    CallRow,
    position=st.just(0),
    call_id=st.text(max_size=5),
    call_digest=st.just("d" * 64),
    nth=st.integers(0, 3),
    tool=st.text(max_size=5),
    family=st.just("read"),
    occurrence=st.integers(0, 9),
    ordinal=st.integers(0, 9),
    depth=st.integers(0, 9),
    draw=st.binary(max_size=9),
    arguments=st.binary(max_size=9),
    target=TEXT,
    draw_us=st.floats(0, 1e6),
    answered=st.booleans(),
    skipped=st.sampled_from([None, "orphaned"]),
    payload=st.one_of(st.none(), TEXT),
    payload_error=st.sampled_from([None, True, False]),
    original=st.one_of(st.none(), TEXT),
    delivered=st.booleans(),
    mark=st.one_of(st.none(), st.binary(max_size=16)),
)


def row(position: int = 0, **more: object) -> CallRow:
    plain = CallRow(
        position, f"t{position}", "d", 0, "Read", "read", 0, position, 1, b"{}", b"{}", "a.txt", 1.0
    )
    return replace(plain, **more)  # type: ignore[arg-type]


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "memory.db")


def add(memory: Memory, run_id: str, conversation: str, *rows: CallRow) -> None:
    with memory.transaction():
        memory.add_calls(run_id, conversation, rows)


@settings(max_examples=50)
@given(st.lists(ROWS, max_size=4))
def test_calls_come_back_as_they_were(rows: list[CallRow]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        first = Memory(path)
        placed = [replace(item, position=i) for i, item in enumerate(rows)]
        add(first, "r", "c0", *reversed(placed))
        # Nothing was closed: a process that is killed closes nothing, either.
        found = Memory(path).calls("r", "c0")
        assert [asdict(item) for item in found] == [asdict(item) for item in placed]


def test_what_became_of_a_call(memory: Memory) -> None:
    add(memory, "r", "c0", row(0), row(1))
    changed = row(
        1, answered=True, skipped="dereferenced", payload="p\ud83d", payload_error=True, original="o",
        delivered=True, mark=b"m",
    )  # fmt: skip
    with memory.transaction():
        memory.update_calls("r", "c0", [changed])
    found = memory.calls("r", "c0")
    assert asdict(found[0]) == asdict(row(0))
    assert asdict(found[1]) == asdict(changed)


def test_a_call_at_a_taken_place_replaces_it(memory: Memory) -> None:
    add(memory, "r", "c0", row(0))
    add(memory, "r", "c0", row(0, call_id="other"))
    assert [item.call_id for item in memory.calls("r", "c0")] == ["other"]


def test_runs_and_conversations_are_apart(memory: Memory) -> None:
    add(memory, "r", "c0", row(0))
    add(memory, "r", "c1", row(0, call_id="x"))
    add(memory, "s", "c0", row(0, call_id="y"))
    assert [item.call_id for item in memory.calls("r", "c0")] == ["t0"]
    assert memory.call_by_id("r", "x") == "c1"
    assert memory.call_by_id("r", "y") is None
    assert not memory.has_replaced("r")
    with memory.transaction():
        memory.update_calls("s", "c0", [row(0, payload="")])
    assert memory.has_replaced("s")
    assert not memory.has_replaced("r")


def test_the_latest_conversation_with_an_id(memory: Memory) -> None:
    for i in (2, 11, 9):
        add(memory, "r", f"c{i}", row(0))
    assert memory.call_by_id("r", "t0") == "c11"
    with memory.transaction():
        memory.update_calls("r", "c9", [row(0, answered=True)])
    assert memory.call_by_id("r", "t0") == "c9"


def test_conversations_in_the_order_they_were_made(memory: Memory) -> None:
    with memory.transaction():
        for i in (0, 1, 2, 10, 9):
            memory.add_conversation("r", ConversationRow(f"c{i}", "main", f"h{i}", "/ws"))
    assert [item.conversation for item in memory.conversations("r")] == ["c0", "c1", "c2", "c9", "c10"]
    assert memory.conversations("r")[0] == ConversationRow("c0", "main", "h0", "/ws")
    assert memory.conversations("s") == []


def test_tips(memory: Memory) -> None:
    with memory.transaction():
        memory.add_tip("r", b"one", Tip("c0", 1, 0, 0))
        memory.add_tip("r", b"two", Tip("c0", 3, 1, 0))
        memory.add_tip("r", b"three", Tip("c1", 3, 1, 1))
    assert memory.deepest_tip("r", [b"one"]) == Tip("c0", 1, 0, 0)
    long = [b"one", b"x", b"two", *(b"%d" % i for i in range(500))]
    assert memory.deepest_tip("r", long) == Tip("c0", 3, 1, 0)
    assert memory.deepest_tip("r", [b"none"]) is None
    assert memory.deepest_tip("r", []) is None
    assert memory.deepest_tip("s", [b"one"]) is None
    assert memory.latest_tip("r", "c0") == b"two"
    assert memory.latest_tip("r", "c9") == b""
    assert memory.newest_tip("r") == Tip("c1", 3, 1, 1)
    with memory.transaction():
        memory.add_tip("r", b"one", Tip("c0", 1, 0, 0))
    assert memory.newest_tip("r") == Tip("c0", 1, 0, 0)
    assert memory.newest_tip("s") is None


def test_the_beginning_of_a_history_stays_what_it_is_known_as(memory: Memory) -> None:
    with memory.transaction():
        memory.add_tip("r", b"one", Tip("c0", 1, 0, 0))
        memory.add_beginning("r", b"one", Tip("c1", 1, 4, 2))
        memory.add_beginning("r", b"two", Tip("c1", 3, 4, 2))
    assert memory.deepest_tip("r", [b"one"]) == Tip("c0", 1, 0, 0)
    assert memory.deepest_tip("r", [b"one", b"x", b"two"]) == Tip("c1", 3, 4, 2)


def test_texts(memory: Memory) -> None:
    with memory.transaction():
        memory.add_text("r", "c0", b"d", "new \ud83d")
    assert memory.text("r", "c0", b"d") == "new \ud83d"
    assert memory.text("r", "", b"d") is None


def test_all_or_nothing(memory: Memory) -> None:
    def interrupted() -> None:
        with memory.transaction():
            memory.add_calls("r", "c0", [row(0)])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert memory.calls("r", "c0") == []
    add(memory, "r", "c0", row(0))
    assert len(memory.calls("r", "c0")) == 1


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    path.touch(mode=0o644)
    memory = Memory(path)
    add(memory, "r", "c0", row(0))
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["memory.db", "memory.db-shm", "memory.db-wal"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="cannot use the memory"):
        Memory(tmp_path / "file" / "memory.db")
    bad = tmp_path / "bad.db"
    bad.write_bytes(b"not a database, but long enough to look into" * 40)
    with pytest.raises(LedgerError, match="cannot use the memory"):
        Memory(bad)


def test_a_file_of_another_version(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with sqlite3.connect(path) as old:
        old.execute("CREATE TABLE calls (x)")
    with pytest.raises(LedgerError, match=r"another version.*--log"):
        Memory(path)


def test_what_cannot_be_committed_is_an_error(memory: Memory) -> None:
    other = sqlite3.connect(memory.path, isolation_level=None)
    memory._db.execute("PRAGMA busy_timeout = 10")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="cannot write the memory"):
        add(memory, "r", "c0", row(0))
    other.execute("ROLLBACK")
    add(memory, "r", "c0", row(0))
    memory.close()
    with pytest.raises(LedgerError, match="cannot write the memory"):
        add(memory, "r", "c0", row(1))
