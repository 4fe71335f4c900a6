"""JSON Schemas of the files of a run folder: ``python -m scoring.schemas docs/schemas`` writes them anew.

They are made from the structs that read and write the files. SQLite files are described by their rows, each
an object with the columns as its fields.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal, get_type_hints

import msgspec

from ledger.journal import CheckpointRow, JournaledCall
from ledger.memory import CallRow, ConversationRow
from ledger.problems import Problem
from ledger.reading_stated import Verdict
from ledger.records import AnyRecord
from ledger.runs import RunLine
from scoring.compare import Comparison
from scoring.fold import Origin
from scoring.plan import Plan
from scoring.score import Score

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class ManifestEnv(msgspec.Struct, kw_only=True):
    """The machine that the runs were made on."""

    python: str | None = None
    os: str | None = None
    container_digest: str | None = None
    cpus: float | None = None
    mem_gb: float | None = None
    disk: str | None = None


class ManifestEndpoint(msgspec.Struct, kw_only=True):
    """The model endpoint."""

    provider_notes: str | None = None
    model_id: str | None = None
    allocation_today: str | float | None = None


class ManifestFaults(msgspec.Struct, kw_only=True):
    """Where runs are killed: ``off``, or checkpoints with ``:hard_exit``; and how often each cell is run."""

    plan: str | list[str] | Literal[False] | None = None
    repeats: int | None = None


class ManifestFile(msgspec.Struct, kw_only=True):
    """manifest.yaml: what was to be run, frozen before the first run. More fields are allowed."""

    run_id: str | None = None
    taskset_sha: str | None = None
    runner_sha: str | None = None
    env: ManifestEnv | None = None
    endpoint: ManifestEndpoint | None = None
    faults: ManifestFaults | None = None
    harness: str | None = None
    tasks: list[str | dict[str, Any]] | str | None = None
    checkpoints: list[str] | None = None
    seed: int | list[int] | None = None
    profile: str | None = None
    identity: Literal["content", "ordinal"] | None = None
    token_budget: int | None = None
    threshold: float | None = None
    timeout: float | None = None


def schemas() -> dict[str, dict[str, Any]]:
    """File name → schema."""
    found = {
        "decisions.schema.json": _schema(AnyRecord, "One line of decisions.jsonl"),
        "runlog.schema.json": _schema(RunLine, "One line of runlog.jsonl or runlog.resumed.jsonl"),
        "journal.schema.json": _row(CheckpointRow, "One row of the table checkpoints of journal.db"),
        "journal-calls.schema.json": _row(JournaledCall, "One row of the table calls of journal.db"),
        "memory.schema.json": _memory(),
        "manifest.schema.json": _schema(ManifestFile, "manifest.yaml"),
        "verdicts.schema.json": _schema(dict[str, bool | Verdict], "verdicts.json: run ids and verdicts"),
        "score.schema.json": _result(
            Score, "score.json, and what score --json prints", dropped=("rows", "baseline_rows")
        ),
        "comparison.schema.json": _result(Comparison, "What compare --json prints"),
        "plan.schema.json": _schema(Plan, "What plan --json prints"),
    }
    # As JSON has it: defaults that are tuples are lists.
    as_json: dict[str, dict[str, Any]] = json.loads(json.dumps(found))
    return as_json


def _schema(type_: Any, title: str) -> dict[str, Any]:
    return {"$schema": _DIALECT, "title": title, **msgspec.json.schema(type_)}


def _row(type_: Any, title: str) -> dict[str, Any]:
    """A row of a table as an object. SQLite keeps truth values as 0 and 1, blobs stand in base64."""
    text = json.dumps(_schema(_as_struct(type_), title))
    found: dict[str, Any] = json.loads(text.replace('{"type": "boolean"}', '{"enum": [0, 1]}'))
    return found


def _memory() -> dict[str, Any]:
    """memory.db by its two tables of calls; the others hold digests by which histories are found again."""
    parts = {"calls": CallRow, "conversations": ConversationRow}
    schema: dict[str, Any] = {"$schema": _DIALECT, "title": "memory.db: rows by table", "type": "object"}
    schema["properties"] = {}
    schema["$defs"] = {}
    for table, type_ in parts.items():
        row = _row(type_, table)
        schema["$defs"] |= row["$defs"]
        schema["properties"][table] = {"type": "array", "items": {"$ref": row["$ref"]}}
    return schema


def _result(type_: Any, title: str, dropped: tuple[str, ...] = ()) -> dict[str, Any]:
    """A result as it is printed: with its exit code, and with named tuples of texts as objects."""
    schema = _schema(type_, title)
    definitions = schema["$defs"]
    top = definitions[type_.__name__]
    for name in dropped:
        del top["properties"][name]
        top["required"].remove(name)
    top["properties"]["exit_code"] = {"enum": [0, 1, 3]}
    top["required"].append("exit_code")
    for tuple_ in (Origin, Problem):
        definitions[tuple_.__name__] = _as_object(tuple_)
    _drop_unused(schema)
    return schema


def _as_object(tuple_: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.schema(_as_struct(tuple_))["$defs"][tuple_.__name__]
    return {**found, "description": (tuple_.__doc__ or "").strip()}


def _as_struct(type_: Any) -> type[msgspec.Struct]:
    """A struct with the fields of a named tuple or a dataclass, so that its rows are objects."""
    return msgspec.defstruct(type_.__name__, list(get_type_hints(type_).items()))


def _drop_unused(schema: dict[str, Any]) -> None:
    """Definitions that nothing refers to any more."""
    while True:
        text = json.dumps(schema)
        unused = [name for name in schema["$defs"] if f'"#/$defs/{name}"' not in text]
        if not unused:
            return
        for name in unused:
            del schema["$defs"][name]


def write_schemas(folder: Path) -> None:
    """Writes every schema into ``folder``. Raises ``OSError``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in schemas().items():
        (folder / name).write_text(json.dumps(schema, indent=2) + "\n")


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
