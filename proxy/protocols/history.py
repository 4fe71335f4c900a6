"""Finding the new part of a history that is sent again on every turn.

A request body repeats the last one of its conversation and adds a message or two. What the last request
proved about the shared bytes holds again: they are complete, valid array elements. So when all before the
history and all behind it is as it was, only the bytes between the shared elements and the end of the array
are parsed: when they are elements of an array, the whole body is known to be valid. The result is a function
of the body alone: the request that it is compared with changes only how much has to be parsed.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from proxy.protocols.wire import Item, ParsedRequest, Span, WireError

SEPARATORS = b" \t\r\n,"
_lists = msgspec.json.Decoder(list[list[msgspec.Raw]])
_text = msgspec.json.Decoder(str)
_SMALL = 1 << 14


class RawItem(NamedTuple):
    """One array element: where it stands (from the first byte after the ``[``) and its bytes."""

    at: Span
    raw: msgspec.Raw


class Cut(NamedTuple):
    """A body taken apart: where its history starts and ends, and the elements that are not ``shared``.

    ``top`` is the decoded top level; None when all but the history is as it was in the last request.
    """

    top: Any
    base: int
    end: int
    shared: int
    new: list[RawItem]


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
    if memoryview(whole).nbytes < _SMALL:
        # What stands in it but once is found faster than two addresses are asked for.
        inner, outer = bytes(view), bytes(whole)
        at = outer.find(inner)
        if at >= 0 and outer.find(inner, at + 1) < 0:
            return at
    return _address(view) - _address(whole)


class _Buffer(ctypes.Structure):
    """Py_buffer, https://docs.python.org/3/c-api/buffer.html#buffer-structure."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


# numpy can say where a buffer is, too, but takes a tenth of a second to import.
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_Buffer),)
_release_buffer.restype = None


def _address(buffer: msgspec.Raw | bytes) -> int:
    found = _Buffer()
    _get_buffer(buffer, found, 0)
    address = int(found.buf)
    _release_buffer(found)
    return address


def _skip(body: bytes, at: int) -> int:
    while body[at : at + 1] in (b" ", b"\t", b"\r", b"\n"):
        at += 1
    return at


def shared_items(body: bytes, base: int, previous: ParsedRequest) -> int:
    """How many leading elements of the last history stand, byte for byte, at ``base`` of ``body``."""
    items, old_base = previous.items, previous.base
    view = memoryview(previous.body)

    def same(first: int, last: int) -> bool:
        start = items[first - 1].at.end if first else 0
        end = items[last - 1].at.end if last else 0
        return body.startswith(view[old_base + start : old_base + end], base + start)

    # A cache mark moves on with every turn: mostly all but the last element is as it was.
    most = max(len(items) - 1, 0)
    if same(0, most):
        return len(items) if same(most, len(items)) else most
    return bisect_left(range(1, most + 1), True, key=lambda count: not same(0, count))


def cut(
    body: bytes,
    decode: Callable[[bytes], Any],
    array: str,
    previous: ParsedRequest | None,
) -> Cut:
    """Takes ``body`` apart; ``decode`` gives a struct with a ``Raw`` field named ``array``.

    Raises ``WireError`` when the body is not JSON, or the history is not an array.
    """
    try:
        if previous is not None:
            known = _cut_known(body, previous) or _cut_around(body, decode, array, previous)
            if known is not None:
                return known
        top = decode(body)
        history = getattr(top, array)
        if bytes(memoryview(history)[:1]) != b"[":
            raise WireError(f"{array} is not a list")
        base = offset_in(history, body) + 1
        end = base + length(history) - 2
        found = _new_items(body, base, end, previous) if previous is not None else None
        shared, new = found or (0, _elements(body, base, base, end) or [])
        return Cut(top, base, end, shared, new)
    except RecursionError:
        raise WireError("nested too deeply") from None
    except msgspec.ValidationError as error:
        raise WireError(f"unexpected shape: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"not JSON: {error}") from None


def _cut_known(body: bytes, previous: ParsedRequest) -> Cut | None:
    """As ``cut``, when all around the history is as it was; None when it is not, or the body is not valid."""
    view = memoryview(previous.body)
    base = previous.base
    end = len(body) - (len(view) - previous.end)
    if end < base or not body.startswith(view[:base]) or not body.endswith(view[previous.end :]):
        return None
    try:
        found = _new_items(body, base, end, previous)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if found is None else Cut(None, base, end, *found)


def _cut_around(
    body: bytes, decode: Callable[[bytes], Any], array: str, previous: ParsedRequest
) -> Cut | None:
    """As ``cut``, when only what stands before the history is as it was; None when it is not.

    The document without the shared elements is parsed: when the history starts at the same place in it, they
    can be put back.
    """
    base = previous.base
    if not body.startswith(memoryview(previous.body)[:base]):
        return None
    count = shared_items(body, base, previous)
    if not count:
        return None
    start = _skip(body, base + previous.items[count - 1].at.end)
    if body[start : start + 1] == b",":
        start = _skip(body, start + 1)
        if body[start : start + 1] == b"]":
            return None
    elif body[start : start + 1] != b"]":
        return None
    reduced = body[:base] + body[start:]
    try:
        top = decode(reduced)
        history = getattr(top, array)
        if not length(history) or offset_in(history, reduced) != base - 1:
            return None
        end = start + length(history) - 2
        new = _elements(body, base, start, end)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if new is None else Cut(top, base, end, count, new)


def _new_items(body: bytes, base: int, end: int, previous: ParsedRequest) -> tuple[int, list[RawItem]] | None:
    """(how many elements are shared, the others) of an array between ``base`` and ``end``; None when nothing
    is shared, or the rest is no list of elements."""
    count = shared_items(body, base, previous)
    if not count:
        return None
    after = _skip(body, base + previous.items[count - 1].at.end)
    if after == end:
        return count, []
    # A comma, and an element behind it: else a shared number could be the start of a longer one.
    if after > end or body[after : after + 1] != b"," or _skip(body, after + 1) >= end:
        return None
    found = _elements(body, base, after + 1, end)
    return None if found is None else (count, found)


def _elements(body: bytes, base: int, start: int, end: int) -> list[RawItem] | None:
    """The elements between ``start`` and ``end``, their places counted from ``base``; None when what stands
    there are the elements of more than one array."""
    first = _skip(body, start)
    if first < end and body[first] not in b'{"':
        raise WireError("unexpected shape: an element of the history is neither an object nor a text")
    # Two brackets: what closes the array early and opens another one cannot pass for elements.
    lists = _lists.decode(b"[[" + body[start:end] + b"]]")
    if len(lists) != 1:
        return None
    found: list[RawItem] = []
    at = start
    for raw in lists[0]:
        while body[at] in SEPARATORS:
            at += 1
        found.append(RawItem(Span(at - base, at - base + length(raw)), raw))
        at += length(raw)
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
