"""`chaosproxy demo`: the whole job offline. Small repair tasks, a careful and a naive agent, real faults on the
wire, a ledger, a score and a report.

The model is played by rules (``harness.demo_model``): what is shown is what the proxy does, not how good any
model is.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from configs import load_profile
from harness.adapter import Adapter, HarnessError, Program
from harness.adapters import adapter_named
from harness.demo_model import Manner, demo_policy
from harness.reference import Reference
from harness.scripted_model import ThreadedScriptedModel
from harness.task import Task, shipped_tasks
from harness.trial import Trial, run_trial
from ledger.decisions import timestamp
from ledger.identity import boot_id
from ledger.runs import Ended, RunLine, append_run
from proxy.injector import Injector
from proxy.runs import RunSettings
from proxy.server import BackgroundServer, ProxyServer
from proxy.service import ServiceSettings, open_service
from proxy.upstream import parse_upstreams
from scoring.report import write_report
from scoring.score import score_paths
from scoring.text import score_lines, score_text

PROFILE = "moderate"
_MANNERS: tuple[Manner, ...] = ("careful", "naive")
_JOBS = 2


class Progress(Protocol):
    """Where the demo says how far it is."""

    def step(self, done: int, of: int, what: str) -> None: ...

    def say(self, line: str) -> None: ...


@dataclass(frozen=True, slots=True)
class _Cell:
    """One run that is to be made."""

    task: Task
    seed: int

    @property
    def run_id(self) -> str:
        return f"{self.task.id}-{self.seed}"


def run_demo(out: Path | None, harness: str, seeds: int, progress: Progress) -> int:
    """Runs every task under every seed, once with a careful and once with a naive agent.

    Returns the exit code: 0, or 1 when a run is invalid or no fault reached the model. Raises
    ``HarnessError`` when the harness is not installed or the folder is taken.
    """
    folder = out or Path("demo-out") / datetime.now().strftime("%Y%m%d-%H%M%S")
    if folder.exists() and any(folder.iterdir()):
        raise HarnessError(f"{folder} is not empty: give another --out")
    cells = [_Cell(task, seed) for task in shipped_tasks() for seed in range(1, seeds + 1)]
    progress.say(
        f"{len(cells)} runs each of a careful and a naive agent ({harness}), profile {PROFILE}, into {folder}"
    )
    failed = False
    lines: list[str] = []
    total = len(cells) * len(_MANNERS)
    for index, manner in enumerate(_MANNERS):
        _run_arm(folder / manner, manner, harness, cells, progress, done=index * len(cells), total=total)
    for manner in _MANNERS:
        score = score_paths([folder / manner], threshold=None, verdicts=None)
        write_report(score, folder / manner / "report.html", label="demo")
        progress.say(f"\n{manner} agent\n{score_text(score)}")
        lines += [f"{manner} agent: {folder / manner / 'report.html'}", *score_lines(score)]
        failed = failed or score.exit_code == 1 or not _anything_arrived(folder / manner)
    progress.say("\n" + "\n".join(lines))
    return 1 if failed else 0


def _run_arm(
    folder: Path,
    manner: Manner,
    harness: str,
    cells: list[_Cell],
    progress: Progress,
    *,
    done: int,
    total: int,
) -> None:
    """All runs of one manner: one scripted model, one proxy, one ledger."""
    adapter = Reference(manner) if harness == "reference" else adapter_named(harness)
    program = adapter.find()
    with ThreadedScriptedModel(demo_policy(manner)) as model:
        settings = ServiceSettings(
            seed=0,
            profile=load_profile(PROFILE),
            upstreams=parse_upstreams([model.url]),
            log=folder / "decisions.jsonl",
        )
        injector = open_service(settings, lambda _line: None)
        server = BackgroundServer(ProxyServer(injector, settings.upstreams, "127.0.0.1", 0))
        with server, ThreadPoolExecutor(_JOBS) as pool:
            runner = _Runner(folder, adapter, program, injector, server)
            for count, line in enumerate(pool.map(runner.run, cells), 1):
                verdict = "passed" if line.passed else "failed"
                progress.step(
                    done + count, total, f"{manner} {line.task_id} seed {line.seed}: {line.ended}, {verdict}"
                )


class _Runner:
    """Makes one run after the other against one proxy."""

    def __init__(
        self, folder: Path, adapter: Adapter, program: Program, injector: Injector, server: BackgroundServer
    ) -> None:
        self._folder = folder
        self._adapter = adapter
        self._program = program
        self._injector = injector
        self._server = server

    def run(self, cell: _Cell) -> RunLine:
        """One task under one seed; its line is in the run log when this returns."""
        settings = RunSettings(
            run_id=cell.run_id,
            task_id=cell.task.id,
            seed=cell.seed,
            profile=self._injector.runs.defaults.profile,
            harness=self._adapter.name,
            workspace=str((self._folder / "work" / cell.run_id / "workspace").absolute()),
            home=str((self._folder / "work" / cell.run_id / "home").absolute()),
            temp=self._injector.runs.defaults.temp,
        )
        run = self._server.do(lambda: self._injector.runs.register(settings))
        started = timestamp()
        trial = run_trial(
            cell.task,
            self._adapter,
            f"http://127.0.0.1:{self._server.port}/run/{cell.run_id}",
            self._folder / "work" / cell.run_id,
            program=self._program,
        )
        ended: Ended = "complete" if trial.clean_exit and run.complete else "error"
        self._server.do(lambda: self._injector.end(run, ended, trial.passed))
        line = self._line(cell, trial, ended, started, run.tokens)
        append_run(self._folder / "runlog.jsonl", line)
        shutil.rmtree(trial.home, ignore_errors=True)
        return line

    def _line(self, cell: _Cell, trial: Trial, ended: Ended, started: str, tokens: int) -> RunLine:
        reason = None
        if ended == "error":
            reason = "timed out" if trial.outcome.timed_out else (trial.outcome.stderr.strip() or None)
        return RunLine(
            task_id=cell.task.id,
            seed=cell.seed,
            repeat=0,
            ended=ended,
            passed=trial.passed,
            tokens_used=tokens,
            wall_s=round(trial.outcome.wall_s, 3),
            run_id=cell.run_id,
            boot_id=boot_id(),
            started=started,
            stopped=timestamp(),
            harness=self._adapter.name,
            harness_version=trial.harness_version,
            profile=PROFILE,
            exit_code=trial.outcome.exit_code,
            reason=reason[-500:] if reason else None,
        )


def _anything_arrived(folder: Path) -> bool:
    """Whether a fault was delivered at all: a demo without one has shown nothing."""
    return any(b'"event":"delivery"' in line for line in _lines(folder / "decisions.jsonl"))


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file
