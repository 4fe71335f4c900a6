"""What the calls of one request did: which changed the workspace, which failed, which never ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from harness.workspace import Snapshot
from proxy.conversation import decode_draw
from proxy.observer import Answered
from scheduler.dialect import Dialect, has_failed
from scheduler.faults import KINDS

# Tools of these families do not change files; of the others it is looked at.
LOOKING = frozenset({"read", "search", "list", "fetch"})
WRITING = frozenset({"write", "edit"})


class Effect(NamedTuple):
    """One call that the harness answered. ``ran``: its tool did run, as far as the result tells."""

    answered: Answered
    ran: bool
    failed: bool
    changed: bool

    @property
    def is_applied(self) -> bool:
        """Whether it applied a patch: a write or edit that did not fail, a command that changed files."""
        family = self.answered.row.family
        if not self.ran or self.failed:
            return False
        return family in WRITING or (family == "shell" and self.changed)


def may_change(answered: Iterable[Answered]) -> bool:
    """Whether the workspace has to be looked at for the sake of these calls."""
    return any(one.row.family not in LOOKING for one in answered)


def effects_of(
    dialect: Dialect,
    answered: Sequence[Answered],
    workspace: Path,
    before: Snapshot,
    after: Snapshot,
) -> list[Effect]:
    """The calls of one request in the model's order.

    Parallel calls share one look at the workspace: what a write or edit names as its target is its own, what
    nobody named was changed by the commands.
    """
    left = set(after.changed_since(before))
    writers = [one for one in answered if one.row.family not in LOOKING]
    changed: dict[int, bool] = {}
    if len(writers) == 1:
        changed[id(writers[0])] = bool(left)
    else:
        named = [(one, _own(dialect, one, workspace, left)) for one in writers]
        left -= {path for _, own in named for path in own or ()}
        changed = {id(one): bool(left) if own is None else bool(own) for one, own in named}
    found = [
        Effect(one, _has_run(dialect, one), _failed(dialect, one), changed.get(id(one), False))
        for one in answered
    ]
    return sorted(found, key=lambda effect: effect.answered.row.position)


def command_of(dialect: Dialect, answered: Answered) -> str | None:
    """The command line of a call, None for a call of a tool that runs none."""
    rule = dialect.rule(answered.row.tool)
    if rule.family != "shell" or rule.target is None:
        return None
    said = arguments_of(answered).get(rule.target)
    if isinstance(said, list):
        return " ".join(str(word) for word in said)
    return said if isinstance(said, str) else None


def arguments_of(answered: Answered) -> Mapping[str, Any]:
    """The arguments as an object; empty when they are none."""
    try:
        value = orjson.loads(answered.arguments)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _own(dialect: Dialect, one: Answered, workspace: Path, changed: set[str]) -> set[str] | None:
    """The changed paths that a call names; None for a call that does not say what it touches."""
    target = dialect.rule(one.row.tool).target
    path = arguments_of(one).get(target) if target is not None else None
    if one.row.family not in WRITING or not isinstance(path, str):
        return None
    inside = (workspace / path).resolve()
    if not inside.is_relative_to(workspace.resolve()):
        return set()
    name = inside.relative_to(workspace.resolve()).as_posix()
    # A file in a new directory changes both.
    return {other for other in changed if other == name or name.startswith(f"{other}/")}


def _failed(dialect: Dialect, one: Answered) -> bool:
    form = dialect.form(one.row.tool, one.row.family)
    return has_failed(form, one.text or "", one.is_error)


def _has_run(dialect: Dialect, one: Answered) -> bool:
    """Not when a fault withheld the call, nor when the harness itself put words in the result's place."""
    drawn = decode_draw(one.row.draw)
    kind = KINDS.get(drawn.kind) if drawn.kind is not None else None
    if kind is not None and kind.timing == "before" and one.row.skipped is None:
        return False
    return one.text is None or not dialect.is_superseding(one.text)
