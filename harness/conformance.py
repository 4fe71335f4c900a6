"""`chaosproxy conformance`: for each tool and fault kind of a harness, does the fault reach the model?"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from configs import dialect
from harness.adapter import HarnessError
from harness.adapters import adapter_named
from harness.conformance_files import capability_of, write_capability, write_evidence
from harness.conformance_probes import cells_of, load_probes
from harness.conformance_runner import Findings, Progress, Suite, run_suite, scratch_folder
from harness.conformance_table import table_text
from harness.processes import interrupted_by_signals
from scheduler.faults import KINDS
from scheduler.nearest import unknown

DEFAULT_OUT = Path("conformance-out")


@dataclass(frozen=True, slots=True)
class Conformance:
    """What a run of the suite came to. ``evidence``: where it is kept, None when it is not."""

    findings: Findings
    table: str
    capability: Path
    evidence: Path | None

    @property
    def exit_code(self) -> int:
        """1 when a cell fails that is no declared gap."""
        return 1 if self.findings.failed else 0


def run_conformance(
    harness: str,
    kinds: Sequence[str],
    repeat: int,
    out: Path | None,
    progress: Progress,
    *,
    keep_evidence: bool = False,
) -> Conformance:
    """Tries every cell of ``harness``, or those of some ``kinds``, and writes the capability file into
    ``out``.

    Raises ``HarnessError`` when the harness is not installed or a kind is unknown, ``ConfigError`` when
    there are no probes for it.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise HarnessError(unknown("kind", kind, KINDS))
    adapter = adapter_named(harness)
    probes = load_probes(harness)
    words = dialect(harness)
    cells = cells_of(probes, words, kinds)
    if not cells:
        raise HarnessError(f"none of these kinds is for a tool of {harness}: {', '.join(kinds)}")
    program = adapter.find()
    progress.say(f"{words.title} {program.version}: {len(cells)} cells, {repeat} starts each")
    with interrupted_by_signals(), scratch_folder() as scratch:
        findings = run_suite(Suite(adapter, program, probes, cells, repeat), scratch, progress)
    folder = out or DEFAULT_OUT
    written = write_capability(capability_of(findings, datetime.datetime.now(datetime.UTC).date()), folder)
    evidence = write_evidence(findings, folder) if keep_evidence else None
    return Conformance(findings, table_text(findings, words), written, evidence)
