"""What an agent did right after a fault, by stated rules over the calls that followed. No model judges.

The rules are in docs/statistics.md with examples; they are applied in the order in which they stand here.
"""

from __future__ import annotations

import itertools
import json
import posixpath
import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, Protocol

# How many later calls of the conversation are looked at: what comes after that is the next piece of work.
WINDOW = 5

_OF_FILES = frozenset(("read", "write", "edit"))
_LOOKING = frozenset(("read", "search", "list", "fetch"))
_TARGETS = (
    *("file_path", "filePath", "path", "absolute_path", "notebook_path", "dir_path", "filename", "file"),
    *("url", "command", "cmd", "script", "pattern", "query"),
)
_WORD = re.compile(r"[\w./~+@%:-]*\w")
_LONG_ENOUGH = 4


class Reaction(StrEnum):
    """What came right after a fault. ``nothing``: no call had to do with it; ``last``: no call came at all;
    ``unseen``: calls came, and what they were about is not known."""

    RETRIED = "retried"
    WORKED_AROUND = "worked_around"
    VERIFIED = "verified"
    NOTHING = "nothing"
    LAST = "last"
    UNSEEN = "unseen"


class Step(NamedTuple):
    """A call as the rules see it: ``target`` is the file, command or address it is about, ``target_digest``
    a digest of that, the workspace made abstract; null: not known."""

    tool: str
    family: str
    call_digest: str
    target: str | None
    target_digest: str | None = None


class Call(Protocol):
    """Of a call, what tells whether it is the same again."""

    @property
    def tool(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def call_digest(self) -> str: ...
    @property
    def target_digest(self) -> str | None: ...


def reaction[C: Call](
    fault: C, mode: str | None, later: Iterable[C], same_target: Callable[[C, C], bool | None]
) -> Reaction:
    """The reaction to a fault on ``fault``: the first of the (at most ``WINDOW``) later calls that fits says.

    ``same_target`` says whether two calls are about the same thing, null where that is not known.

    Explicit: the same call again is ``retried``, another one on the same target ``worked_around``.
    Implicit: the same call again, or a look at the same target, is ``verified``. A fault whose mode is not
    known counts as explicit when nothing else can be said: the same call again is ``retried``.
    """
    last, unknown = True, False
    for step in itertools.islice(later, WINDOW):
        last = False
        if step.call_digest == fault.call_digest and step.tool == fault.tool:
            return repeated(mode)
        same = same_target(fault, step)
        if same is None:
            unknown = True
        elif same and mode == "implicit":
            if step.family in _LOOKING or step.family == "shell":
                return Reaction.VERIFIED
        elif same:
            return Reaction.WORKED_AROUND
    if last:
        return Reaction.LAST
    return Reaction.UNSEEN if unknown else Reaction.NOTHING


def repeated(mode: str | None) -> Reaction:
    """What the same call again is after a fault of this mode."""
    return Reaction.VERIFIED if mode == "implicit" else Reaction.RETRIED


def same_target(one: Step, other: Step) -> bool | None:
    """Whether two calls are about the same thing; null when the target of one of them is not known.

    Two paths: equal, or one is the end of the other. A path and a shell command: the path or its last part
    is a word of the command. Two commands: they share a word of four letters or more that is no option.
    Where the digests are all that is known: equal ones are the same target, two files or two addresses with
    others are not, and of a command or a search that does not tell.
    """
    if one.target is None or other.target is None:
        return same_digest(one, other)
    if one.family == "shell" and other.family == "shell":
        return bool(_long_words(one.target) & _long_words(other.target))
    if one.family == "shell":
        return _named(other.target, one.target)
    if other.family == "shell":
        return _named(one.target, other.target)
    return _same_path(one.target, other.target)


def same_digest(one: Call, other: Call) -> bool | None:
    """The same where the digests of the targets are all that is known."""
    if one.target_digest is None or other.target_digest is None:
        return None
    if one.target_digest == other.target_digest:
        return True
    are_files = one.family in _OF_FILES and other.family in _OF_FILES
    return False if are_files or one.family == other.family == "fetch" else None


def _same_path(one: str, other: str) -> bool:
    one, other = posixpath.normpath(one), posixpath.normpath(other)
    return one == other or one.endswith("/" + other) or other.endswith("/" + one)


def _named(path: str, command: str) -> bool:
    words = _words(command)
    return any(_same_path(path, word) for word in words) or posixpath.basename(path) in words


@lru_cache(maxsize=1024)
def _words(command: str) -> frozenset[str]:
    return frozenset(word for word in _WORD.findall(command) if not word.startswith("-"))


def _long_words(command: str) -> frozenset[str]:
    return frozenset(word for word in _words(command) if len(word) >= _LONG_ENOUGH)


def target_of(arguments: bytes | None) -> str | None:
    """What a call is about, out of its arguments' JSON text: the first that is there of the names that tools
    have for a path, an address, a command or a pattern. Null when none is, or nothing is known."""
    if arguments is None:
        return None
    try:
        data = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    for name in _TARGETS:
        said = data.get(name)
        if isinstance(said, list) and said:
            said = " ".join(map(str, said))
        if isinstance(said, str) and said:
            return said
    return None
