"""The score of run folders: reads the ledgers, counts, and says how far the numbers can be trusted."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec
import numpy as np

from ledger.problems import Problem, ReadingError
from ledger.reading_folder import find_folders
from scoring.behaviour import Behaviours, behaviours_of
from scoring.controls import Control, negative_control, positive_control
from scoring.costs import Efficiency, efficiency_of
from scoring.effect import Effect, effect_of
from scoring.exposure import Exposure, Latency, exposure_of, latency_of
from scoring.fold import Folded, Origin
from scoring.gather import Gathered, gather, gather_folders, split_baseline, thresholds
from scoring.intervals import LEVEL, RESAMPLES, SEED
from scoring.rates import Estimate, Headline, Tally, estimate_all, headline
from scoring.recovery import Comeback, Recovery, comeback_of, recovery_of
from scoring.repeats import Repeats, repeats_of
from scoring.runs import Run

DEFAULT_THRESHOLD = 0.10


class BadThreshold(ReadingError):
    """A threshold that is no share, or several manifests with different ones."""


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """The share above which truncation, errors or invalid runs are too many; ``source`` says who set it."""

    value: float
    source: str


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """How the intervals were made: the same input gives the same output."""

    level: float = LEVEL
    resamples: int = RESAMPLES
    seed: int = SEED
    unit: str = "task"


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """First attempts by what became of them; ``unknown``: nobody said how they ended (also unjudged)."""

    runs: int
    tasks: int
    passed: int
    complete: int
    quota_cut: int
    restart_cut: int
    error: int
    unknown: int
    unjudged: int
    invalid: int


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """One task: its first attempts and what became of them."""

    task_id: str
    runs: int
    passed: int
    complete: int
    cut: int
    error: int
    invalid: int
    faults_delivered: int | None


class InvalidRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that counts as a failure because the injector could not vouch for it."""

    run_id: str | None
    task_id: str
    reasons: tuple[str, ...]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Why the exit code is not 0: ``exit`` is 1 (a check failed) or 3 (inconclusive)."""

    exit: int
    what: str


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was computed; docs/logs.md explains each field. Null is "undefined", never 0 or 1.

    ``strict_bound`` is what strict would be if every invalid or unjudged run had passed. ``interpretable`` is
    false when a control failed. ``rows`` are the first attempts themselves, ``baseline_rows``
    those under ``off``; score.json leaves both out.
    """

    runs: int
    strict: float | None
    strict_bound: float | None
    observed: float | None
    completion_rate: float | None
    truncation_rate: float | None
    error_rate: float | None
    truncation_exposure: float | None
    headline: Headline
    interpretable: bool
    controls: tuple[Control, ...]
    threshold: Threshold
    counts: Counts
    estimates: dict[str, Estimate]
    exposure: Exposure | None
    recovery: Recovery | None
    behaviour: Behaviours | None
    effect: Effect | None
    repeats: Repeats
    efficiency: Efficiency
    latency: Latency | None
    method: Method
    tasks: tuple[TaskRow, ...]
    invalid_runs: tuple[InvalidRun, ...]
    origins: tuple[Origin, ...]
    tool_sets: tuple[str, ...]
    sources: tuple[str, ...]
    problems: tuple[Problem, ...]
    findings: tuple[Finding, ...]
    manifests: dict[str, str]
    rows: tuple[Run, ...]
    baseline_rows: tuple[Run, ...]

    @property
    def exit_code(self) -> int:
        """0 fine · 1 a check failed · 3 inconclusive; a failed check outweighs."""
        return min((finding.exit for finding in self.findings), default=0)


def score_paths(
    paths: Sequence[Path],
    *,
    threshold: float | None = None,
    verdicts: Path | None = None,
    positive: Sequence[Path] = (),
    negative: Sequence[Path] = (),
    known_to_pass: Collection[str] | None = None,
) -> Score:
    """Scores run folders, or single ledgers of them, together.

    ``threshold`` is a share that overrides the manifests'; ``verdicts`` a file that goes before the
    verdicts.json of the folders. Where some folders ran under ``off`` and others did not, those under ``off``
    are the baseline for the effect of faults and are in no other number. ``positive`` and ``negative`` are
    the folders of the controls, ``known_to_pass`` the tasks that a positive control must pass (null: all).
    Raises ``ReadingError`` for anything that cannot be used.
    """
    problems: list[Problem] = []
    treated, off = split_baseline(find_folders(paths, problems))
    gathered = gather_folders(treated, verdicts, problems)
    limit = threshold_of(gathered, threshold)
    effect = None
    baseline_rows: tuple[Run, ...] = ()
    if off:
        baseline = gather_folders(off, verdicts, [])
        baseline_rows = baseline.runs
        effect = effect_of(gathered.runs, baseline.runs, baseline.sources)
        what = f"ran under off: the baseline for the effect of faults ({len(baseline.runs)} runs), not scored"
        problems = [*gathered.problems, *(Problem(str(folder.path), None, what) for folder in off)]
        problems += baseline.problems
        gathered = gathered._replace(problems=tuple(problems))
    controls = controls_of(positive, negative, known_to_pass, verdicts=verdicts)
    score = score_gathered(gathered, limit, effect, controls)
    return msgspec.structs.replace(score, baseline_rows=baseline_rows)


def controls_of(
    positive: Sequence[Path],
    negative: Sequence[Path],
    known_to_pass: Collection[str] | None = None,
    *,
    verdicts: Path | None = None,
) -> tuple[Control, ...]:
    """The verdicts on controls that lie in these folders; none where there are no folders."""
    controls = []
    if positive:
        controls.append(positive_control(gather(positive, verdicts).runs, known_to_pass))
    if negative:
        controls.append(negative_control(gather(negative, verdicts).runs))
    return tuple(controls)


def score_json(score: Score) -> bytes:
    """The score as one JSON object with its exit code, ending in a newline; undefined numbers are null."""
    data = {**msgspec.to_builtins(score), "exit_code": score.exit_code}
    del data["rows"], data["baseline_rows"]
    data["origins"] = [origin._asdict() for origin in score.origins]
    data["problems"] = [problem._asdict() for problem in score.problems]
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


def score_home(paths: Sequence[Path]) -> Path | None:
    """The run folder whose score this is, where ``paths`` name one whole (and others only as its baseline).

    Raises ``ReadingError`` as ``score_paths``.
    """
    treated, _ = split_baseline(find_folders(paths, []))
    if len(treated) != 1:
        return None
    return next((path for path in paths if path.is_dir() and path.samefile(treated[0].path)), None)


def save_score(score: Score, folder: Path) -> Path:
    """Writes score.json (0600) into a run folder, whole or not at all, and returns its path.

    Raises ``OSError`` when it cannot be written.
    """
    path = folder / "score.json"
    draft = folder / f".score.json.{os.getpid()}"
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(score_json(score))
    draft.replace(path)
    return path


def threshold_of(gathered: Gathered, given: float | None) -> Threshold:
    """The threshold that is given, else the manifests', else the default. Raises ``BadThreshold``."""
    stated = thresholds(gathered.manifests)
    if given is not None:
        if not 0 <= given <= 1:
            raise BadThreshold(f"--threshold {given} is no share: give a number from 0 to 1, such as 0.10")
        instead = ", ".join(f"{value:g} of {path}" for path, value in stated.items())
        return Threshold(
            value=given, source=f"--threshold, instead of {instead}" if stated else "--threshold"
        )
    if len(set(stated.values())) > 1:
        each = ", ".join(f"{path} {value:g}" for path, value in stated.items())
        raise BadThreshold(f"the manifests disagree on the threshold ({each}): choose one with --threshold")
    for path, value in stated.items():
        return Threshold(value=value, source=path)
    return Threshold(value=DEFAULT_THRESHOLD, source="default")


def score_gathered(
    gathered: Gathered,
    threshold: Threshold,
    effect: Effect | None = None,
    controls: tuple[Control, ...] = (),
) -> Score:
    """The score of what has been read."""
    by_task, folded = gathered.by_task, gathered.folded
    problems = list(gathered.problems)
    comeback = comeback_of(gathered, problems)
    recovery = recovery_of(gathered, comeback, problems)
    counts = _counts(gathered.runs, len(by_task))
    estimates = estimate_all(_tally(by_task, comeback))
    rates = {name: estimate.value for name, estimate in estimates.items()}
    exposure = exposure_of(folded.counted, gathered.runs)
    failed = tuple(control for control in controls if not control.holds)
    return Score(
        runs=counts.runs,
        strict=rates["strict"],
        strict_bound=_strict_bound(gathered.runs) if rates["strict"] is not None else None,
        observed=rates["observed"],
        completion_rate=rates["completion_rate"],
        truncation_rate=rates["truncation_rate"],
        error_rate=rates["error_rate"],
        truncation_exposure=rates["truncation_exposure"],
        headline=headline(
            strict=rates["strict"],
            observed=rates["observed"],
            truncation_rate=rates["truncation_rate"],
            error_rate=rates["error_rate"],
            unjudged_rate=counts.unjudged / counts.runs if counts.runs else 0.0,
            threshold=threshold.value,
            failed_controls=[control.kind for control in failed],
        ),
        interpretable=not failed,
        controls=controls,
        threshold=threshold,
        counts=counts,
        estimates=estimates,
        exposure=exposure,
        recovery=recovery,
        behaviour=behaviours_of(folded, by_task),
        effect=effect,
        repeats=repeats_of(gathered.runs),
        efficiency=efficiency_of(by_task),
        latency=latency_of(folded.counted),
        method=Method(),
        tasks=tuple(_task_row(group) for group in by_task),
        invalid_runs=tuple(
            InvalidRun(run_id=run.run_id, task_id=run.task_id, reasons=run.invalid)
            for run in gathered.runs
            if run.invalid
        ),
        origins=folded.origins,
        tool_sets=folded.tool_sets,
        sources=gathered.sources,
        problems=tuple(problems),
        findings=_findings(counts, threshold.value, folded, exposure, failed),
        manifests={str(path): manifest.text for path, manifest in gathered.manifests.items()},
        rows=gathered.runs,
        baseline_rows=(),
    )


def _counts(runs: Sequence[Run], tasks: int) -> Counts:
    ended = [run.ended for run in runs]
    return Counts(
        runs=len(runs),
        tasks=tasks,
        passed=sum(run.is_pass for run in runs),
        complete=ended.count("complete"),
        quota_cut=ended.count("quota_cut"),
        restart_cut=ended.count("restart_cut"),
        error=ended.count("error"),
        unknown=ended.count(None),
        unjudged=sum(not run.is_judged for run in runs),
        invalid=sum(bool(run.invalid) for run in runs),
    )


_COUNTED: dict[str, Callable[[Run], bool]] = {
    "runs": lambda run: True,
    "known": lambda run: run.is_known,
    "judged": lambda run: run.is_judged,
    "complete": lambda run: run.ended == "complete",
    "passed": lambda run: run.is_pass,
    "quota_cut": lambda run: run.ended == "quota_cut",
    "restart_cut": lambda run: run.ended == "restart_cut",
    "error": lambda run: run.ended == "error",
    "logged": lambda run: run.faults_decided is not None,
    "exposed": lambda run: bool(run.faults_delivered),
}


def _tally(by_task: Sequence[Sequence[Run]], comeback: Comeback) -> Tally:
    """Counts per task; a task that only the resumed log knows has a row of its own."""
    tasks = [runs[0].task_id for runs in by_task]
    known = set(tasks)
    strays = [task for task in comeback.resumed if task not in known]
    columns = {
        name: [sum(map(counts, runs)) for runs in by_task] + [0] * len(strays)
        for name, counts in _COUNTED.items()
    }
    for name in Comeback._fields:
        columns[name] = [getattr(comeback, name)[task] for task in (*tasks, *strays)]
    return Tally(**{name: np.array(column, dtype=np.float64) for name, column in columns.items()})


def _strict_bound(runs: Sequence[Run]) -> float:
    return sum(run.is_pass or bool(run.invalid) or not run.is_judged for run in runs) / len(runs)


def _task_row(runs: Sequence[Run]) -> TaskRow:
    delivered = [run.faults_delivered for run in runs if run.faults_delivered is not None]
    return TaskRow(
        task_id=runs[0].task_id,
        runs=len(runs),
        passed=sum(run.is_pass for run in runs),
        complete=sum(run.ended == "complete" for run in runs),
        cut=sum(run.is_cut for run in runs),
        error=sum(run.ended == "error" for run in runs),
        invalid=sum(bool(run.invalid) for run in runs),
        faults_delivered=sum(delivered) if delivered else None,
    )


def _findings(
    counts: Counts,
    threshold: float,
    folded: Folded,
    exposure: Exposure | None,
    failed: Sequence[Control],
) -> tuple[Finding, ...]:
    found = [
        Finding(exit=1, what=f"{control.sentence}: the numbers are not interpretable") for control in failed
    ]
    if counts.invalid > threshold * counts.runs:
        what = f"{counts.invalid} of {counts.runs} runs are invalid, above the {100 * threshold:g}% threshold"
        found.append(Finding(exit=1, what=what))
    traces = folded.runs.values()
    if traces and not any(trace.agent_requests or trace.has_calls for trace in traces):
        what = "no agent request was recognised: is the harness's base URL set to the proxy?"
        found.append(Finding(exit=3, what=what))
    elif _nothing_exposed(exposure) and any(trace.can_fire for trace in traces):
        what = "no fault reached the model though the profile can fire: nothing was exposed"
        found.append(Finding(exit=3, what=what))
    if counts.unjudged == counts.runs:
        what = "no run could be judged: end runs with POST /runs/<run_id>/end, or give --verdicts"
        found.append(Finding(exit=3, what=what))
    return tuple(found)


def _nothing_exposed(exposure: Exposure | None) -> bool:
    return exposure is not None and not exposure.delivered and not exposure.slowed
