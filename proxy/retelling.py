"""Texts of a request in which the harness retells results: replaced once, and the same way ever after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from proxy.flattened import Shown, newest_told, retell
from proxy.protocols.text import json_string
from proxy.protocols.wire import Edit, ParsedRequest, Part, WireFormat
from scheduler.dialect import Flattened


class NewText(NamedTuple):
    """A text that was replaced for the first time, by the digest of what it was."""

    digest: bytes
    new: str


class TextEdit(NamedTuple):
    """An edit in item ``item``; its offsets are absolute."""

    item: int
    edit: Edit


class Retold(NamedTuple):
    """What the texts of a request come to. ``told``: those that retell a result, as they go on."""

    edits: tuple[TextEdit, ...]
    new: tuple[NewText, ...]
    doubts: tuple[str, ...]
    told: tuple[str, ...]


NOTHING = Retold((), (), (), ())


def retold(
    wire: WireFormat,
    flattened: Flattened,
    request: ParsedRequest,
    first_item: int,
    scope: str,
    remembered: Callable[[bytes], str | None],
    shown: Callable[[], Shown],
    decided: Callable[[Sequence[str]], Shown],
) -> Retold:
    """Looks at every text from ``first_item`` on.

    ``scope`` tells texts apart that are the same and were told on different occasions. ``remembered`` gives
    what a text was replaced by before; ``shown`` is asked only when a text that is not remembered retells a
    result.
    """
    edits: list[TextEdit] = []
    new: list[NewText] = []
    doubts: list[str] = []
    told: list[str] = []
    known: Shown | None = None
    for index, before, part in _candidates(wire, flattened, request, first_item):
        text = part.text or ""
        digest = blake2b(
            f"{scope}\0{before}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16
        ).digest()
        replaced = remembered(digest)
        if replaced is None:
            known = known or shown()
            newest = newest_told(flattened, before, text, known)
            if newest is not None:
                known = decided(newest)
            found = retell(flattened, before, text, known)
            replaced = found.text
            doubts += found.doubts
            if replaced != text or found.doubts:
                new.append(NewText(digest, replaced))
        told.append(replaced)
        if replaced != text:
            edits.append(TextEdit(index, wire.edit_text(request, part, replaced)))
    return Retold(tuple(edits), tuple(new), tuple(doubts), tuple(told))


def _candidates(
    wire: WireFormat, flattened: Flattened, request: ParsedRequest, first_item: int
) -> Iterator[tuple[int, str, Part]]:
    """(item, the text before, the text) of every text that can retell something."""
    # Harnesses spell JSON in one way; decoding every text only to look into it would cost more than all else.
    needle = json_string(flattened.open)[1:-1]
    for index in range(first_item, len(request.items)):
        item = request.items[index]
        start, end = request.base + item.at.start, request.base + item.at.end
        if item.role == "assistant" or request.body.find(needle, start, end) < 0:
            continue
        earlier = wire.texts(request, request.items[index - 1]) if index else ()
        before = (earlier[-1].text or "") if earlier else ""
        for part in wire.texts(request, item):
            text = part.text or ""
            if flattened.open in text:
                yield index, before[-2048:], part
            before = text
