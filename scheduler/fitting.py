"""Which kinds can be done to which calls: the family's, less what a tool has no words for, less known gaps.

``gaps_of`` writes it all down as one small table, which the log keeps: whoever draws from the table draws
the same with the log alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from scheduler.call import FAMILIES, Family
from scheduler.capability import Capability
from scheduler.dialect import Dialect, ToolRule
from scheduler.faults import KINDS
from scheduler.form import compiled
from scheduler.profile import Profile

# tool → the kinds that cannot be done to it. A key between slashes is a pattern, "*" stands for the others; a
# family behind "@" is about all calls that count as it, on top of that.
Gaps = Mapping[str, Collection[str]]

OTHER_TOOLS = "*"
_FAMILY = "@"
_NO_GAPS: Gaps = {}


def fitting_kinds(
    dialect: Dialect, tool: str, family: str, gaps: Collection[str] = frozenset()
) -> tuple[str, ...]:
    """The kinds that can be done to a call of ``tool`` that counts as ``family``, but for ``gaps``.

    A before-kind needs words of the dialect for this tool, and a way to keep it from running.
    """
    sayable = dialect.sayable(dialect.rule(tool))
    return tuple(
        kind.name
        for kind in KINDS.values()
        if family in kind.families
        and kind.name not in gaps
        and (kind.timing == "after" or kind.name in sayable)
    )


def gaps_of(
    dialect: Dialect, profile: Profile, known: Gaps = _NO_GAPS, by_family: Gaps = _NO_GAPS
) -> dict[str, list[str]]:
    """All that keeps kinds of ``profile`` from tools of this harness: no words, or a ``known`` gap.

    ``known``: tool → kinds, as a capability file says it; ``by_family``: family → kinds that another harness
    cannot do to it (``family_gaps``). Tools that are like the others have no entry.
    """
    live = _live(profile)
    table = {OTHER_TOOLS: _unsaid(dialect, dialect.rule(""), live)}
    for pattern, rule in dialect.tool_patterns.items():
        table[f"/{pattern}/"] = _unsaid(dialect, rule, live)
    for tool in [*dialect.tools, *(tool for tool in known if tool not in dialect.tools)]:
        missing = {
            *_unsaid(dialect, dialect.rule(tool), live),
            *(live & {*known.get(tool, ())}),
        }
        if missing != {*gaps_for(table, tool)}:
            table[tool] = sorted(missing)
    table |= shared_gaps(profile, by_family)
    if not any(table.values()):
        return {}
    return table


def shared_gaps(profile: Profile, by_family: Gaps) -> dict[str, list[str]]:
    """The entries of a table for kinds of ``profile`` that another harness cannot do: by family."""
    live = _live(profile)
    table: dict[str, list[str]] = {}
    for family in FAMILIES:
        shared = {kind for kind in by_family.get(family, ()) if family in KINDS[kind].families}
        if shared & live:
            table[f"{_FAMILY}{family}"] = sorted(shared & live)
    return table


def shared_part(gaps: Gaps) -> dict[str, list[str]]:
    """The entries of a whole table that are about families."""
    return {key: sorted(kinds) for key, kinds in gaps.items() if key.startswith(_FAMILY)}


def _live(profile: Profile) -> set[str]:
    return {kind for kinds in profile.live_kinds().values() for kind in kinds} | {
        rule.kind for rule in profile.force
    }


def family_gaps(dialect: Dialect, capability: Capability) -> dict[Family, set[str]]:
    """family → the kinds that some tool of this harness version cannot do to a call that counts as it.

    What two harnesses leave out together, their draws have in common.
    """
    gaps = capability.gaps()
    found: dict[Family, set[str]] = {}
    for tool in capability.tools:
        for family in _families(dialect.rule(tool)):
            fitting = fitting_kinds(dialect, tool, family, gaps.get(tool, ()))
            missing = {
                name for name, kind in KINDS.items() if family in kind.families and name not in fitting
            }
            if missing:
                found.setdefault(family, set()).update(missing)
    return found


def _families(rule: ToolRule) -> set[Family]:
    """What calls of a tool can count as: a shell can be used to search and to list."""
    return {"shell", "search", "list"} if rule.family == "shell" else {rule.family}


def _unsaid(dialect: Dialect, rule: ToolRule, live: Collection[str]) -> list[str]:
    families = _families(rule)
    sayable = dialect.sayable(rule)
    return sorted(
        name
        for name in live
        if KINDS[name].timing == "before" and families & KINDS[name].families and name not in sayable
    )


def gaps_for(gaps: Gaps, tool: str) -> Collection[str]:
    """What ``gaps`` says of ``tool``: its own entry, a pattern's, one in another case, or the others'."""
    if tool in gaps and not _is_pattern(tool) and not tool.startswith(_FAMILY):
        return gaps[tool]
    for key, kinds in gaps.items():
        if _is_pattern(key) and compiled(key[1:-1]).fullmatch(tool):
            return kinds
    folded = tool.casefold()
    for key, kinds in gaps.items():
        if key.casefold() == folded and not _is_pattern(key) and not key.startswith(_FAMILY):
            return kinds
    return gaps.get(OTHER_TOOLS, ())


def _is_pattern(key: str) -> bool:
    return len(key) > 1 and key[0] == key[-1] == "/"


def fitting_by(gaps: Gaps, tool: str, family: str) -> tuple[str, ...]:
    """The kinds that a table of gaps leaves for a call of ``tool`` that counts as ``family``."""
    missing = {*gaps_for(gaps, tool), *gaps.get(f"{_FAMILY}{family}", ())}
    return tuple(kind.name for kind in KINDS.values() if family in kind.families and kind.name not in missing)
