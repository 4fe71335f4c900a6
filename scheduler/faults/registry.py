"""What a fault kind is, and the registry that finds it by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from scheduler.call import FAMILIES
from scheduler.dialect import ToolRule
from scheduler.filling import fill, words_of
from scheduler.form import Form, Wording, any_match, points_back
from scheduler.shown import Shown
from scheduler.uniform import PayloadStream

Timing = Literal["before", "after"]
Mode = Literal["explicit", "implicit"]


_PLAIN_EMPTY = Wording(text="(no output)")


@dataclass(frozen=True, slots=True)
class Withheld:
    """All that a before-kind may look at: a call that never ran.

    ``form`` is the shape of the tool's own results, ``workspace`` the directory that the harness works in,
    ``session`` the harness's own name for the session; None where they are not known.
    """

    tool: str
    rule: ToolRule
    form: Form
    arguments: Mapping[str, Any]
    stream: PayloadStream
    workspace: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """All that an after-kind may look at when it makes a payload.

    ``shown`` is the result taken apart; ``earlier`` the true texts of earlier results of the same call,
    latest first; ``lines`` the profile's setting for cut results; ``workspace`` and
    ``session`` as in ``Withheld``.
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
    workspace: str | None = None
    session: str | None = None

    @property
    def words(self) -> dict[str, str]:
        """The call's own words, for the places of a wording."""
        return words_of(self.tool, self.rule, self.arguments, self.workspace, self.session)

    @property
    def is_empty(self) -> bool:
        """Whether the result shows, in this harness's words, that there was nothing to show."""
        text = self.shown.text
        return not text.strip() or any_match(self.form.nothing, text) or text == self.empty_text

    @property
    def empty_wording(self) -> Wording:
        """How this harness words a result of this shape that has nothing to show."""
        envelope = self.shown.envelope
        return (envelope.empty if envelope is not None else None) or self.form.empty or _PLAIN_EMPTY

    @property
    def empty_text(self) -> str:
        """What this harness shows when this call has nothing to show."""
        emptied = self.shown.emptied()
        if emptied is not None:
            return emptied
        return fill(self.empty_wording, self.words)

    @property
    def points_back(self) -> bool:
        """Whether the result only points at an earlier one."""
        return points_back(self.form, self.shown.text)


class Rewrite(NamedTuple):
    """What the model is to see instead.

    ``is_error`` is what the protocol's flag becomes. None leaves the flag of a result as it is; there is no
    result of a call that never ran, so there None means that the flag is left out. ``mode`` says what the
    model can see of this very payload, where that depends on the result.
    """

    text: str
    is_error: bool | None = None
    mode: Mode | None = None


class Skip(NamedTuple):
    """Why a fault that fired cannot be applied to this result: ``no_change`` or ``no_text``."""

    reason: Literal["no_change", "no_text"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One fault kind.

    ``families`` are those that it can be done to; a before-kind fits only the tools among them that the
    dialect has words for. ``rewrite`` makes the payload of an after-kind, or is None for one that changes
    nothing (``slow``); ``answer`` makes that of a before-kind. ``mode`` says what the model can see of it
    under a form; ``on_text`` kinds work on text and skip a result without any; ``settings`` are the profile's
    settings that it listens to; ``keeps_images`` kinds change a result's text and leave its images alone, the
    others replace the whole result.
    """

    name: str
    summary: str
    timing: Timing
    families: frozenset[str]
    mode: Callable[[Form], Mode | None]
    rewrite: Callable[[Scene], Rewrite | Skip] | None = None
    answer: Callable[[Withheld], Rewrite] | None = None
    on_text: bool = False
    settings: frozenset[str] = frozenset()
    keeps_images: bool = False


KINDS: dict[str, Kind] = {}

ALL_FAMILIES: frozenset[str] = frozenset(FAMILIES)
TEXT_FAMILIES: frozenset[str] = frozenset({"read", "shell", "search", "list", "fetch"})


def register(kind: Kind) -> Kind:
    """Adds ``kind`` under its name; a name is given once."""
    if kind.name in KINDS:
        raise ValueError(f"kind {kind.name!r} is registered twice")
    if (kind.timing == "before") != (kind.answer is not None):
        raise ValueError(f"kind {kind.name!r}: a before-kind has an answer, an after-kind has none")
    KINDS[kind.name] = kind
    return kind


def explicit(_form: Form) -> Mode:
    return "explicit"


def implicit(_form: Form) -> Mode:
    return "implicit"
