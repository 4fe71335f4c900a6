"""What wire formats in JSON have in common: lists with the places of their elements, contents that are one
string or a list of blocks, edits that touch only what they must, and calls that are answered by their place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from proxy.protocols.history import SEPARATORS, Cut, all_items, cut, decoded, length, offset_in
from proxy.protocols.text import json_string, text_of, without_lone_surrogates
from proxy.protocols.wire import (
    KEEP,
    REMOVE,
    Edit,
    Item,
    ParsedRequest,
    Part,
    PartPlan,
    Place,
    Span,
    WireError,
)

Raw = msgspec.Raw
NONE = msgspec.Raw()
raws = msgspec.json.Decoder(list[Raw])
_fields = msgspec.json.Decoder(dict[str, Raw])


class _TextBlock(msgspec.Struct):
    type: Any = None
    text: Raw = NONE


_text_block = msgspec.json.Decoder(_TextBlock)


def opens_with(raw: Raw | bytes, char: bytes) -> bool:
    """Whether a value starts with ``char``: what a raw value is can be told from its first byte."""
    return bytes(memoryview(raw)[:1]) == char


def elements(content: Raw | bytes, at: int) -> list[tuple[Span, Raw]]:
    """The elements of a raw list whose ``[`` stands at ``at``, with their places; ``WireError``."""
    whole = bytes(content)
    found: list[tuple[Span, Raw]] = []
    inside = 1
    for element in decoded(raws, whole):
        while whole[inside] in SEPARATORS:
            inside += 1
        end = inside + length(element)
        found.append((Span(at + inside, at + end), element))
        inside = end
    return found


def fields(raw: Raw | bytes) -> dict[str, Raw]:
    """The fields of a raw object; ``WireError`` when it is something else."""
    return decoded(_fields, raw)


def plain_text(raw: Raw) -> str | None:
    """The text of a raw string; None for any other value, or none."""
    return text_of(bytes(raw)) if opens_with(raw, b'"') else None


# -- requests --


class Taken(NamedTuple):
    """A body taken apart: ``body`` is what was parsed (see ``ParsedRequest``), ``items`` its history."""

    body: bytes
    cut: Cut
    items: tuple[Item, ...]


def take_apart(
    given: bytes,
    decode: Callable[[bytes], Any],
    array: str,
    previous: ParsedRequest | None,
    item_of: Callable[[Span, Raw, Sequence[Item]], Item],
) -> Taken:
    """As ``history.cut``; ``item_of`` makes an item of an element, given the items before it."""
    body = given
    try:
        found = cut(body, decode, array, previous)
    except WireError:
        # Places are the same in what is parsed instead; what leaves is spliced from the body that came.
        body = without_lone_surrogates(given)
        if body is given:
            raise
        found = cut(body, decode, array, previous)
    items = list(all_items(previous, found.shared, []))
    for at, raw in found.new:
        items.append(item_of(at, raw, items))
    return Taken(body, found, tuple(items))


def answered_call(items: Sequence[Item], name: str, earlier: Sequence[Place]) -> Place | None:
    """The call of the last answer that a result without an id belongs to: by name and order.

    ``earlier``: the calls that results before it in its own item belong to. When all calls of that name have
    a result, the round begins again: a resumed session can send every result twice.
    """
    for index in range(len(items) - 1, -1, -1):
        if items[index].calls:
            break
    else:
        return None
    done = [place.call for item in items[index + 1 :] for result in item.results if (place := result.answers)]
    done += [place.call for place in earlier]
    calls = items[index].calls
    named = [number for number, call in enumerate(calls) if call.tool == name] or list(range(len(calls)))
    # The one with the fewest results so far, and among those the first.
    return Place(index, min(named, key=done.count))


# -- contents --


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a wire spells a content list.

    ``texts``: the types of blocks with plain text. ``new``: a text block up to its text. ``nothing``: what
    stands in the place of a list of which nothing is left.
    """

    texts: frozenset[str]
    new: bytes
    nothing: bytes


def parts_of(content: Raw | bytes, at: int, spelling: Spelling) -> tuple[Part, ...]:
    """The parts of a content that starts at ``at``: one for a string, one a block for a list."""
    if opens_with(content, b'"'):
        return (Part(Span(at, at + memoryview(content).nbytes), text_of(bytes(content))),)
    if not opens_with(content, b"["):
        return ()
    return tuple(Part(span, _block_text(element, spelling)) for span, element in elements(content, at))


def _block_text(element: Raw, spelling: Spelling) -> str | None:
    block = decoded(_text_block, element)
    is_text = isinstance(block.type, str) and block.type in spelling.texts and length(block.text)
    return text_of(bytes(block.text)) if is_text else None


def text_edit(request: ParsedRequest, part: Part, text: str) -> Edit:
    """Only the string itself is replaced; a block keeps its other fields (cache marks among them)."""
    raw = request.slice(part.at)
    start, end = 0, len(raw)
    if raw[:1] != b'"':
        inner = decoded(_text_block, raw).text
        start = offset_in(inner, raw)
        end = start + length(inner)
    at = request.base + part.at.start
    return Edit(at + start, at + end, json_string(text))


def content_edits(
    request: ParsedRequest,
    content: Raw,
    at: int,
    parts: Sequence[Part],
    plan: Sequence[PartPlan],
    spelling: Spelling,
) -> list[Edit]:
    """The edits that carry out ``plan`` on a content that starts at ``at`` of the body."""
    if opens_with(content, b'"'):
        return [
            text_edit(request, part, entry)
            for part, entry in zip(parts, plan, strict=True)
            if isinstance(entry, str)
        ]
    # An empty text block is refused by the APIs; a content without any is not.
    plan = [REMOVE if entry == "" else entry for entry in plan]
    texts = {i: entry for i, entry in enumerate(plan) if isinstance(entry, str)}
    if REMOVE not in plan and len(plan) == len(parts) and all(parts[i].text is not None for i in texts):
        return [text_edit(request, parts[i], entry) for i, entry in texts.items()]
    kept: list[bytes] = []
    for i, entry in enumerate(plan):
        if entry is REMOVE:
            continue
        raw = request.slice(parts[i].at) if i < len(parts) else b""
        if entry is KEEP:
            kept.append(raw)
        elif raw and parts[i].text is not None:
            edit = text_edit(request, parts[i], str(entry))
            start = request.base + parts[i].at.start
            kept.append(raw[: edit.start - start] + edit.new + raw[edit.end - start :])
        else:
            kept.append(spelling.new + json_string(str(entry)) + b"}")
    new = b"[" + b",".join(kept) + b"]" if kept else spelling.nothing
    return [Edit(at, at + length(content), new)]


def value_edit(raw: bytes, at: int, name: bytes, value: Raw, new: bytes) -> list[Edit]:
    """The edit that makes ``new`` the field ``name`` of the object ``raw``, which stands at ``at`` of the
    body; ``value`` is what the field is now."""
    if length(value):
        start = at + offset_in(value, raw)
        return [Edit(start, start + length(value), new)]
    end = at + len(raw) - 1
    comma = b"," if raw[1:-1].strip(b" \t\r\n") else b""
    return [Edit(end, end, comma + b'"' + name + b'":' + new)]


def renaming(raw: bytes, at: int, name: Raw, tool: str) -> list[Edit]:
    """The edit that makes ``tool`` the name in the object ``raw``, which stands at ``at``, if it has one."""
    return value_edit(raw, at, b"name", name, json_string(tool)) if opens_with(name, b'"') else []


def removal(raw: bytes, at: int, name: bytes, value: Raw) -> Edit:
    """The edit that takes the field ``name`` out of the object ``raw``, with one of the commas around it."""
    start = offset_in(value, raw)
    end = start + length(value)
    before = re.compile(rb',?\s*"' + re.escape(name) + rb'"\s*:\s*$').search(raw, 0, start)
    if before is None:  # a key that is spelled with escapes: the field stays, and is false
        return Edit(at + start, at + end, b"false")
    if not before[0].startswith(b","):
        behind = re.compile(rb"\s*,").match(raw, end)
        end = behind.end() if behind is not None else end
    return Edit(at + before.start(), at + end, b"")


# -- what an item is, whatever a turn does to it --


def ordered(raw: Raw | bytes, leave_out: Collection[str], inner: Callable[[str, Raw], bytes]) -> bytes:
    """An object with its fields in the order of their names, without those to ``leave_out``; ``inner`` gives
    what a field's value is."""
    found = fields(raw)
    parts = [_key(name) + inner(name, found[name]) for name in sorted(found) if name not in leave_out]
    return b"{" + b",".join(parts) + b"}"


@lru_cache(maxsize=1024)
def _key(name: str) -> bytes:
    # The names of fields are few.
    return json_string(name) + b":"


def content_essence(content: Raw, text_type: bytes, block: Callable[[Raw], bytes]) -> bytes:
    """A content with every block as ``block`` gives it; a string is one block of text."""
    if opens_with(content, b'"'):
        return b'[{"text":' + bytes(content) + b',"type":"' + text_type + b'"}]'
    if not opens_with(content, b"["):
        return bytes(content)
    blocks = (
        block(element) if opens_with(element, b"{") else bytes(element) for element in decoded(raws, content)
    )
    return b"[" + b",".join(blocks) + b"]"
