"""Probes: for each tool of a harness, one targeted call that every fault kind can be tried on.

A probe file is data (``configs/probes/<harness>.yaml``). In its texts ``{cell}`` stands for the folder of the
cell, ``{word}`` for a word that stands nowhere else, ``{home}`` for the harness's HOME, ``{site}`` for the
address of a small web site (``{site}/{word}`` is a page), and ``{n}`` for a number that is new each time.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator

from configs import ConfigError, read_yaml
from harness.conformance_counts import CountRule
from scheduler.call import FAMILIES, Family
from scheduler.dialect import Dialect
from scheduler.faults import KINDS
from scheduler.fitting import fitting_kinds
from scheduler.form import Checked
from scheduler.nearest import unknown

_MAX_WORDS = 1000
NO_PROBE = "there is no probe of it: its faults are worded by the dialect alone"


class Step(Checked):
    """One call of a tool; one that takes raw text takes the argument ``input``."""

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Offer(Checked):
    """How the harness is started so that a tool is on offer: the adapter's list of tools, files of its HOME
    (path → text) and more environment."""

    tools: tuple[str, ...] = ()
    home_files: dict[str, str] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)


class Probe(Checked):
    """One tool and a call of it that does work and shows a result.

    ``family``: what the call counts as, where that is not the tool's own family. ``call``: its arguments.
    ``files``: path in the cell's folder → text, there before the session. ``first``: calls that must come
    before. ``change``: the call after which the same call shows something else. ``watch``: patterns of paths
    below HOME where the tool's work can be seen. ``answers``: what the models that the tool itself asks say,
    a text or the call by which they hand it in; a subagent is known by its prompt. ``visible``: whether the
    work can be seen on the disk at all.
    ``has_text``: whether its results have text; what only changes text is not for one without.
    ``counts``: numbers in its results that must add up. ``needs``: programs, one of which the tool needs.
    ``gaps``: kind → why it cannot be done to this tool.
    """

    tool: str
    family: Family | None = None
    call: dict[str, Any] = Field(default_factory=dict)
    files: dict[str, str] = Field(default_factory=dict)
    first: tuple[Step, ...] = ()
    change: Step | None = None
    watch: tuple[str, ...] = ()
    answers: dict[str, str | Step] = Field(default_factory=dict)
    visible: bool = True
    has_text: bool = True
    counts: tuple[CountRule, ...] = ()
    needs: tuple[str, ...] = ()
    offer: str = "default"
    gaps: dict[str, str] = Field(default_factory=dict)

    @field_validator("family", mode="before")
    @classmethod
    def _family(cls, value: Any) -> Any:
        if value is not None and value not in FAMILIES:
            raise ValueError(unknown("family", str(value), FAMILIES))
        return value

    @field_validator("gaps")
    @classmethod
    def _kinds(cls, value: dict[str, str]) -> dict[str, str]:
        for kind in value:
            if kind not in KINDS:
                raise ValueError(unknown("kind", kind, KINDS))
        return value

    @property
    def step(self) -> Step:
        """The targeted call."""
        return Step(tool=self.tool, arguments=self.call)


class ProbeSet(Checked):
    """All probes of one harness.

    ``between``: a call that is made after each targeted one. ``pause``: a call that makes ``{started}`` and
    then does not end, in which the harness is killed. ``cells_per_start``: how many cells one start of the
    program carries. ``stands_in``: family → what is probed in place of a tool that this harness has not.
    ``not_probed``: tool → why no probe asks it.
    """

    harness: str
    model: str | None = None
    prompt: str = "Please do the task that you were given."
    between: Step
    pause: Step
    cells_per_start: int = Field(default=24, ge=1)
    offers: dict[str, Offer] = Field(default_factory=dict)
    stands_in: dict[Family, str] = Field(default_factory=dict)
    not_probed: dict[str, str] = Field(default_factory=dict)
    probes: tuple[Probe, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _known_offers(self) -> ProbeSet:
        for probe in self.probes:
            if probe.offer != "default" and probe.offer not in self.offers:
                raise ValueError(unknown("offer", probe.offer, self.offers))
            if probe.tool in self.not_probed:
                raise ValueError(f"{probe.tool} has a probe and is said to have none")
        return self

    def unprobed(self, offered: Iterable[str]) -> dict[str, str]:
        """tool → why no probe asks it: the ones named in the file, and any other of ``offered``."""
        probed = {probe.tool for probe in self.probes}
        others = (tool for tool in offered if tool not in probed and tool not in self.not_probed)
        return self.not_probed | dict.fromkeys(others, NO_PROBE)

    def offer(self, name: str) -> Offer:
        """The offer of that name; ``default`` need not be described."""
        return self.offers.get(name) or Offer()


@dataclass(frozen=True, slots=True)
class Cell:
    """One question: does ``kind`` reach the model on a call of ``probe.tool`` that counts as ``family``?

    ``gap``: why it is not asked. ``number`` counts the cells of the harness from 0.
    """

    number: int
    probe: Probe
    family: str
    own_family: str
    kind: str
    gap: str | None

    @property
    def tool(self) -> str:
        return self.probe.tool

    @property
    def title(self) -> str:
        """The tool as the table names it: a shell call that counts as something else says so."""
        return self.tool if self.family == self.own_family else f"{self.tool} as {self.family}"

    @property
    def name(self) -> str:
        """Fit for a file name: ``Read-empty``, ``Bash-search-stale``."""
        middle = "" if self.family == self.own_family else f"{self.family}-"
        return f"{self.tool}-{middle}{self.kind}"

    @property
    def timing(self) -> str:
        return KINDS[self.kind].timing

    @property
    def counts(self) -> tuple[CountRule, ...]:
        """The numbers in its results that must add up, with the cell's word in them."""
        places = {"word": self.word}
        return tuple(
            rule.model_copy(update={"of": filled(rule.of, places), "pattern": filled(rule.pattern, places)})
            for rule in self.probe.counts
        )

    @property
    def word(self) -> str:
        """A word of the cell's own, which no harness and no tool would say by itself."""
        return f"{_syllables(self.number)}{self.number:03d}"


_FIRST = ("lum", "var", "tes", "mor", "kal", "nim", "dor", "pel", "sul", "rav")
_SECOND = ("eno", "ika", "uda", "ole", "ami", "iro", "epa", "unu", "oki", "aze")


def _syllables(number: int) -> str:
    # Three decimal digits at most, so neighbours differ in the first part and hundreds in the second.
    return _FIRST[number % 10] + _SECOND[number // 10 % 10] + _SECOND[(number // 100 + number) % 10]


def load_probes(harness: str) -> ProbeSet:
    """The shipped probes of a harness; raises ``ConfigError`` naming the nearest one that has some."""
    folder = files("configs").joinpath("probes")
    names = sorted(
        entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")
    )
    if harness not in names:
        raise ConfigError(f"{unknown('harness', harness, names)} (there are probes for {', '.join(names)})")
    source = f"probes of {harness}"
    return parse_probes(read_yaml(folder.joinpath(f"{harness}.yaml").read_text("utf-8"), source), source)


def parse_probes(data: Any, source: str) -> ProbeSet:
    """Probes from what a YAML reader made of its text; raises ``ConfigError`` naming ``source``."""
    try:
        return ProbeSet.model_validate(data)
    except ValidationError as error:
        places = "; ".join(
            f"{'.'.join(str(part) for part in item['loc'])}: {item['msg'].removeprefix('Value error, ')}"
            for item in error.errors()
        )
        raise ConfigError(f"{source}: {places}") from None


def cells_of(probes: ProbeSet, dialect: Dialect, kinds: Sequence[str] = ()) -> tuple[Cell, ...]:
    """Every (tool, kind) whose kind is for the call's family, in the order of the file; ``kinds`` picks some.

    A before-kind that the dialect has no words for is a gap, and so is what the probe says is one.
    """
    cells: list[Cell] = []
    number = 0
    for probe in probes.probes:
        own = dialect.rule(probe.tool).family
        family = probe.family or own
        fitting = fitting_kinds(dialect, probe.tool, family)
        for kind in KINDS.values():
            if family not in kind.families or (kind.on_text and not probe.has_text):
                continue
            if not kinds or kind.name in kinds:
                cells.append(Cell(number, probe, family, own, kind.name, _gap(probe, kind.name, fitting)))
            number += 1
    if number > _MAX_WORDS:
        raise ConfigError(f"the probes of {probes.harness} make {number} cells: {_MAX_WORDS} is the most")
    return tuple(cells)


def _gap(probe: Probe, kind: str, fitting: Sequence[str]) -> str | None:
    if kind in probe.gaps:
        return probe.gaps[kind]
    if kind not in fitting:
        return f"the dialect has no words for {kind} on {probe.tool}"
    if probe.needs and not any(shutil.which(program) for program in probe.needs):
        return f"not tried: this machine has no {' or '.join(probe.needs)}"
    return None


def filled(value: Any, places: Mapping[str, str]) -> Any:
    """``value`` with ``{name}`` replaced in every text of it, for the names of ``places``."""
    if isinstance(value, str):
        for name, text in places.items():
            value = value.replace("{" + name + "}", text)
        return value
    if isinstance(value, Mapping):
        return {key: filled(item, places) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [filled(item, places) for item in value]
    return value
