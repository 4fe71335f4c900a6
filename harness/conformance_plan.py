"""The script of one start of a harness: the calls of several cells in turn, and the rules of their faults."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from harness.conformance_probes import Cell, ProbeSet, Step, filled
from harness.script import Branch, Script
from harness.turns import ToolCall, Turn
from scheduler.profile import Profile, parse_profile

Speaker = Literal["main", "sub", "other"]

SLOW_S = 0.6
END_TEXT = "That is all."
_STARTED = "started"
_WRITTEN = 1_700_000_000.0


@dataclass(frozen=True, slots=True)
class Site:
    """The directories that calls speak of, and the address of the small web site."""

    workspace: Path
    home: Path
    web: str


@dataclass(frozen=True, slots=True)
class Placed:
    """A cell in a session. ``target`` and ``retry`` are steps, counted from 0; ``folder`` is the cell's own.

    ``end`` is the step before which the cell's own calls are over.
    """

    cell: Cell
    folder: Path
    first: int
    target: int
    retry: int | None
    end: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One session: step ``i`` is the one call of ``script.turns[i]``. ``prompt``: what the agent is asked.
    ``started``: a file that the last call makes before it hangs, or None when the session ends by itself."""

    prompt: str
    placed: tuple[Placed, ...]
    script: Script
    profile: Profile
    started: Path | None

    @property
    def steps(self) -> int:
        """How many calls the session makes."""
        return len(self.script.turns)

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(placed.cell for placed in self.placed)

    def speaker(self, opening: Sequence[str]) -> Speaker:
        """Whose conversation begins with these texts: some harnesses let another agent look at what was done,
        which asks with the end of the main one's history."""
        text = "\n".join(opening)
        if any(branch.when in text for branch in self.script.branches):
            return "sub"
        return "main" if self.prompt in text else "other"


def full_plan(probes: ProbeSet, cells: Sequence[Cell], site: Site) -> Plan:
    """Each cell's targeted call, then at least one other call, then the same call again without a fault.

    What comes between two calls of a cell are the next cell's.
    """
    layout = _Layout(probes, site)
    placed = [layout.target(cells[0])]
    for cell in cells[1:]:
        placed.append(layout.target(cell))
        placed[-2] = layout.again(placed[-2])
    layout.add(probes.between, {})
    placed[-1] = layout.again(placed[-1])
    return layout.plan(placed, None)


def short_plan(probes: ProbeSet, cells: Sequence[Cell], site: Site) -> Plan:
    """Each cell's targeted call."""
    layout = _Layout(probes, site)
    return layout.plan([layout.target(cell) for cell in cells], None)


def hanging_plan(probes: ProbeSet, cells: Sequence[Cell], site: Site) -> Plan:
    """As ``short_plan``, with a last call that does not end."""
    layout = _Layout(probes, site)
    placed = [layout.target(cell) for cell in cells]
    started = site.workspace / _STARTED
    layout.add(probes.between, {})
    layout.add(probes.pause, {"started": str(started)})
    return layout.plan(placed, started)


class _Layout:
    """Puts calls in a row."""

    def __init__(self, probes: ProbeSet, site: Site) -> None:
        self._probes = probes
        self._site = site
        self._turns: list[Turn] = []
        self._rules: list[dict[str, object]] = []
        self._branches: list[Branch] = []

    def target(self, cell: Cell) -> Placed:
        """The calls that come before, and the one that is to fail."""
        folder = self._site.workspace / cell.word
        places = _places(cell, folder)
        probe, first = cell.probe, len(self._turns)
        steps = list(probe.first)
        # A stale result needs an earlier one that differs.
        if cell.kind == "stale" and probe.change is not None:
            steps += [probe.step, probe.change]
        for step in steps:
            self.add(step, places)
        target = self.add(probe.step, places)
        earlier = sum(step.tool == probe.tool for step in steps)
        self._rules.append(
            {
                "tool": probe.tool,
                "match": rf"\b{re.escape(cell.word)}\b",
                "nth": earlier + 1,
                "kind": cell.kind,
            }
        )
        for when, answer in probe.answers.items():
            # Its calls are no steps: those are known by the ends of their ids.
            call_id = f"call_handed_in_{cell.word}"
            self._branches.append(Branch(filled(when, places), (_answer(answer, places, call_id),)))
        return Placed(cell, folder, first, target, None, len(self._turns))

    def again(self, placed: Placed) -> Placed:
        """The same call once more."""
        retry = self.add(placed.cell.probe.step, _places(placed.cell, placed.folder))
        return replace(placed, retry=retry, end=len(self._turns))

    def add(self, step: Step, places: Mapping[str, str]) -> int:
        index = len(self._turns)
        places = {
            "home": str(self._site.home),
            "site": self._site.web,
            "n": str(index),
            **places,
        }
        call = ToolCall(step.tool, filled(step.arguments, places))
        self._turns.append(Turn("Next.", (call,)))
        return index

    def plan(self, placed: Sequence[Placed], started: Path | None) -> Plan:
        profile = parse_profile(
            {
                "name": "forced",
                "rate": 0,
                "force": self._rules,
                "kinds": {"slow": {"seconds": SLOW_S}},
            },
            "the forced faults",
        )
        script = Script(tuple(self._turns), tuple(self._branches), end_text=END_TEXT)
        return Plan(self._probes.prompt, tuple(placed), script, profile, started)


def _answer(answer: str | Step, places: Mapping[str, str], call_id: str) -> Turn:
    if isinstance(answer, str):
        return Turn(filled(answer, places))
    return Turn("", (ToolCall(answer.tool, filled(answer.arguments, places), call_id),))


def _places(cell: Cell, folder: Path) -> dict[str, str]:
    return {"cell": str(folder), "word": cell.word}


def write_files(plan: Plan) -> None:
    """The files that the cells' calls find, each cell's in its own folder, the first one the oldest."""
    for placed in plan.placed:
        placed.folder.mkdir(parents=True)
        places = _places(placed.cell, placed.folder)
        for age, (name, text) in enumerate(placed.cell.probe.files.items()):
            path = placed.folder / filled(name, places)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(filled(text, places), encoding="utf-8")
            # Some tools sort by time, and these were all written in the same moment.
            os.utime(path, (_WRITTEN + age, _WRITTEN + age))
