"""Controls: the same tasks without any fault, and killed before any work. What fails here voids the rest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from configs import load_profile
from harness.adapter import Adapter
from harness.preparing import Prepared, RunOptions
from harness.supervisor import Progress, run_manifest
from ledger.controls import ControlKind, control_folder
from ledger.manifest import Faults
from ledger.runs import RunLine

KINDS: tuple[ControlKind, ...] = ("negative", "positive")
_PLANS: dict[ControlKind, str] = {"positive": "off", "negative": "context_loaded:hard_exit"}
_LONGEST = 55


@dataclass(frozen=True, slots=True)
class ControlResult:
    """``passed`` of ``runs`` first attempts passed; of a positive control all have to, of a negative none."""

    kind: ControlKind
    passed: int
    runs: int

    @property
    def holds(self) -> bool:
        return self.runs > 0 and self.passed == (self.runs if self.kind == "positive" else 0)

    def __str__(self) -> str:
        wanted = "1" if self.kind == "positive" else "0"
        verdict = "as it must" if self.holds else f"where exactly {wanted} was needed"
        return f"{self.kind} control: {self.passed} of {self.runs} runs passed, {verdict}"


def control_of(prepared: Prepared, kind: ControlKind) -> Prepared:
    """The manifest of a control: same tasks and seeds, once each, no profile, no budget."""
    manifest = prepared.manifest
    off = load_profile("off")
    changed = manifest.model_copy(
        update={
            "run_id": f"{(manifest.run_id or 'run')[:_LONGEST]}.{kind}",
            "control": kind,
            "profile": "off",
            "identity": None,
            "token_budget": None,
            "faults": Faults(plan=_PLANS[kind], repeats=1),
            "checkpoints": tuple(dict.fromkeys(("context_loaded", *manifest.checkpoints))),
            "frozen": None,
        }
    )
    tasks = prepared.tasks
    if kind == "negative":
        # It has to be killed where every run comes by, also of a task that declares only later checkpoints.
        tasks = tuple(replace(task, checkpoints=None) for task in tasks)
    return Prepared(changed, tasks, off)


def run_controls(
    prepared: Prepared, options: RunOptions, progress: Progress, adapter: Adapter | None = None
) -> list[ControlResult]:
    """Runs both controls into the folder's ``controls``; raises what ``run_manifest`` raises."""
    results = []
    for kind in KINDS:
        progress.say(f"{kind} control")
        there = replace(options, out=control_folder(options.out, kind))
        finished = run_manifest(control_of(prepared, kind), there, progress, adapter)
        results.append(result_of(kind, finished.lines.values()))
        progress.say(str(results[-1]))
    return results


def result_of(kind: ControlKind, lines: Iterable[RunLine]) -> ControlResult:
    """What the first attempts of a control come to."""
    outcomes = [line.ended == "complete" and line.passed is True for line in lines]
    return ControlResult(kind, sum(outcomes), len(outcomes))
