"""What a tool call is, for the schedule: its family, its canonical arguments, its digest, its key."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import orjson
import rfc8785

Family = Literal["read", "write", "edit", "shell", "search", "list", "fetch", "task", "other"]
FAMILIES: tuple[Family, ...] = get_args(Family)

Identity = Literal["content", "ordinal"]
Role = Literal["main", "sub"]

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Places:
    """The directories whose names differ from machine to machine, absolute, without a trailing slash."""

    workspace: str | None = None
    temp: tuple[str, ...] = ()
    home: str | None = None

    def abstract(self, text: str) -> str:
        """``text`` with each of these directories replaced by ``{ws}``, ``{tmp}`` or ``{home}``."""
        pattern, names = _places_pattern(self)
        for path in names:
            if path in text and pattern is not None:
                return pattern.sub(lambda match: names[match.group()], text)
        return text


@lru_cache(maxsize=256)
def _places_pattern(places: Places) -> tuple[re.Pattern[str] | None, Mapping[str, str]]:
    names: dict[str, str] = {}
    for path, name in (
        *((path, "{tmp}") for path in places.temp),
        (places.home, "{home}"),
        (places.workspace, "{ws}"),
    ):
        path = (path or "").rstrip("/")
        if path:
            names[path] = name
    if not names:
        return None, names
    # Longest first, since a workspace often stands below the temp directory. A path ends where its name
    # could not go on: /tmp/ws is not a prefix of /tmp/ws2 or /tmp/ws.bak.
    alternatives = "|".join(re.escape(path) for path in sorted(names, key=len, reverse=True))
    return re.compile(rf"(?<![\w.-])(?:{alternatives})(?![\w-]|\.\w)"), names


class _NotCanonical(ValueError):
    pass


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _NotCanonical("duplicate key")  # RFC 8785 section 3.1: input must be I-JSON
    return found


_decoder = json.JSONDecoder(object_pairs_hook=_object_without_duplicates)


# Deeper nesting enters as text: how deep a parser can go must not decide what a call's digest is.
_DEEPEST = 100


def _abstract_values(value: Any, places: Places, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        raise _NotCanonical("nested too deep")
    if isinstance(value, str):
        return places.abstract(value)
    if isinstance(value, list):
        return [_abstract_values(item, places, depth + 1) for item in value]
    if isinstance(value, dict):
        return _object_without_duplicates(
            [(places.abstract(key), _abstract_values(item, places, depth + 1)) for key, item in value.items()]
        )
    return value


def canonical_arguments(
    arguments: bytes,
    places: Places = Places(),
    volatile: frozenset[str] = frozenset(),
    defaults: Mapping[str, Any] = {},
) -> bytes:
    """The bytes that stand for a call's arguments in its digest.

    RFC 8785 JSON of ``arguments`` (UTF-8 JSON text as sent) after the machine's own directories are made
    abstract and the top-level fields that are ``volatile``, or equal to a default that the harness adds,
    are dropped. What is not JSON, or not RFC 8785 (duplicate keys, integers beyond 2**53, lone surrogates),
    or nested deeper than 100 levels, enters as an ASCII-escaped JSON string of its text.
    """
    try:
        value = _decoder.decode(arguments.decode("utf-8"))
        if isinstance(value, dict):
            value = {
                key: item
                for key, item in value.items()
                if key not in volatile and not (key in defaults and _same(defaults[key], item))
            }
        return _canonical(_abstract_values(value, places))
    except (ValueError, RecursionError):
        text = arguments.decode("utf-8", "surrogateescape")
        return json.dumps(places.abstract(text)).encode("ascii")


def _canonical(value: Any) -> bytes:
    """RFC 8785 JSON of ``value``; raises ``ValueError`` when it has none."""
    # Where nothing is in it on which the two could differ, orjson writes the same many times faster.
    if _is_plain(value):
        try:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except TypeError:
            pass  # a lone surrogate: refused below
    return rfc8785.dumps(value)


def _is_plain(value: Any) -> bool:
    """Whether ``value`` has no number, and no name that UTF-8 and UTF-16 could sort in different ways."""
    if isinstance(value, str | bool | None):
        return True
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return isinstance(value, dict) and all(name.isascii() and _is_plain(item) for name, item in value.items())


def _same(default: Any, value: Any) -> bool:
    # In Python True == 1, in JSON it is not; in JSON 1 and 1.0 are one number.
    return rfc8785.dumps(default) == rfc8785.dumps(value)


def call_digest(canonical: bytes) -> str:
    """SHA-256 of the canonical arguments, in hex."""
    return hashlib.sha256(canonical).hexdigest()


def content_key(task_id: str, role: str, tool: str, digest: str, occurrence: int) -> Key:
    """The key under identity ``content``; ``occurrence`` counts identical calls before this one, from 0."""
    return ("content", task_id, role, tool, digest, str(occurrence))


def ordinal_key(task_id: str, role: str, family: str, k: int) -> Key:
    """The key under identity ``ordinal``: the ``k``-th call of its family in the conversation, from 0."""
    return ("ordinal", task_id, role, family, str(k))


class Call(NamedTuple):
    """A call as the schedule sees it, with its place in the conversation."""

    tool: str
    family: Family
    digest: str
    canonical: bytes
    occurrence: int
    ordinal: int


def call_key(identity: Identity, task_id: str, role: str, call: Call) -> Key:
    """The key of ``call`` under ``identity``."""
    if identity == "content":
        return content_key(task_id, role, call.tool, call.digest, call.occurrence)
    return ordinal_key(task_id, role, call.family, call.ordinal)
