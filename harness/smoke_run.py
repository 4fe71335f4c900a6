"""``python -m harness.smoke_run``: one harness on three pilot tasks, off and moderate, from trial to report.

It shows that the pieces work together on this machine. The model is played by rules (``harness.demo_model``),
and so few runs rank nothing.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from harness.adapter import Adapter, HarnessError
from harness.adapters import adapter_named
from harness.demo_model import demo_policy
from harness.preparing import RunOptions, prepare_manifest
from harness.scripted_model import ThreadedScriptedModel
from harness.supervisor import Progress, run_manifest
from ledger.manifest import parse_manifest
from proxy.terminal import Progress as TerminalProgress
from scoring.report import write_report
from scoring.score import Score, score_paths
from scoring.text import score_text

TASKS = ("tax", "limits", "pager")
SEEDS = (1, 2)
PROFILES = ("off", "moderate")
LABEL = "smoke"
_JOBS = 2


def run_smoke(out: Path | None, harness: str, progress: Progress) -> int:
    """Makes the runs below ``out`` (default: smoke-out/<time>) and writes ``report.html`` there.

    Returns the exit code: 0; 1 when a run without faults fails or a run is invalid; 3 when no fault reached
    the model. Raises ``HarnessError`` when the harness is not installed or the folder is taken.
    """
    folder = out or Path("smoke-out") / datetime.now().strftime("%Y%m%d-%H%M%S")
    if folder.exists() and any(folder.iterdir()):
        raise HarnessError(f"{folder} is not empty: give another --out")
    adapter = adapter_named(harness)
    program = adapter.find()
    progress.say(f"smoke run: {harness} {program.version}, tasks {', '.join(TASKS)}, into {folder}")
    with ThreadedScriptedModel(demo_policy("careful")) as model:
        for profile in PROFILES:
            _run(folder / profile, profile, adapter, model.url, progress)
    score = score_paths([folder / profile for profile in PROFILES])
    write_report(score, folder / "report.html", label=LABEL)
    progress.say(f"\n{score_text(score)}")
    progress.say(f"a smoke run: that the pieces work together is all it shows\n{folder / 'report.html'}")
    return _exit_code(score, score_paths([folder / "off"]))


def _run(folder: Path, profile: str, adapter: Adapter, url: str, progress: Progress) -> None:
    data = {
        "harness": adapter.name,
        "tasks": list(TASKS),
        "seed": list(SEEDS),
        "profile": profile,
        "endpoint": {"base_url": url},
    }
    options = RunOptions(folder, jobs=_JOBS)
    prepared = prepare_manifest(parse_manifest(data, "the smoke run"), Path(), options)
    run_manifest(prepared, options, progress, adapter)


def _exit_code(score: Score, calm: Score) -> int:
    if score.exit_code == 1 or calm.strict != 1.0:
        return 1
    arrived = score.exposure is not None and score.exposure.delivered > 0
    return 0 if arrived else 3


def _main(
    harness: Annotated[str, typer.Option(help="reference, or an installed harness.")] = "reference",
    out: Annotated[Path | None, typer.Option(help="Where the folders go; default smoke-out/<time>.")] = None,
) -> None:
    """One harness on three pilot tasks, off and moderate, from trial to report."""
    try:
        code = run_smoke(out, harness, TerminalProgress())
    except HarnessError as error:
        typer.echo(f"error: {error}", err=True)
        code = 2
    raise typer.Exit(code)


if __name__ == "__main__":
    typer.run(_main)
