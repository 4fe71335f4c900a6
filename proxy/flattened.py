"""Results that a harness retells inside a text: one that sums a conversation up may flatten it into prose,
and one that has summed it up may tell again which files it had read.

What the model never saw must not come back to it that way, so what was replaced is replaced there too. Each
retold result is known again by its mark, a digest of the text as this harness retells it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import islice, pairwise
from typing import NamedTuple

import orjson

from ledger.memory import CallRow
from scheduler.dialect import Dialect, Flattened
from scheduler.form import compiled

# A retold result that quotes what stands between results has more than one place where it could end.
_ENDS_TRIED = 32
_NEAR = 4096


class Showing(NamedTuple):
    """One result of the conversation: how it would be retold, and what stands in its place.

    ``new`` None: the model was shown what the tool printed. ``original`` is what was replaced.
    """

    mark: bytes
    target: str
    new: str | None
    original: str | None = None


class Told(NamedTuple):
    """A retold result, from the first character of ``open`` to its end; ``mark`` None: not known.

    ``own_end``: where the tool's own output ends and what the harness appended to it begins.
    """

    start: int
    inside: int
    own_end: int
    end: int
    mark: bytes | None
    target: str | None


class Retelling(NamedTuple):
    """A text with what was replaced in it, and what could not be told for sure."""

    text: str
    doubts: tuple[str, ...]


def shown_form(flattened: Flattened, text: str) -> str:
    """``text`` as the harness retells it: its first code units, and how many more there were."""
    if flattened.limit is None or len(text) * 2 <= flattened.limit:
        return text
    units = text.encode("utf-16-le", "surrogatepass")
    left = len(units) // 2 - flattened.limit
    if left <= 0:
        return text
    # A pair that is cut in its middle leaves a half that no parser takes back as it was.
    kept = units[: flattened.limit * 2].decode("utf-16-le", "replace")
    return kept + flattened.cut.replace("{left}", str(left))


def _digest(form: str) -> bytes:
    form = form.strip()
    try:
        raw = form.encode("utf-8")
    except UnicodeEncodeError:
        raw = form.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode("utf-8")
    return blake2b(raw, digest_size=16).digest() if form else b""


def mark_of(flattened: Flattened, text: str) -> bytes:
    """The mark of a result; empty for one of blanks alone, which says nothing."""
    return _digest(shown_form(flattened, text))


def showings_of(flattened: Flattened, rows: Sequence[CallRow]) -> list[Showing]:
    """What the model was shown of each answered call, in the model's order."""
    found = []
    for row in rows:
        if not row.answered or not row.mark:
            continue
        true = row.payload is None or row.skipped == "superseded"
        if row.skipped == "dereferenced" and flattened.which == "latest":
            true = True  # its mark is that of the true text
        found.append(
            Showing(row.mark, row.target, None if true else row.payload, None if true else row.original)
        )
    return found


def withheld_in(rows: Iterable[CallRow]) -> list[Withheld]:
    """The calls among ``rows`` that the harness knows by another name."""
    return [
        Withheld(row.wire_name, row.tool, row.arguments.decode("utf-8", "surrogatepass"))
        for row in rows
        if row.wire_name is not None and not row.is_swapped
    ]


def owns_of(dialect: Dialect, told: str) -> list[str]:
    """What the tool's own output can be in a retold result, the likeliest first: what the harness appended to
    it is retold with it, and may be cut."""
    cuts = [told.find(appendix.open) for appendix in dialect.appended]
    return [
        dialect.split_appended(told)[0],
        told,
        *(told[:at].rstrip() for at in sorted(cuts) if at > 0),
    ]


def find_told(
    flattened: Flattened, before: str, text: str, known: set[bytes], owns: Callable[[str], Sequence[str]]
) -> list[Told]:
    """The retold results of ``text``; ``before`` is the text that stands before it, ``owns`` gives what the
    tool's own output can be in a retold one.

    Where a result ends is told by its mark, since it can hold anything, also what looks like its end.
    """
    found = []
    at = text.find(flattened.open)
    while at >= 0:
        inside = at + len(flattened.open)
        if at and text[at - 1] != "\n":
            at = text.find(flattened.open, at + 1)
            continue
        ends = [m.start() for m in islice(compiled(flattened.end).finditer(text, inside), _ENDS_TRIED)]
        marks = ((end, own, _digest(own)) for end in ends for own in owns(text[inside:end]))
        end = ends[0] if ends else len(text)
        unknown = (end, owns(text[inside:end])[0], None)
        end, own, mark = next((entry for entry in marks if entry[2] in known), unknown)
        target = _target(flattened, before, text[:at])
        found.append(Told(at, inside, inside + len(own), end, mark, target))
        at = text.find(flattened.open, max(end, inside))
    return found


def _target(flattened: Flattened, before: str, text: str) -> str | None:
    """The target that is named right before a retold result."""
    if flattened.target is None:
        return None
    near = (before + "\n" + text)[-_NEAR:]
    named = [match["target"] for match in compiled(flattened.target).finditer(near)]
    if not named:
        return None
    try:
        return str(orjson.loads(f'"{named[-1]}"'))
    except orjson.JSONDecodeError:
        return str(named[-1])


class Withheld(NamedTuple):
    """A call that went to the harness under a name that no tool has."""

    wire_name: str
    tool: str
    arguments: str


class Shown(NamedTuple):
    """What the model was shown in the conversation that is retold, and in the rest of the run.

    ``target_of`` gives a path as the targets of the showings are written. ``withheld`` are the run's calls
    that were kept from running, in order. ``awaited``: how many calls of the newest answer had no result yet;
    ``at_stake``: one of those that wait is to fail. ``owns`` gives what the tool's own output can be in a
    retold result.
    """

    here: Sequence[Showing]
    elsewhere: Sequence[Showing]
    target_of: Callable[[str], str]
    withheld: Sequence[Withheld] = ()
    awaited: int = 0
    at_stake: bool = False
    owns: Callable[[str], Sequence[str]] = lambda told: (told,)


def newest_told(flattened: Flattened, before: str, text: str, shown: Shown) -> list[str] | None:
    """The results that the calls of the newest answer had, in the model's order, where they are told whole
    behind all that was shown, and last of all; None where that is not for sure."""
    newest, marks = flattened.newest, [showing.mark for showing in shown.here]
    if newest is None or not shown.awaited or flattened.which != "each":
        return None
    known = {*marks, *(other.mark for other in shown.elsewhere)}
    told = find_told(flattened, before, text, known, shown.owns)
    fresh = told[len(told) - shown.awaited :]
    older = told[: len(told) - shown.awaited]
    if len(fresh) != shown.awaited or [item.mark for item in older[-1:]] != marks[-1:]:
        return None
    # One that is like an older one is newer for sure only where all older ones stand before it.
    if any(item.mark in marks for item in fresh) and [item.mark for item in older] != marks:
        return None
    if any(_is_cut(flattened, text[item.inside : item.end]) for item in fresh):
        return None
    gaps = [text[one.end : other.start] for one, other in pairwise(fresh)]
    if not all(compiled(newest.between).fullmatch(gap) for gap in gaps):
        return None
    # One that has in it what stands behind the last could go on behind that.
    ends = list(compiled(newest.after).finditer(text, fresh[0].inside))
    if [end.start() for end in ends] != [fresh[-1].end]:
        return None
    return [text[item.inside : item.own_end] for item in fresh]


def _is_cut(flattened: Flattened, told: str) -> bool:
    return (
        flattened.limit is not None and len(told.encode("utf-16-le", "surrogatepass")) > 2 * flattened.limit
    )


def retell(flattened: Flattened, before: str, text: str, shown: Shown) -> Retelling:
    """``text`` with every result that was replaced replaced in it."""
    showings = shown.here
    known = {showing.mark for showing in (*shown.here, *shown.elsewhere)}
    told = [
        item._replace(target=None if item.target is None else shown.target_of(item.target))
        for item in find_told(flattened, before, text, known, shown.owns)
        if text[item.inside : item.end].strip()
    ]
    choices = _each(told, showings) if flattened.which == "each" else [_latest(i, showings) for i in told]
    edits: list[tuple[int, int, str]] = []
    doubts: list[str] = []
    marks = [showing.mark for showing in showings]
    known_here = [item.mark for item in told if item.mark in marks]
    unseen = told and (told[-1].mark is None or not _starts(known_here, marks))
    if shown.at_stake and flattened.which == "each" and unseen:
        # Results are told in order: the newest stands last, and can be like one that was shown.
        doubts.append("the result of a call that was to fail is first seen where it is retold, as it came")
    for item, choice in zip(told, choices, strict=True):
        news = choice or {other.new for other in shown.elsewhere if other.mark == item.mark}
        if len(news) > 1:
            doubts.append("equal results of which not all were replaced are retold, and which is not plain")
        if item.mark is None and _tells_a_part(text[item.inside : item.end], item.target, showings):
            doubts.append("a part of what is retold was replaced when it was first shown")
        new = next((entry for entry in news if entry is not None), None)
        if new is not None:
            edits.append(_replacement(text, item, shown_form(flattened, new)))
    named = _own_names(flattened, _spliced(text, edits), shown.withheld)
    return Retelling(named.text, (*doubts, *named.doubts))


def _own_names(flattened: Flattened, text: str, withheld: Sequence[Withheld]) -> Retelling:
    """``text`` with every call that was kept from running under its own name."""
    doubts = []
    for name in dict.fromkeys(call.wire_name for call in withheld if call.wire_name in text):
        calls = [call for call in withheld if call.wire_name == name]
        if flattened.lost_call is not None:
            parts = compiled(flattened.lost_call.replace("{wire_name}", re.escape(name))).split(text)
            lost = len(parts) - 1
            if lost != len(calls) and len({call.arguments for call in calls}) > 1:
                doubts.append("not all calls that were kept from running are retold, and which is not plain")
            # The oldest may have been summed up before.
            own = [*calls, *calls[-1:] * lost][:lost] if lost > len(calls) else calls[len(calls) - lost :]
            text = parts[0] + "".join(_called(call) + part for call, part in zip(own, parts[1:], strict=True))
        text = text.replace(name, calls[0].tool)
    return Retelling(text, tuple(doubts))


def _called(call: Withheld) -> str:
    try:
        arguments = orjson.dumps(orjson.loads(call.arguments)).decode()
    except orjson.JSONDecodeError:
        arguments = call.arguments
    return f"{call.tool}({arguments})"


def _each(told: Sequence[Told], showings: Sequence[Showing]) -> list[set[str | None]]:
    """What was shown for each retold result, when every result is retold once and in order: the retold ones
    are a stretch of all, and where it lies is told by all of them together."""
    marks = [showing.mark for showing in showings]
    starts = _starts([item.mark for item in told if item.mark in set(marks)], marks)
    choices: list[set[str | None]] = []
    place = 0
    for item in told:
        if item.mark is None or item.mark not in marks:
            choices.append(set())
        elif starts:
            choices.append({showings[start + place].new for start in starts})
            place += 1
        else:
            choices.append({showing.new for showing in showings if showing.mark == item.mark})
    return choices


def _starts(known: Sequence[bytes | None], marks: Sequence[bytes]) -> list[int]:
    """Where ``known`` can begin in ``marks``, as a stretch of them."""
    return [at for at in range(len(marks) - len(known) + 1) if marks[at : at + len(known)] == known]


def _latest(item: Told, showings: Sequence[Showing]) -> set[str | None]:
    """What was shown last of the target, or of each target that it could be."""
    alike = [showing for showing in showings if showing.mark == item.mark]
    same = [showing for showing in alike if showing.target == item.target]
    return set({showing.target: showing.new for showing in same or alike}.values())


def _tells_a_part(told: str, target: str | None, showings: Sequence[Showing]) -> bool:
    """Whether ``told`` has all lines of a smaller result of the same target that the model never saw."""
    last = {showing.mark: showing for showing in showings if showing.target == target}
    lines = f"\n{told}\n"
    return target is not None and any(
        showing.original is not None and f"\n{showing.original.strip()}\n" in lines
        for showing in last.values()
    )


def _replacement(text: str, item: Told, form: str) -> tuple[int, int, str]:
    if form.strip() or item.own_end < item.end:
        return item.inside, item.own_end, form
    # An empty result is not retold at all.
    if text.startswith("\n\n", item.end):
        return item.start, item.end + 2, ""
    start = item.start - 2 if text.endswith("\n\n", 0, item.start) else item.start
    return start, item.end, ""


def _spliced(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    out: list[str] = []
    at = 0
    for start, end, new in edits:
        out += (text[at:start], new)
        at = end
    return "".join((*out, text[at:])) if edits else text
