"""The conformance suite on the real programs: every cell of Claude Code and Pi once, with the kill and the
crashes; of the others a call that reads, one that edits, one of the shell and one that delegates, where there
is one, each before and after.

`make conformance` asks everything three times.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from configs import dialect
from harness.adapters import adapter_named
from harness.conformance_probes import Cell, ProbeSet, cells_of, load_probes
from harness.conformance_runner import Findings, Suite, run_suite, scratch_folder
from harness.conformance_table import table_text

# A start of these programs takes from half a second to fifteen, and a busy machine is slower.
_TIMEOUT_S = 900

_WHOLE = ("claude-code", "pi")
_SOME = ("codex", "opencode", "gemini-cli", "qwen-code", "mini-swe-agent")
# What reads, edits and runs: the first of these families that a harness has a tool for, and the kinds asked.
_ASKED = (
    (("read", "search"), ("wrong_data", "not_found")),
    (("edit", "list"), ("post_effect_error", "phantom_success", "permission_denied")),
    (("shell",), ("timeout_after_effect", "permission_denied")),
    (("task",), ("post_effect_error", "timeout")),
)


class Quiet:
    def step(self, done: int, of: int, what: str) -> None:
        pass

    def say(self, line: str) -> None:
        pass


def _play(harness: str, probes: ProbeSet, cells: tuple[Cell, ...], *, safety: bool) -> Findings:
    adapter = adapter_named(harness)
    suite = Suite(adapter, adapter.find(), probes, cells, 1, timeout_s=_TIMEOUT_S / 3, safety=safety)
    with scratch_folder() as scratch:
        return run_suite(suite, scratch, Quiet())


def _some(cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
    """Of each row of ``_ASKED``, what the harness's first tool of the family can be asked."""
    found: list[Cell] = []
    for families, kinds in _ASKED:
        fits = [cell for family in families for cell in cells if cell.family == family]
        found += [cell for cell in fits if cell.probe is fits[0].probe and cell.kind in kinds]
    return tuple(found)


@pytest.mark.timeout(_TIMEOUT_S)
@pytest.mark.parametrize("harness", _WHOLE)
def test_every_cell_passes(harness: str) -> None:
    probes = load_probes(harness)
    cells = cells_of(probes, dialect(harness))
    findings = _play(harness, probes, cells, safety=True)
    table = table_text(findings, dialect(harness))
    not_tried = [cell for cell in cells if cell.gap is not None]
    # A machine without the programs that a tool is made of cannot be asked about it.
    assert all("this machine has no" in (cell.gap or "") for cell in not_tried), table
    assert findings.passed == len(cells) - len(not_tried) > 50, table


@pytest.mark.timeout(_TIMEOUT_S)
@pytest.mark.parametrize("harness", _SOME)
def test_one_cell_of_each_sort_passes(harness: str) -> None:
    probes = load_probes(harness)
    cells = _some(cells_of(probes, dialect(harness)))
    assert {cell.timing for cell in cells} == {"before", "after"}
    assert len(cells) >= 6
    findings = _play(harness, probes, cells, safety=False)
    assert findings.passed == len(cells), table_text(findings, dialect(harness))


def test_no_harness_is_left_out() -> None:
    probes = Path(__file__).parents[2] / "configs" / "probes"
    assert {*_WHOLE, *_SOME, "reference"} == {path.stem for path in probes.glob("*.yaml")}
