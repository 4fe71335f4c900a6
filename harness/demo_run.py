"""`chaosproxy demo`: the whole job offline. Small repair tasks, a careful and a naive agent, faults on the
wire, a kill, a quota cut, resumes, controls, scores and reports.

The model is played by rules (``harness.demo_model``): what is shown is what chaosproxy does, not how good any
model is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.adapter import Adapter, HarnessError
from harness.adapters import adapter_named
from harness.controls import run_controls
from harness.demo_model import Manner, demo_policy
from harness.preparing import RunOptions, prepare_manifest
from harness.reference import Reference
from harness.resume import resume_folder
from harness.scripted_model import ThreadedScriptedModel
from harness.supervisor import Progress, run_manifest
from ledger.controls import control_folders
from ledger.manifest import parse_manifest
from scoring.report import write_report
from scoring.score import Score, save_score, score_paths
from scoring.text import score_lines, score_text

PROFILE = "moderate"
_JOBS = 2
# So little that every run meets it in the middle: a request of these harnesses takes so many tokens.
_BUDGETS = {"reference": 1_500, "pi": 5_000}
_BUDGET = 50_000


@dataclass(frozen=True, slots=True)
class _Arm:
    """One run folder of the demo: what its manifest says beyond the harness, and what is done with it."""

    name: str
    manner: Manner
    title: str
    manifest: dict[str, Any]
    controlled: bool = False
    resumed: bool = False


def _arms(harness: str, seeds: int) -> tuple[_Arm, ...]:
    many = {"seed": list(range(1, seeds + 1)), "profile": PROFILE}
    return (
        _Arm("careful", "careful", "careful agent", many, controlled=True),
        _Arm("naive", "naive", "naive agent", many),
        _Arm(
            "killed",
            "careful",
            "killed when its patch was applied, then resumed",
            {"faults": {"plan": "patch_applied:hard_exit"}},
            resumed=True,
        ),
        _Arm(
            "spent",
            "careful",
            "token budget spent, then resumed with what is left of it",
            {"token_budget": _BUDGETS.get(harness, _BUDGET), "tasks": ["tax", "limits"]},
            resumed=True,
        ),
    )


def run_demo(out: Path | None, harness: str, seeds: int, progress: Progress) -> int:
    """Runs every arm of the demo into a folder of its own.

    Returns the exit code: 0, or 1 when a control failed, a run is invalid or no fault reached the model.
    Raises ``HarnessError`` when the harness is not installed or the folder is taken.
    """
    folder = out or Path("demo-out") / datetime.now().strftime("%Y%m%d-%H%M%S")
    if folder.exists() and any(folder.iterdir()):
        raise HarnessError(f"{folder} is not empty: give another --out")
    arms = _arms(harness, seeds)
    progress.say(f"{harness}, the shipped tasks, profile {PROFILE}, {seeds} seeds, into {folder}")
    for arm in arms:
        progress.say(f"\n{arm.title}")
        _play(folder / arm.name, arm, harness, progress)
    failed = False
    lines: list[str] = []
    for arm in arms:
        score = _scored(folder / arm.name)
        save_score(score, folder / arm.name)
        write_report(score, folder / arm.name / "report.html", label="demo")
        progress.say(f"\n{arm.title}\n{score_text(score)}")
        lines += [f"{arm.title}: {folder / arm.name / 'report.html'}", *score_lines(score), *_recovery(score)]
        failed = failed or score.exit_code == 1
    arrived = all(_anything_arrived(folder / name) for name in ("careful", "naive"))
    progress.say("\n" + "\n".join(lines))
    return 1 if failed or not arrived else 0


def _play(folder: Path, arm: _Arm, harness: str, progress: Progress) -> None:
    """All runs of one arm against one scripted model."""
    adapter: Adapter = Reference(arm.manner) if harness == "reference" else adapter_named(harness)
    with ThreadedScriptedModel(demo_policy(arm.manner)) as model:
        data = {"harness": harness, "endpoint": {"base_url": model.url}} | arm.manifest
        options = RunOptions(folder, jobs=_JOBS)
        prepared = prepare_manifest(parse_manifest(data, "the demo"), Path(), options)
        if arm.controlled:
            run_controls(prepared, options, progress, adapter)
        run_manifest(prepared, options, progress, adapter)
        if arm.resumed:
            resume_folder(folder, progress, jobs=_JOBS, adapter=adapter)


def _scored(folder: Path) -> Score:
    return score_paths(
        [folder],
        positive=control_folders([folder], "positive"),
        negative=control_folders([folder], "negative"),
    )


def _recovery(score: Score) -> list[str]:
    """What became of interrupted runs, in one line."""
    found = score.recovery
    if found is None or not found.resume_pass:
        return []
    return [
        f"resumed: {found.recovered} of {found.interrupted} interrupted runs end in a pass"
        f" | double-apply tasks: {found.double_apply_tasks} | repeated effects: {found.repeated_effects}"
    ]


def _anything_arrived(folder: Path) -> bool:
    """Whether a fault was delivered at all: a demo without one has shown nothing."""
    return any(b'"event":"delivery"' in line for line in _lines(folder / "decisions.jsonl"))


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file
