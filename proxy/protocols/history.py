"""Finding the new part of a history that is sent again on every turn.

A request body repeats the last one of its conversation and adds a message or two. What the last request
proved about the shared bytes holds again: they are complete, valid array elements. So they are cut out, the
small document that remains is parsed, and when its history array starts at the same place the whole body is
known to be valid with those elements put back. The result is a function of the body alone: the request that
it is compared with changes only how much has to be parsed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np

from proxy.protocols.wire import Item, ParsedRequest, Span, WireError

# Slices below malloc's mmap threshold: larger ones cost a page fault for every 4 KB.
_CHUNK = 1 << 15
_ANCHOR = 96
SEPARATORS = b" \t\r\n,"
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])
_text = msgspec.json.Decoder(str)


class RawItem(NamedTuple):
    """One array element: where it stands (from the first byte after the ``[``) and its bytes."""

    at: Span
    raw: msgspec.Raw


class Cut(NamedTuple):
    """A body taken apart: the decoded top level, and the history's new elements."""

    top: Any
    history: msgspec.Raw
    base: int
    shared: int
    new: list[RawItem]
    tools: bytes


def length(view: msgspec.Raw) -> int:
    """How many bytes a Raw has; 0 for one that was not in the document."""
    return memoryview(view).nbytes


def value_of(view: msgspec.Raw, whole: msgspec.Raw, key: bytes) -> int:
    """Where the value of the top-level ``key`` of the object ``whole`` starts.

    When the object ends with ``"key":value}`` that is read off the bytes: what stands between a colon and the
    closing brace is the object's last value. Behind a backslash, the quote belongs to another key.
    """
    raw = bytes(whole)
    tail = b'"' + key + b'":' + bytes(view) + b"}"
    if raw.endswith(tail) and raw[-len(tail) - 1 : -len(tail)] != b"\\":
        return len(raw) - memoryview(view).nbytes - 1
    return offset_in(view, whole)


def offset_in(view: msgspec.Raw, whole: msgspec.Raw | bytes) -> int:
    """Where ``view`` starts in ``whole``, which it was decoded from: a Raw is a view into that buffer."""
    return _address(view) - _address(whole)


def _address(buffer: msgspec.Raw | bytes) -> int:
    return int(np.frombuffer(buffer, np.uint8).ctypes.data)


def common_prefix(a: bytes, a_at: int, b: bytes, b_at: int, limit: int) -> int:
    """How many bytes ``a[a_at:]`` and ``b[b_at:]`` share, at most ``limit``."""
    limit = min(limit, len(a) - a_at, len(b) - b_at)
    done = 0
    step = _CHUNK
    while done < limit:
        size = min(step, limit - done)
        if a[a_at + done : a_at + done + size] == b[b_at + done : b_at + done + size]:
            done += size
        elif size == 1:
            return done
        else:
            step = max(size // 2, 1)
            limit = done + size
    return done


def _skip(body: bytes, at: int) -> int:
    while body[at : at + 1] in (b" ", b"\t", b"\r", b"\n"):
        at += 1
    return at


def _shared(body: bytes, previous: ParsedRequest) -> tuple[int, int, int]:
    """(offset of the array's first byte, shared items, their bytes with the comma), or (-1, 0, 0)."""
    if not previous.items:
        return -1, 0, 0
    old, old_base = previous.body, previous.base
    anchor_start = max(0, old_base - 16)
    anchor = old[anchor_start : old_base + _ANCHOR]
    if body[anchor_start : old_base + _ANCHOR] == anchor:
        base = old_base
    else:
        found = body.find(anchor)
        if found < 0:
            return -1, 0, 0
        base = found + old_base - anchor_start
    ends = [item.at.end for item in previous.items]
    length = common_prefix(body, base, old, old_base, ends[-1])
    count = bisect_right(ends, length)
    if not count:
        return -1, 0, 0
    # What is cut out must leave a list behind: with its comma when an element follows, else up to the end.
    after = _skip(body, base + ends[count - 1])
    if body[after : after + 1] == b"]":
        return base, count, ends[count - 1]
    follows = _skip(body, after + 1)
    if body[after : after + 1] == b"," and body[follows : follows + 1] not in b"],":
        return base, count, after + 1 - base
    return -1, 0, 0


def _known_tools(reduced: bytes, tools: bytes) -> int:
    """Where the very tool list of the last request stands in ``reduced``, or -1."""
    if len(tools) < 1024:
        return -1
    at = reduced.find(b'"tools":' + tools[:64])
    if at < 0:
        return -1
    at += 8
    return at if reduced[at : at + len(tools)] == tools else -1


def cut(
    body: bytes,
    decode: Callable[[bytes], Any],
    array: str,
    previous: ParsedRequest | None,
) -> Cut:
    """Takes ``body`` apart; ``decode`` gives a struct with ``Raw`` fields named ``array`` and ``tools``.

    Raises ``WireError`` when the body is not JSON, or the history is not an array.
    """
    try:
        if previous is not None:
            known = _cut_known(body, decode, array, previous)
            if known is not None:
                return known
        top = decode(body)
        history = getattr(top, array)
        base = offset_in(history, body) + 1 if length(history) else 0
        return Cut(top, history, base, 0, _elements(history, body, base, 0), bytes(top.tools))
    except RecursionError:
        raise WireError("nested too deeply") from None
    except msgspec.ValidationError as error:
        raise WireError(f"unexpected shape: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"not JSON: {error}") from None


def _cut_known(
    body: bytes, decode: Callable[[bytes], Any], array: str, previous: ParsedRequest
) -> Cut | None:
    base, count, size = _shared(body, previous)
    if not count:
        return None
    reduced = body[:base] + body[base + size :]
    array_at = base
    tools_at = _known_tools(reduced, previous.tools)
    if tools_at < base < tools_at + len(previous.tools):
        tools_at = -1
    if tools_at >= 0:
        reduced = reduced[:tools_at] + b"0" + reduced[tools_at + len(previous.tools) :]
        if tools_at < base:
            array_at -= len(previous.tools) - 1
    try:
        top = decode(reduced)
    except (msgspec.DecodeError, RecursionError):
        return None
    history = getattr(top, array)
    if not length(history) or offset_in(history, reduced) + 1 != array_at:
        return None
    tools = bytes(top.tools)
    if tools_at >= 0:
        if tools != b"0" or offset_in(top.tools, reduced) != tools_at:
            return None
        tools = previous.tools
    return Cut(top, history, base, count, _elements(history, reduced, array_at, size), tools)


def _elements(history: msgspec.Raw, whole: bytes, start: int, skipped: int) -> list[RawItem]:
    """The elements of a raw array whose first byte after the ``[`` is ``whole[start]``.

    Their places count from there, ``skipped`` bytes further: the bytes of the elements that were cut out.
    """
    if not length(history):
        return []
    found: list[RawItem] = []
    at = start
    for raw in _raw_list.decode(history):
        while whole[at] in SEPARATORS:
            at += 1
        end = at + length(raw)
        found.append(RawItem(Span(at - start + skipped, end - start + skipped), raw))
        at = end
    return found


def decoded[T](decoder: msgspec.json.Decoder[T], raw: msgspec.Raw | bytes) -> T:
    """What ``decoder`` makes of a part of a body; ``WireError`` when it is something else."""
    try:
        return decoder.decode(raw)
    except RecursionError:
        raise WireError("nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"unexpected shape: {error}") from None


def string(raw: msgspec.Raw) -> str:
    """The text of a raw JSON string; ``WireError`` when it is something else."""
    return decoded(_text, raw)


def string_or_empty(raw: msgspec.Raw) -> str:
    """The text of a field that can be absent."""
    return string(raw) if length(raw) else ""


def all_items(previous: ParsedRequest | None, shared: int, new: list[Item]) -> tuple[Item, ...]:
    """The shared items of the last request and the new ones."""
    if previous is None or not shared:
        return tuple(new)
    return (*previous.items[:shared], *new)
