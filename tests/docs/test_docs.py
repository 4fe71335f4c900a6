"""What the documents say is there: links, commands, make targets, and the figures that they show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from typer.main import get_command

from configs import capability_names, dialect, load_capability
from ledger.records import SkipReason
from ledger.runs import RunLine, append_run
from proxy.cli import app
from scoring.score import score_paths
from scoring.text import score_text

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text("utf-8")):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_every_command_of_the_readme_is_there() -> None:
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    readme = (ROOT / "README.md").read_text("utf-8")
    named = set(re.findall(r"`chaosproxy ([a-z]+)", readme))
    assert named == commands


def test_every_make_target_of_the_readme_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"make ([a-z-]+)", (ROOT / "README.md").read_text("utf-8")):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("name", capability_names())
def test_the_conformance_figures_are_those_of_the_capability_files(name: str) -> None:
    harness, _, version = name.rpartition("@")
    capability = load_capability(harness, version)
    assert capability is not None
    passed = sum(cell.result == "pass" for cell in capability.cells)
    row = (
        f"| {dialect(harness).title} {version} | {passed} of {len(capability.cells)} cells pass"
        f" | {capability.date} |"
    )
    document = (ROOT / "docs" / "conformance.md").read_text("utf-8")
    assert row in document
    for cell in capability.cells:
        if cell.result == "gap":
            assert f"{cell.tool} `{cell.kind}`" in document, "each gap is told with its cause"


def test_the_two_lines_of_the_readme(tmp_path: Path) -> None:
    """The published example: 120 runs, 22 cut, 65 of the 98 others passed."""
    for i in range(120):
        append_run(
            tmp_path / "runlog.jsonl",
            RunLine(
                task_id=f"t{i % 40}",
                seed=i // 40,
                repeat=0,
                ended="quota_cut" if i < 22 else "complete",
                passed=22 <= i < 87,
            ),
        )
    lines = score_text(score_paths([tmp_path], threshold=0.10)).splitlines()[-2:]
    readme = (ROOT / "README.md").read_text("utf-8")
    assert lines[0] == "runs: 120 | truncation_rate: 0.183 | strict: 0.542 | observed: 0.663"
    assert lines[1] == "headline: 0.542 (strict) — truncation above the 10% threshold"
    assert "\n".join(lines) in readme


def test_every_reason_why_a_fault_was_not_applied_is_listed() -> None:
    """The type of the field holds the code to these reasons."""
    logs = (ROOT / "docs" / "logs.md").read_text("utf-8")
    (row,) = re.findall(r"^\| `skipped` \|.*\|(.*)\|$", logs, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == set(get_args(SkipReason))
    faults = (
        (ROOT / "docs" / "faults.md")
        .read_text("utf-8")
        .partition("## When a fault that fired is not applied")[2]
    )
    table = re.findall(r"^\| (`.*?`) \|", faults.partition("\n## ")[0], re.MULTILINE)
    named = {name for cell in table for name in re.findall(r"`(\w+)`", cell)} - {"skipped"}
    assert named <= set(get_args(SkipReason))
    assert {"no_fit", "already_failed", "min_gap"} <= named


def test_no_document_names_a_machine() -> None:
    for document in DOCUMENTS:
        text = document.read_text("utf-8")
        assert not re.search(r"/(?:root|home/\w+|work)/", text), document.name
