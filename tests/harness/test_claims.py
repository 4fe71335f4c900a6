"""What the reference agent claims in the end stands in its run line, and scores tell it from what is so."""

from __future__ import annotations

from pathlib import Path

import pytest

from scoring.score import score_paths
from tests.harness.supervised import READ, WORK, Bench, script

_FAULT = {
    "name": "one",
    "rate": 0,
    "force": [{"family": "read", "nth": 1, "kind": "empty"}],
}


@pytest.mark.parametrize(
    ("last", "claimed", "behaviour"),
    [
        ("The note is added, all is done.", "done", "claimed_success"),
        ("I could not fix it.", "gave_up", "gave_up"),
        ("Here is what I saw.", None, "undetermined"),
    ],
)
def test_the_last_words_of_a_run(tmp_path: Path, last: str, claimed: str | None, behaviour: str) -> None:
    bench = Bench(tmp_path / "out", script(READ, end=last), {"profile": _FAULT})
    bench.run()
    (line,) = bench.first
    assert (line.ended, line.passed, line.claimed) == ("complete", False, claimed)
    found = score_paths([tmp_path / "out"]).behaviour
    assert found is not None
    assert {word: n for word, n in found.total.counts.items() if n} == {behaviour: 1}
    for name in ("runlog.jsonl", "decisions.jsonl", "memory.db"):
        assert last.encode() not in (tmp_path / "out" / name).read_bytes()


def test_a_run_that_was_killed_has_claimed_nothing_and_its_resume_has(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "out", WORK, {"faults": {"plan": "patch_applied:hard_exit"}})
    bench.run()
    bench.resume()
    assert [line.claimed for line in bench.first] == [None]
    assert [line.claimed for line in bench.resumed] == ["done"]
