"""The examples of docs/supervised-runs.md are read as users would have them read."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any, get_args

import pytest
from ruamel.yaml import YAML
from typer.main import get_command

from harness.preparing import RunOptions, prepare_manifest
from harness.task import prepare, verdict
from harness.taskset import load_tasks
from ledger.journal import CHECKPOINTS, Journal
from ledger.manifest import Manifest, parse_manifest
from ledger.runs import Ended
from proxy.cli import app

TEXT = (Path(__file__).parents[2] / "docs" / "supervised-runs.md").read_text("utf-8")


def example(name: str) -> Any:
    (block,) = re.findall(rf"^```yaml {name}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    return YAML(typ="safe", pure=True).load(block)


def test_the_manifest(tmp_path: Path) -> None:
    manifest = parse_manifest(example("manifest"), "the document")
    assert manifest.kills == ("patch_applied",)
    assert manifest.seeds == (1, 2, 3)
    prepared = prepare_manifest(manifest, tmp_path, RunOptions(tmp_path / "out"))
    assert len(prepared.tasks) == 5


def test_the_task_set(tmp_path: Path) -> None:
    tasks = load_tasks(example("tasks")["tasks"], tmp_path)
    assert [task.id for task in tasks] == ["tax", "greeting"]
    greeting = tasks[1]
    prepare(greeting, tmp_path)
    assert not verdict(greeting, tmp_path).passed
    (tmp_path / "hello.py").write_text('GREETING = "Hello"\n')
    assert verdict(greeting, tmp_path).passed
    assert greeting.test_command.search("cd . && python -B test_hello.py")


def test_every_checkpoint_and_end_state_is_told() -> None:
    for name in (*CHECKPOINTS, *get_args(Ended)):
        assert f"| `{name}` |" in TEXT


def test_every_key_of_the_manifest_is_told() -> None:
    for name in Manifest.model_fields:
        if name not in ("frozen", "control"):
            assert re.search(rf"\b{name}\b", TEXT), name


def test_the_tables_of_the_journal(tmp_path: Path) -> None:
    Journal(tmp_path / "journal.db").close()
    with sqlite3.connect(tmp_path / "journal.db") as database:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table in names:
            (told,) = re.findall(rf"^\| `{table}` \| (.*) \|$", TEXT, re.MULTILINE)
            for _, column, *_ in database.execute(f"SELECT * FROM pragma_table_info('{table}')"):
                spoken = column.replace("position", "position in it").replace("tokens", "tokens used")
                assert spoken in told or column in told, (table, column)


@pytest.mark.parametrize("command", ["run", "resume"])
def test_every_option_that_is_shown_is_there(command: str) -> None:
    known = {
        option
        for parameter in get_command(app).commands[command].params  # type: ignore[attr-defined]
        for option in parameter.opts
    }
    shown = set()
    for line in re.findall(rf"^\$ chaosproxy {command} (.*)$", TEXT, re.MULTILINE):
        shown |= set(re.findall(r"(--[a-z-]+)", line.partition(" -- ")[0]))
    assert shown <= known
