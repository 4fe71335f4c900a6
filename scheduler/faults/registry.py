"""What a fault kind is, and the registry that finds it by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from scheduler.call import FAMILIES

if TYPE_CHECKING:
    from scheduler.dialect import Form, Shown, ToolRule
    from scheduler.uniform import PayloadStream

Timing = Literal["before", "after"]
Mode = Literal["explicit", "implicit"]


@dataclass(frozen=True, slots=True)
class Scene:
    """All that a kind may look at when it makes a payload.

    ``shown`` is the result taken apart; ``earlier`` the true texts of earlier results for the same target,
    latest first; ``lines`` the profile's setting for cut results.
    """

    tool: str
    family: str
    rule: ToolRule
    form: Form
    arguments: Mapping[str, Any]
    shown: Shown
    stream: PayloadStream
    earlier: tuple[str, ...] = ()
    lines: int | None = None


class Rewrite(NamedTuple):
    """What the model is to see instead; ``is_error`` None leaves the protocol's flag as it is."""

    text: str
    is_error: bool | None = None


class Skip(NamedTuple):
    """Why a fault that fired cannot be applied to this result: ``no_change`` or ``no_text``."""

    reason: Literal["no_change", "no_text"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One fault kind.

    ``rewrite`` makes the payload, or is None for a kind that changes nothing (``slow``); ``mode`` says what
    the model can see of it under a form; ``on_text`` kinds work on text and skip a result without any.
    """

    name: str
    summary: str
    timing: Timing
    families: frozenset[str]
    mode: Callable[[Form], Mode | None]
    rewrite: Callable[[Scene], Rewrite | Skip] | None
    on_text: bool


KINDS: dict[str, Kind] = {}

ALL_FAMILIES: frozenset[str] = frozenset(FAMILIES)
TEXT_FAMILIES: frozenset[str] = frozenset({"read", "shell", "search", "list", "fetch"})


def register(kind: Kind) -> Kind:
    """Adds ``kind`` under its name; a name is given once."""
    if kind.name in KINDS:
        raise ValueError(f"kind {kind.name!r} is registered twice")
    KINDS[kind.name] = kind
    return kind


def explicit(_form: Form) -> Mode:
    return "explicit"


def implicit(_form: Form) -> Mode:
    return "implicit"
