"""One task, one harness, one base URL: a fresh workspace, a run, and the check's verdict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.adapter import Adapter, Job, Program
from harness.launch import Outcome
from harness.task import Task, Verdict, prepare, verdict

TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class Trial:
    """What happened. ``passed`` is the check's word; ``clean_exit`` says only that the program ended with 0.

    Whether the model was done, cut short or refused is not known here: that stands in the decision log.
    """

    task_id: str
    harness: str
    harness_version: str
    passed: bool
    clean_exit: bool
    workspace: Path
    home: Path
    outcome: Outcome
    verdict: Verdict


def run_trial(
    task: Task,
    adapter: Adapter,
    base_url: str,
    folder: Path,
    *,
    program: Program | None = None,
    model: str | None = None,
    session: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Trial:
    """Runs ``task`` in ``folder``/workspace with ``folder``/home as HOME; both must not be there yet.

    ``program`` saves looking for the harness again. Raises FileExistsError, HarnessError when there is no
    such harness, OSError when it cannot be started. A harness that fails or takes too long is no error: it
    stands in the trial.
    """
    found = program if program is not None else adapter.find()
    workspace, home = (folder / "workspace").absolute(), (folder / "home").absolute()
    workspace.mkdir(parents=True)
    home.mkdir()
    prepare(task, workspace)
    job = Job(
        base_url=base_url,
        prompt=task.prompt,
        workspace=workspace,
        home=home,
        model=model,
        session=session,
    )
    outcome = adapter.launch(found, job).run(timeout_s)
    said = verdict(task, workspace)
    return Trial(
        task_id=task.id,
        harness=adapter.name,
        harness_version=found.version,
        passed=said.passed,
        clean_exit=outcome.exit_code == 0 and not outcome.timed_out,
        workspace=workspace,
        home=home,
        outcome=outcome,
        verdict=said,
    )
