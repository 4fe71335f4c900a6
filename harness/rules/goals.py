"""What a prompt asks for: sentences of a fixed form, and the text that each of them wants in a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """One file to bring into shape. ``sources`` are read first, then the target when ``revises`` it.

    ``wanted`` gives the target's text from the texts read, by path; None when they do not hold what the
    sentence speaks of, so that they cannot be what the files really say.
    """

    target: str
    sources: tuple[str, ...]
    revises: bool
    wanted: Callable[[Mapping[str, str]], str | None]


@dataclass(frozen=True, slots=True)
class Search:
    """A file to be found first: the one under ``folder`` that holds ``key``, which gets ``value``."""

    folder: str
    key: str
    value: str

    def goal(self, path: str) -> Goal:
        """What to do in the file once it is found."""
        return Goal(path, (), True, lambda texts: _assigned(texts[path], self.key, self.value))


@dataclass(frozen=True, slots=True)
class Assignment:
    """All that a prompt asks for. ``check`` is the command that shows whether it worked."""

    goals: tuple[Goal | Search, ...]
    check: str | None


def assignment_in(texts: tuple[str, ...]) -> Assignment | None:
    """The first text that asks for something we know, as an assignment."""
    for text in texts:
        found = (
            sorted(
                (sentence.start(), make(*sentence.groups()))
                for pattern, make in _SENTENCES
                for sentence in pattern.finditer(text)
            )
            if text
            else []
        )
        if found:
            check = _CHECK.search(text)
            return Assignment(tuple(goal for _, goal in found), check.group(1) if check else None)
    return None


def _replace(path: str, old: str, new: str) -> Goal:
    def wanted(texts: Mapping[str, str]) -> str | None:
        text = texts[path]
        if old in text:
            return text.replace(old, new)
        return text if new in text else None

    return Goal(path, (), True, wanted)


def _carry(name: str, path: str, source: str, key: str) -> Goal:
    def wanted(texts: Mapping[str, str]) -> str | None:
        stated = re.search(rf"^\W*{re.escape(key)}:\s*(\d+)", texts[source], re.MULTILINE)
        return None if stated is None else _assigned(texts[path], name, stated.group(1))

    return Goal(path, (source,), True, wanted)


def _rename(old: str, new: str, path: str) -> Goal:
    def wanted(texts: Mapping[str, str]) -> str | None:
        text = re.sub(rf"\b{re.escape(old)}\b", new, texts[path])
        return text if new in text else None

    return Goal(path, (), True, wanted)


def _transcribe(path: str, source: str) -> Goal:
    def wanted(texts: Mapping[str, str]) -> str | None:
        fenced = re.search(r"^```\w*\n(.*?)^```$", texts[source], re.MULTILINE | re.DOTALL)
        return None if fenced is None else fenced.group(1)

    return Goal(path, (source,), False, wanted)


def _assigned(text: str, name: str, value: str) -> str | None:
    line = re.compile(rf"^(\s*{re.escape(name)}\s*[=:]\s*)\S+", re.MULTILINE)
    if len(line.findall(text)) != 1:
        return None
    return line.sub(lambda found: found.group(1) + value, text)


_SENTENCES: tuple[tuple[re.Pattern[str], Callable[..., Goal | Search]], ...] = (
    (re.compile(r"In `([^`]+)`, replace `([^`]+)` with `([^`]+)`"), _replace),
    (re.compile(r"Set `([^`]+)` in `([^`]+)` to the value that `([^`]+)` gives for `([^`]+)`"), _carry),
    (re.compile(r"Rename `([^`]+)` to `([^`]+)` in `([^`]+)`"), _rename),
    (re.compile(r"Write `([^`]+)` with the code that stands in `([^`]+)`"), _transcribe),
    (
        re.compile(r"Find the file under `([^`]+)` that holds `([^`]+)`, and set it there to `([^`]+)`"),
        Search,
    ),
)
_CHECK = re.compile(r"Check your work with `([^`]+)`")
