"""Every file that is written fits its schema; the schemas in docs/ are those of the structs."""

from __future__ import annotations

import base64
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

jsonschema = pytest.importorskip("jsonschema")

from ruamel.yaml import YAML  # noqa: E402

from configs import load_profile  # noqa: E402
from harness.demo_run import run_demo  # noqa: E402
from ledger.journal import CheckpointRow, Journal, JournaledCall  # noqa: E402
from ledger.reading_stated import Verdict  # noqa: E402
from scoring.compare import compare_json, compare_paths  # noqa: E402
from scoring.plan import plan  # noqa: E402
from scoring.plan_text import plan_json  # noqa: E402
from scoring.schemas import schemas  # noqa: E402
from scoring.score import score_json, score_paths  # noqa: E402
from tests.scoring.rich import MANIFEST, rich_folders  # noqa: E402

DOCS = Path(__file__).parents[2] / "docs" / "schemas"


class Quiet:
    def step(self, done: int, of: int, what: str) -> None:
        pass

    def say(self, line: str) -> None:
        pass


def fits(name: str, *instances: Any) -> None:
    validator = jsonschema.Draft202012Validator(json.loads((DOCS / f"{name}.schema.json").read_text()))
    assert instances
    for instance in instances:
        validator.validate(instance)


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def rows(path: Path, table: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        return [
            {
                name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
                for name, value in zip(row.keys(), row, strict=True)
            }
            for row in database.execute(f"SELECT * FROM {table}")
        ]


@pytest.mark.parametrize("name", sorted(schemas()))
def test_the_docs_are_in_step_with_the_structs(name: str) -> None:
    written = json.loads((DOCS / name).read_text())
    assert written == schemas()[name], "write them anew: python -m scoring.schemas docs/schemas"
    jsonschema.Draft202012Validator.check_schema(written)


def test_no_schema_is_left_over() -> None:
    assert {path.name for path in DOCS.iterdir()} == set(schemas())


@pytest.mark.timeout(300)
def test_the_files_of_a_real_demo(tmp_path: Path) -> None:
    assert run_demo(tmp_path / "demo", "reference", 1, Quiet()) == 0
    folders = sorted(path.parent for path in (tmp_path / "demo").glob("*/decisions.jsonl"))
    assert len(folders) >= 2
    for folder in folders:
        fits("decisions", *lines(folder / "decisions.jsonl"))
        for log in folder.glob("runlog*.jsonl"):
            fits("runlog", *lines(log))
        if (folder / "manifest.yaml").exists():
            fits("manifest", YAML(typ="safe", pure=True).load(folder / "manifest.yaml"))
        if (folder / "journal.db").exists():
            fits("journal", *rows(folder / "journal.db", "checkpoints"))
            fits("journal-calls", *rows(folder / "journal.db", "calls"))
        fits("memory", {table: rows(folder / "memory.db", table) for table in ("calls", "conversations")})
        fits("score", json.loads((folder / "score.json").read_bytes()))
    arms = (tmp_path / "demo" / "naive", tmp_path / "demo" / "careful")
    fits("comparison", json.loads(compare_json(compare_paths(*arms))))


def test_results_with_something_of_everything(tmp_path: Path) -> None:
    places = rich_folders(tmp_path)
    score = score_paths(
        [places["treated"], places["off"]], positive=[places["positive"]], negative=[places["negative"]]
    )
    fits("score", json.loads(score_json(score)))
    fits("runlog", *lines(places["treated"] / "runlog.resumed.jsonl"))
    fits("plan", json.loads(plan_json(plan(load_profile("moderate"), calls=20, tasks=10, repeats=3))))


def test_what_people_write(tmp_path: Path) -> None:
    fits("manifest", YAML(typ="safe", pure=True).load(MANIFEST))
    fits("verdicts", {"a": True, "b": {"passed": None, "ended": "error"}, "c": {"passed": False}})
    assert Verdict(True, final_text="Done.").final_text == "Done."
    with pytest.raises(jsonschema.ValidationError):
        fits("verdicts", {"a": {"passed": True, "mood": "fine"}})


def test_the_rows_of_a_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    journal.declare("t", ["patch_applied"])
    call = JournaledCall(
        "r", 1, "c0", 0, "id", "edit", "edit", "d", True, False, 10, 5.0, "2026-01-01T00:00:00Z"
    )
    row = CheckpointRow("r", "t", "patch_applied", 1, "d", 5.0, "2026-01-01T00:00:00Z")
    journal.write([row], [call])
    journal.close()
    fits("journal", *rows(tmp_path / "journal.db", "checkpoints"))
    fits("journal-calls", *rows(tmp_path / "journal.db", "calls"))
