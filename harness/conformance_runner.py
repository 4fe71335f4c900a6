"""Plays the cells of a harness, several to one start, and judges each by its own evidence."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Literal, Protocol

from msgspec.structs import replace as replace_struct

from configs import dialect, load_profile
from harness.adapter import Adapter, HarnessError, Program
from harness.conformance_checks import judge, says_nothing
from harness.conformance_disk import keeps_looks
from harness.conformance_evidence import Evidence, gather
from harness.conformance_plan import Site, full_plan, hanging_plan, short_plan
from harness.conformance_probes import Cell, ProbeSet
from harness.conformance_safety import IMPOSSIBLE, RECORDED, fate_on_crash, fate_on_resume, is_lost
from harness.conformance_session import Session, Stage, Wrap
from harness.conformance_site import small_site
from harness.processes import kill_by_home
from ledger.records import Request
from proxy.options import InjectorOptions
from scheduler.call import Family
from scheduler.dialect import Dialect

Status = Literal["pass", "gap", "fail"]

# Qwen Code loses what a command printed in half of the calls when the machine is busy.
_MOST_ASKED = 6


class Progress(Protocol):
    """Where the suite says how far it is."""

    def step(self, done: int, of: int, what: str) -> None: ...

    def say(self, line: str) -> None: ...


@dataclass(frozen=True, slots=True)
class CellResult:
    """What came of a cell. ``wrong``: what failed, in sentences; ``resume``, ``crash``: see
    ``conformance_safety``, None when not tried."""

    cell: Cell
    evidence: tuple[Evidence, ...] = ()
    wrong: tuple[str, ...] = ()
    resume: str | None = None
    crash: str | None = None

    @property
    def status(self) -> Status:
        if self.cell.gap is not None:
            return "gap"
        return "fail" if self.wrong else "pass"

    @property
    def latency_us(self) -> float | None:
        """The injector's time for this call alone, the median of the repeats."""
        found = [seen.decision.latency_us for seen in self.evidence if seen.decision is not None]
        return round(median(found), 1) if found else None


@dataclass(frozen=True, slots=True)
class Findings:
    """All cells of a harness version. ``tools``: the names it offers by itself, and what was asked for;
    ``tools_digest``: of the list that it offers by itself; ``not_probed``: tool → why no cell is about it."""

    harness: str
    version: str
    repeat: int
    results: tuple[CellResult, ...]
    tools: tuple[str, ...]
    tools_digest: str | None
    looks_kept: bool
    stands_in: Mapping[Family, str] = field(default_factory=dict)
    not_probed: Mapping[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> int:
        return sum(result.status == "pass" for result in self.results)

    @property
    def failed(self) -> tuple[CellResult, ...]:
        return tuple(result for result in self.results if result.status == "fail")


@dataclass(frozen=True, slots=True)
class Suite:
    """What is to be played, and how. ``safety``: the kill and the crashes too."""

    adapter: Adapter
    program: Program
    probes: ProbeSet
    cells: tuple[Cell, ...]
    repeat: int
    timeout_s: float = 300.0
    safety: bool = True
    wrap: Wrap = field(default=lambda injector: injector)


@dataclass(slots=True)
class _Seen:
    """What is collected of a harness while its batches are played."""

    tools: dict[str, None] = field(default_factory=dict)
    tools_digest: str | None = None


def run_suite(suite: Suite, scratch: Path, progress: Progress) -> Findings:
    """Plays everything below ``scratch``, which must be there. One harness program runs at a time."""
    seen = _Seen()
    looks_kept = keeps_looks(scratch)
    batches = list(_batches(suite.probes, suite.cells))
    counter = _Counter(progress, sum(len(cells) for _, cells in batches) * suite.repeat)
    results: dict[int, CellResult] = {c.number: CellResult(c) for c in suite.cells if c.gap is not None}
    for index, (offer, cells) in enumerate(batches):
        folder = scratch / f"batch{index}"
        with small_site(folder / "workspace") as web:
            stage = _stage(suite, offer, folder, web)
            batch = _Batch(suite, stage, counter, dialect(suite.adapter.name), looks_kept, seen)
            try:
                results |= {result.cell.number: result for result in batch.play(cells)}
            finally:
                # An interrupt can come between the start of a program and the note of its number.
                kill_by_home(str(stage.site.home))
    return Findings(
        harness=suite.adapter.name,
        version=suite.program.version,
        repeat=suite.repeat,
        results=tuple(results[cell.number] for cell in suite.cells),
        tools=tuple(seen.tools),
        tools_digest=seen.tools_digest,
        looks_kept=looks_kept,
        stands_in=suite.probes.stands_in,
        not_probed=suite.probes.unprobed(seen.tools),
    )


def _batches(probes: ProbeSet, cells: Sequence[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    """(offer, cells) for each start; gaps are not played."""
    live = sorted((c for c in cells if c.gap is None), key=lambda cell: cell.probe.offer != "default")
    for offer, group in groupby(live, key=lambda cell: cell.probe.offer):
        rest = list(group)
        while rest:
            yield offer, rest[: probes.cells_per_start]
            rest = rest[probes.cells_per_start :]


def _stage(suite: Suite, offer: str, folder: Path, web: str) -> Stage:
    folder.mkdir()
    site = Site(folder / "workspace", folder / "home", web)
    return Stage(
        suite.adapter,
        suite.program,
        suite.probes,
        suite.probes.offer(offer),
        site,
        folder / "logs",
        suite.timeout_s,
        suite.wrap,
    )


class _Counter:
    """Progress over cells and repeats."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def say(self, line: str) -> None:
        self._progress.say(line)

    def done(self, what: str) -> None:
        self._done += 1
        self._progress.step(self._done, self._total, what)


@dataclass(frozen=True, slots=True)
class _Batch:
    """The cells that one start carries."""

    suite: Suite
    stage: Stage
    counter: _Counter
    dialect: Dialect
    looks_kept: bool
    seen: _Seen

    def play(self, cells: list[Cell]) -> list[CellResult]:
        """Every repeat, then the kill and the crashes."""
        results = {cell.number: CellResult(cell) for cell in cells}
        for repeat in range(1, self.suite.repeat + 1):
            for cell, evidence in self._repeat(cells, repeat):
                results[cell.number] = self._judged(results[cell.number], evidence)
        if self.suite.safety:
            for cell, resume, crash in self._safety(cells):
                results[cell.number] = _with_fates(results[cell.number], resume, crash)
        return list(results.values())

    def _repeat(self, cells: list[Cell], repeat: int) -> Iterator[tuple[Cell, Evidence]]:
        """One pass over all cells. When a session stops early, the cell that it stopped at keeps that as its
        evidence and the ones behind it get a start of their own; so do those that fail by what the tool
        itself gave."""
        left = cells
        part = 0
        asked: Counter[int] = Counter()
        while left:
            plan = full_plan(self.suite.probes, left, self.stage.site)
            clean = self.stage.play(plan, f"clean-{repeat}-{part}", profile=load_profile("off"))
            session = self.stage.play(plan, f"faulted-{repeat}-{part}")
            self._note_tools(clean)
            came_to = _steps_seen(session)
            told = [placed for placed in plan.placed if placed.end <= came_to] or list(plan.placed[:1])
            stopped_at = plan.placed[len(told) : len(told) + 1]
            left = [placed.cell for placed in plan.placed[len(told) + len(stopped_at) :]]
            for placed in (*told, *stopped_at):
                evidence = gather(placed, session, clean, self.dialect, repeat)
                asked[placed.cell.number] += 1
                wrong = says_nothing(evidence) and self._wrong(placed.cell, evidence)
                if wrong and asked[placed.cell.number] < _MOST_ASKED:
                    left.append(placed.cell)
                else:
                    yield placed.cell, replace_struct(evidence, asked=asked[placed.cell.number])
            part += 1

    def _wrong(self, cell: Cell, evidence: Evidence) -> tuple[str, ...]:
        return judge(cell, evidence, self.dialect, looks_kept=self.looks_kept)

    def _judged(self, result: CellResult, evidence: Evidence) -> CellResult:
        wrong = self._wrong(result.cell, evidence)
        self.counter.done(
            f"{result.cell.title} {result.cell.kind}: {wrong[0] if wrong else 'seen'}"
            + (f" (start {evidence.repeat})" if self.suite.repeat > 1 else "")
        )
        fresh = tuple(sentence for sentence in wrong if sentence not in result.wrong)
        return replace(result, evidence=(*result.evidence, evidence), wrong=(*result.wrong, *fresh))

    def _safety(self, cells: list[Cell]) -> Iterator[tuple[Cell, str, str]]:
        site = self.stage.site
        hanging = hanging_plan(self.suite.probes, cells, site)
        try:
            killed = self.stage.play_killed(hanging, "killed")
            fates = [fate_on_resume(placed, killed, self.dialect) for placed in hanging.placed]
        except HarnessError as error:
            fates = [f"{IMPOSSIBLE}: {error}"] * len(cells)
        short = short_plan(self.suite.probes, cells, site)
        crashed = [
            self.stage.play(short, "crash-request", options=InjectorOptions(crash_at="request")),
            self.stage.play(short, "crash-response", options=InjectorOptions(crash_at="response")),
        ]
        for fate, placed in zip(fates, short.placed, strict=True):
            yield placed.cell, fate, fate_on_crash(placed, crashed)

    def _note_tools(self, session: Session) -> None:
        for request in session.main[:1]:
            view = request.conversation
            for tool in view.tools if view is not None else ():
                self.seen.tools.setdefault(tool.name)
        digests = [r.tools_digest for r in session.records if isinstance(r, Request) and r.tools_digest]
        if digests and self.seen.tools_digest is None:
            self.seen.tools_digest = digests[0]


def _steps_seen(session: Session) -> int:
    """How many steps' results the endpoint was sent."""
    view = session.main[-1].conversation if session.main else None
    return 0 if view is None else len(view.calls)


def _with_fates(result: CellResult, resume: str, crash: str) -> CellResult:
    wrong = list(result.wrong)
    if is_lost(resume):
        wrong.append(f"on resume {resume}")
    if crash != RECORDED:
        wrong.append(f"on a crash of the injector: {crash}")
    return replace(result, resume=resume, crash=crash, wrong=tuple(wrong))


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A place for sessions. Its name can be seen by the model, so it says nothing of what is going on."""
    with tempfile.TemporaryDirectory(prefix="work-") as folder:
        yield Path(folder)
