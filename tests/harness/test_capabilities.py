"""Whose gaps supervised runs are drawn by: those of the manifest's capabilities too, through every resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.adapter import HarnessError
from harness.reference import Reference
from harness.supervisor import say_tested
from ledger.manifest import read_frozen
from scoring.score import score_paths
from scoring.verify import verify_log
from tests.harness.supervised import WORK, Bench, Said, agent

_ROOT = Path(__file__).parents[2]
_KILL = {"faults": {"plan": "patch_applied:hard_exit"}, "profile": "severe"}


def starts(out: Path) -> list[dict[str, Any]]:
    records = map(json.loads, (out / "decisions.jsonl").read_bytes().splitlines())
    return [record for record in records if record["event"] == "start"]


def test_what_another_harness_cannot_be_done_is_left_out_through_a_resume(tmp_path: Path) -> None:
    out = tmp_path / "out"
    bench = Bench(out, WORK, _KILL | {"capabilities": ["codex@0.171.0"]})
    bench.run()
    bench.resume()
    first, resumed = starts(out)
    assert (first["attempt"], resumed["attempt"]) == (1, 2)
    assert "not_found" in first["profile"]["gaps"]["@other"]
    assert first["profile"] == resumed["profile"]
    assert verify_log(out / "decisions.jsonl").ok


def test_a_capability_file_is_taken_in_whole(tmp_path: Path) -> None:
    shipped = (_ROOT / "configs" / "capabilities" / "codex@0.171.0.yaml").read_text("utf-8")
    file = tmp_path / "theirs.yaml"
    file.write_text(shipped, encoding="utf-8")
    out = tmp_path / "out"
    bench = Bench(out, WORK, _KILL | {"capabilities": ["theirs.yaml"]})
    bench.run()
    file.unlink()
    bench.resume()
    (kept,) = read_frozen(out / "manifest.yaml").capabilities or ()
    assert isinstance(kept, dict)
    assert kept["harness"] == "codex"
    assert len({json.dumps(start["profile"]) for start in starts(out)}) == 1


def test_a_command_is_known_by_its_first_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody says beforehand which harness a command is: the log is begun again when its agent is heard."""
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    out = tmp_path / "out"
    bench = Bench(out, WORK, {"profile": "severe"}, command=agent())
    bench.run()
    unknown, known = starts(out)
    assert unknown["harness_version"] is None
    assert known["harness_version"] is not None
    assert unknown["profile"]["gaps"] != known["profile"]["gaps"]
    assert verify_log(out / "decisions.jsonl").ok
    score = score_paths([out])
    assert [origin.harness_version for origin in score.origins] == [known["harness_version"]]
    assert not score.invalid_runs
    assert len(bench.first) == 1


def test_an_untested_version_is_said_at_the_start_or_refused() -> None:
    said = Said()
    say_tested(Reference(), said, tested_only=False)
    assert "is untested: it has no capability file" in said.lines[0]
    with pytest.raises(HarnessError, match="--tested-only refuses it"):
        say_tested(Reference(), said, tested_only=True)
