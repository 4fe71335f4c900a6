"""What `chaosproxy run` and `chaosproxy resume` do with what they were asked, and what they say of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from harness.adapter import Adapter
from harness.controls import run_controls
from harness.preparing import RunOptions, read_prepared
from harness.resume import resume_folder
from harness.supervisor import Finished, Progress, adapter_of, run_manifest, say_tested
from ledger.runs import RunLine

FAULTS_VARIABLE = "CHAOSPROXY_FAULTS"


def run_command(
    manifest: Path, options: RunOptions, progress: Progress, *, controls: bool, adapter: Adapter | None = None
) -> int:
    """Runs a manifest; gives the exit code: 0, 1 a check failed, 3 nothing to be said (yet)."""
    if options.plan is None:
        options = replace(options, plan=os.environ.get(FAULTS_VARIABLE))
    prepared = read_prepared(manifest, options)
    chosen = adapter or adapter_of(prepared.manifest)
    say_tested(chosen, progress, tested_only=options.tested_only)
    results = run_controls(prepared, options, progress, adapter) if controls else []
    finished = run_manifest(prepared, options, progress, adapter)
    _say_runs(finished, options.out, progress)
    broken = [str(result) for result in results if not result.holds]
    for line in broken:
        progress.say(f"{line}: the numbers of these runs are not interpretable")
    return _exit_code(finished, failed=bool(broken))


def resume_command(
    path: Path,
    progress: Progress,
    *,
    jobs: int = 1,
    upstream: str | None = None,
    adapter: Adapter | None = None,
) -> int:
    """One resume pass over a run folder; gives the exit code, 1 when a run could not be resumed."""
    finished = resume_folder(path, progress, jobs=jobs, upstream=upstream, adapter=adapter)
    if not finished.made:
        progress.say(f"no run of {path} was cut: nothing to resume")
        return 0
    passed = sum(line.ended == "complete" and line.passed is True for line in finished.made)
    progress.say(f"{len(finished.made)} resumed: {_by_end(finished.made)}; {passed} passed")
    _say_violations(finished, progress)
    _say_missing(finished, f"chaosproxy resume {path}", progress)
    progress.say(f"score it with: chaosproxy score {path}")
    refused = any(line.exit_code is None and line.ended == "error" for line in finished.made)
    return _exit_code(finished, failed=refused)


def _say_runs(finished: Finished, out: Path, progress: Progress) -> None:
    lines = finished.lines.values()
    progress.say(f"{len(finished.lines)} runs: {_by_end(lines)}")
    untreated = [line for line in lines if (line.reason or "").startswith("untreated")]
    if untreated:
        progress.say(f"{len(untreated)} of them are untreated: they never reached the checkpoint of the plan")
    _say_violations(finished, progress)
    _say_missing(finished, "the same command", progress)
    if any(line.ended in ("quota_cut", "restart_cut") for line in lines):
        progress.say(f"go on with the runs that were cut: chaosproxy resume {out}")
    progress.say(f"score it with: chaosproxy score {out}")


def _say_violations(finished: Finished, progress: Progress) -> None:
    for violation in finished.violations:
        progress.say(f"violation: {violation}")


def _say_missing(finished: Finished, command: str, progress: Progress) -> None:
    if finished.missing:
        progress.say(f"stopped: {finished.missing} runs were not made; go on with {command}")


def _by_end(lines: Iterable[RunLine]) -> str:
    counts = Counter(line.ended for line in lines)
    return ", ".join(f"{count} {ended}" for ended, count in sorted(counts.items())) or "none"


def _exit_code(finished: Finished, *, failed: bool) -> int:
    if failed or finished.violations:
        return 1
    return 3 if finished.missing or not finished.is_recognised else 0
