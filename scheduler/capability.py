"""What was shown of one harness version: which fault reaches the model on which of its tools.

A capability file (configs/capabilities/<harness>@<version>.yaml) is written by a conformance run; its gaps
are never scheduled on that version.
"""

from __future__ import annotations

import datetime
import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from scheduler.call import FAMILIES, Family
from scheduler.faults import KINDS
from scheduler.form import Checked
from scheduler.nearest import unknown

_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class CapabilityError(ValueError):
    """A capability file that cannot be used; the message says where it is wrong."""


class Cell(Checked):
    """One question and its answer: when ``kind`` is injected on ``tool``, does the model see it?

    ``family`` is the one that the probe's call counted as. A ``gap`` has a ``reason``. ``runs``: how often it
    was asked. ``evidence``: SHA-256 of what was seen in each run. ``latency_us``: the injector's
    time for this call alone, in microseconds, the median of the runs. ``added``: text that the harness put
    behind the payload. ``retry``: what came of the same call again without a fault; ``resume``: what was left
    of the payload after a kill and a resume; ``crash``: how a run ended whose injector was made to crash.
    """

    tool: str = Field(min_length=1)
    family: Family
    kind: str
    result: Literal["pass", "gap"]
    reason: str | None = None
    runs: int = Field(default=0, ge=0)
    evidence: tuple[_Digest, ...] = ()
    latency_us: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    added: str | None = None
    retry: str | None = None
    resume: str | None = None
    crash: str | None = None

    @field_validator("kind")
    @classmethod
    def _kind(cls, value: str) -> str:
        if value not in KINDS:
            raise ValueError(unknown("kind", value, KINDS))
        return value

    @field_validator("family", mode="before")
    @classmethod
    def _family(cls, value: Any) -> Any:
        if value not in FAMILIES:
            raise ValueError(unknown("family", str(value), FAMILIES))
        return value

    @model_validator(mode="after")
    def _explained(self) -> Self:
        if self.result == "gap" and not self.reason:
            raise ValueError("a gap says its reason")
        return self


class Capability(Checked):
    """One harness version. ``tools``: the names that it offers, ``tools_sha256`` the digest of their
    definitions; ``asked_sha256``: of the dialect and the probes that it was asked with; ``stand_ins``:
    family → the tool that does its work where the version has none of its own; ``not_probed``: tool → why
    no cell is about it, so that nothing was shown of its faults."""

    harness: str = Field(min_length=1)
    version: str = Field(min_length=1)
    date: datetime.date
    tools: tuple[str, ...]
    tools_sha256: _Digest
    asked_sha256: _Digest | None = None
    stand_ins: dict[Family, str] = Field(default_factory=dict)
    not_probed: dict[str, str] = Field(default_factory=dict)
    cells: tuple[Cell, ...]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        seen: set[tuple[str, str, str]] = set()
        for cell in self.cells:
            key = (cell.tool, cell.family, cell.kind)
            if key in seen:
                raise ValueError(f"two cells for {cell.kind} on {cell.tool} as {cell.family}")
            seen.add(key)
        for tool in self.not_probed:
            if any(cell.tool == tool for cell in self.cells):
                raise ValueError(f"there are cells about {tool}, which is said not to be probed")
        for tool in (*(cell.tool for cell in self.cells), *self.stand_ins.values()):
            if tool not in self.tools:
                raise ValueError(unknown("tool", tool, self.tools))
        return self

    @property
    def name(self) -> str:
        """``<harness>@<version>``, as the file is named."""
        return capability_name(self.harness, self.version)

    def gaps(self) -> dict[str, list[str]]:
        """tool → the kinds that do not reach the model on it, whatever family a call of it counts as."""
        found: dict[str, set[str]] = {}
        for cell in self.cells:
            if cell.result == "gap":
                found.setdefault(cell.tool, set()).add(cell.kind)
        return {tool: sorted(kinds) for tool, kinds in found.items()}

    def data(self) -> dict[str, Any]:
        """Plain data for a YAML writer; ``parse_capability`` makes the same capability of it."""
        return self.model_dump(mode="json", exclude_defaults=True)


def capability_name(harness: str, version: str) -> str:
    """How the capability file of a version is named, without its ending."""
    return f"{harness}@{version}"


def is_file_name(name: str) -> bool:
    """Whether a harness and version, which may come off the wire, can name a file and nothing else."""
    return re.fullmatch(r"\w[\w.+-]*@\w[\w.+-]*", name, re.ASCII) is not None


def parse_capability(data: Any, source: str) -> Capability:
    """A capability from what a YAML reader made of its text; raises ``CapabilityError`` naming ``source``."""
    try:
        return Capability.model_validate(data)
    except ValidationError as error:
        places = "; ".join(
            ": ".join(
                part
                for part in (
                    ".".join(str(part) for part in item["loc"]),
                    item["msg"].removeprefix("Value error, "),
                )
                if part
            )
            for item in error.errors()
        )
        raise CapabilityError(f"{source}: {places}") from None
