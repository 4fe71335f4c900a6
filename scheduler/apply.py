"""What a drawn fault does to one result: the pure step between the draw and the wire.

The proxy and ``explain`` share it, so what a user is told beforehand is what the model is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from scheduler.dialect import Dialect, Form, has_failed, take_apart
from scheduler.faults import KINDS, Rewrite, Scene, Withheld
from scheduler.profile import Profile
from scheduler.schedule import Draw, PayloadStream

DEFAULT_WAIT_S = 5.0


class Skipped(NamedTuple):
    """Why a fault that fired is not applied to this result; goes into the log as it is."""

    reason: Literal["already_failed", "no_change", "no_text", "no_fit", "skip_first", "max_faults", "min_gap"]


class Wait(NamedTuple):
    """``slow``: the result stays as it is and is held back for ``seconds``, once."""

    seconds: float


def apply_after(
    draw: Draw,
    profile: Profile,
    dialect: Dialect,
    seed: int,
    tool: str,
    arguments: Mapping[str, Any],
    text: str | None,
    is_error: bool | None,
    earlier: Sequence[str],
    *,
    workspace: str | None = None,
    session: str | None = None,
) -> Rewrite | Skipped | Wait:
    """The outcome of the after-fault that ``draw`` fired, on one result.

    ``text`` is the tool's own output, without what the harness appended (``Dialect.split_appended``), or
    None when the result has no text (an image); ``is_error`` is the protocol's flag, None where it has none
    or leaves it out. ``earlier`` holds the true texts of earlier results of the same call, latest first;
    ``workspace`` and ``session`` as in ``apply_before``.

    A draw that a limit of the profile holds back is skipped under the limit's name.

    Raises ``ValueError`` when ``draw`` fired no after-kind: the caller asks only for what was drawn.
    """
    kind = KINDS.get(draw.kind or "")
    if kind is None or kind.answer is not None:
        raise ValueError(f"not an after-kind that fired: {draw.kind!r}")
    if draw.limited is not None:
        return Skipped(draw.limited)
    family = dialect.family(tool, arguments)
    form = dialect.form(tool, family)
    if has_failed(form, text or "", is_error):
        return Skipped("already_failed")
    settings = profile.kinds.get(kind.name)
    if kind.rewrite is None:
        return Wait(settings.seconds if settings and settings.seconds is not None else DEFAULT_WAIT_S)
    if text is None and kind.on_text:
        return Skipped("no_text")
    seen = text if text is not None and kind.on_text else ""  # the others do not read what they replace
    outcome = kind.rewrite(
        Scene(
            tool=tool,
            family=family,
            rule=dialect.rule(tool),
            form=form,
            arguments=arguments,
            shown=take_apart(form, seen, _first_line(form, arguments)),
            stream=PayloadStream(draw.key, seed),
            earlier=tuple(earlier),
            lines=settings.lines if settings else None,
            workspace=workspace,
            session=session,
        )
    )
    return outcome if isinstance(outcome, Rewrite) else Skipped(outcome.reason)


def apply_before(
    draw: Draw,
    dialect: Dialect,
    seed: int,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    workspace: str | None = None,
    session: str | None = None,
) -> Rewrite:
    """What stands in the place of the result of a call that ``draw`` keeps from running.

    ``arguments`` are the model's own; ``workspace`` is the harness's directory and ``session`` its own name
    for the session, where they are known: some texts name them. ``is_error`` of the outcome None: the result
    has no error flag.

    Raises ``ValueError`` when ``draw`` fired no before-kind, when a limit holds it back, or when the dialect
    has no words of the kind for this tool (``fitting_kinds`` leaves those out): such a call is not withheld.
    """
    kind = KINDS.get(draw.kind or "")
    if kind is None or kind.answer is None:
        raise ValueError(f"not a before-kind that fired: {draw.kind!r}")
    if draw.limited is not None:
        raise ValueError(f"{draw.kind} on {tool} is held back by {draw.limited}")
    return kind.answer(
        Withheld(
            tool=tool,
            rule=dialect.rule(tool),
            form=dialect.own_form(tool),
            arguments=arguments,
            stream=PayloadStream(draw.key, seed),
            workspace=workspace,
            session=session,
        )
    )


def lacks_target(dialect: Dialect, tool: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the call leaves out what its tool is about: the harness itself refuses such a call."""
    target = dialect.rule(tool).target
    return target is not None and target not in arguments


def _first_line(form: Form, arguments: Mapping[str, Any]) -> int:
    """The number of the first line that the call asked for."""
    value = arguments.get(form.first_line) if form.first_line else None
    return int(value) if isinstance(value, int | float) and 1 <= value < 1e9 else 1
