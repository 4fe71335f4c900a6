"""How one harness words things: its tools, the shapes of its results, its identity on the wire.

A dialect is data (configs/harnesses/*.yaml). This file is what the data mean: unwrapping a result to the
tool's own text, wrapping a new text so that line numbers and counts agree with it, and telling apart what
failed, what points back at an earlier result and what the harness put in a result's place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from scheduler.call import FAMILIES, Family
from scheduler.nearest import unknown


class DialectError(ValueError):
    """A dialect that cannot be used; the message says where it is wrong."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    raise ValueError(unknown("key", str(key), cls.model_fields))
        return data


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _checked(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        try:
            _compiled(pattern)
        except re.error as error:
            raise ValueError(f"not a regular expression: {pattern!r}: {error}") from None
    return patterns


class Wording(_Model):
    """One text that the harness can show, with ``{path}``-like places for the call's own arguments."""

    text: str
    error: bool | None = None


class Count(_Model):
    """A number or word inside a result that must agree with its new content.

    ``is``: ``lines`` (how many lines the body has), ``first`` and ``last`` (their line numbers),
    ``next`` (the line after the last), ``bytes`` (of the body) or ``plural`` (``one`` or ``many``).
    """

    group: str
    is_: Literal["lines", "first", "last", "next", "bytes", "plural"] = Field(alias="is")
    one: str = ""
    many: str = "s"


class Envelope(_Model):
    """A result shape: ``pattern`` is matched against the whole text; its group ``body`` is the tool's own
    content, other groups named in ``counts`` are written anew when the body changes."""

    pattern: str
    counts: tuple[Count, ...] = ()

    @model_validator(mode="after")
    def _groups(self) -> Envelope:
        _checked((self.pattern,))
        groups = _compiled(self.pattern).groupindex
        for name in ("body", *(count.group for count in self.counts)):
            if name not in groups:
                raise ValueError(f"the pattern {self.pattern!r} has no group {name!r}")
        return self


class Form(_Model):
    """The shapes of one family's (or tool's) results."""

    number: str | None = Field(default=None, description="a line's number and what follows it, a pattern")
    number_format: str = "{n}\t"
    envelopes: tuple[Envelope, ...] = ()
    empty: Wording | None = None
    failed: tuple[str, ...] = ()
    keep: Literal["head", "tail"] = "head"
    notice: str | None = Field(default=None, description="what the harness adds when it cuts a result")
    cut_explicit: bool | None = None
    errors: dict[str, tuple[Wording, ...]] = Field(default_factory=dict)
    back_references: tuple[str, ...] = ()

    _patterns = field_validator("failed", "back_references")(_checked)


class ToolRule(_Model):
    """One tool: its family, the argument that names its target, and the arguments that do not identify it."""

    family: Family
    target: str | None = None
    volatile: frozenset[str] = frozenset()
    defaults: dict[str, Any] = Field(default_factory=dict)
    form: str | None = None

    @field_validator("family", mode="before")
    @classmethod
    def _family(cls, value: Any) -> Any:
        if value not in FAMILIES:
            raise ValueError(unknown("family", str(value), FAMILIES))
        return value


class Identification(_Model):
    """How requests of this harness are told apart, by header (lower case) or by patterns in its texts."""

    header: str = "user-agent"
    pattern: str | None = None
    session_headers: tuple[str, ...] = ()
    sub_headers: tuple[str, ...] = ()
    workspace: tuple[str, ...] = ()
    compaction: tuple[str, ...] = ()
    flattened: str | None = Field(
        default=None, description="a result inside a user's text: group 'result', and 'cut' when shortened"
    )

    _patterns = field_validator("workspace", "compaction")(_checked)


class Dialect(_Model):
    """Everything that is known of one harness's wording."""

    name: str
    title: str
    export: tuple[str, ...] = ()
    identify: Identification = Identification()
    tools: dict[str, ToolRule] = Field(default_factory=dict)
    forms: dict[str, Form] = Field(default_factory=dict)
    appended: tuple[str, ...] = Field(default=(), description="what the harness adds behind a result")
    superseded: tuple[str, ...] = Field(default=(), description="texts that the harness puts over a result")
    search_commands: tuple[str, ...] = ()
    list_commands: tuple[str, ...] = ()

    _patterns = field_validator("appended", "superseded", "search_commands", "list_commands")(_checked)

    def rule(self, tool: str) -> ToolRule:
        """The rule of ``tool``; a tool that the dialect does not list is of family ``other``."""
        found = self.tools.get(tool)
        if found is None:
            found = self._folded.get(tool.casefold(), _UNLISTED)
        return found

    @cached_property
    def _folded(self) -> dict[str, ToolRule]:
        return {name.casefold(): rule for name, rule in self.tools.items()}

    def family(self, tool: str, arguments: Mapping[str, Any]) -> Family:
        """The family of a call; a shell call that only searches or lists counts as search or list."""
        rule = self.rule(tool)
        if rule.family == "shell" and rule.target:
            command = arguments.get(rule.target)
            if isinstance(command, str):
                if _any_match(self.search_commands, command):
                    return "search"
                if _any_match(self.list_commands, command):
                    return "list"
        return rule.family

    def form(self, tool: str, family: str) -> Form:
        """The result shapes of ``tool``. A shell call counted as search or list still answers as a shell."""
        rule = self.rule(tool)
        name = rule.form or (rule.family if rule.family in self.forms else family)
        return self.forms.get(name) or self.forms.get("other") or _NO_FORM

    def split_appended(self, text: str) -> tuple[str, str]:
        """``text`` as (the tool's own output, what the harness appended behind it)."""
        cut = len(text)
        again = True
        while again:
            again = False
            for pattern in self.appended:
                match = _compiled(pattern).search(text, 0, cut)
                if match is not None and match.end() == cut and match.start() < cut:
                    cut = match.start()
                    again = True
        return text[:cut], text[cut:]

    def is_appended(self, text: str) -> bool:
        """Whether a whole block is something that the harness appended."""
        return bool(text) and self.split_appended(text)[0] == "" and bool(self.appended)

    def is_superseding(self, text: str) -> bool:
        """Whether the harness itself cleared or repaired this result: then its text wins."""
        return _any_match(self.superseded, text)


_UNLISTED = ToolRule(family="other")
_NO_FORM = Form()


def _any_match(patterns: tuple[str, ...], text: str) -> bool:
    return any(_compiled(pattern).search(text) for pattern in patterns)


class Line(NamedTuple):
    """A line number as the harness printed it, or None, and the line's text."""

    number: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A result taken apart: ``body`` is the tool's content without line numbers and wrapping."""

    form: Form
    text: str
    body: str
    numbered: bool
    first: int
    envelope: Envelope | None

    def wrap(self, body: str) -> str:
        """The whole result with ``body`` in the content's place, numbers and counts made to agree."""
        lines = body.split("\n")
        printed = body
        if self.numbered:
            printed = "\n".join(
                self.form.number_format.format(n=self.first + i) + line for i, line in enumerate(lines)
            )
        if self.envelope is None:
            return printed
        match = _compiled(self.envelope.pattern).fullmatch(self.text)
        if match is None:  # the envelope was found by this very match
            raise AssertionError("envelope does not match its own text")
        count = len(body.rstrip("\n").split("\n")) if body else 0
        news = {"body": printed}
        for item in self.envelope.counts:
            news[item.group] = _count(item, body, count, self.first)
        return _replace_groups(match, news)


def _count(item: Count, body: str, lines: int, first: int) -> str:
    match item.is_:
        case "lines":
            return str(lines)
        case "first":
            return str(first)
        case "last":
            return str(first + lines - 1)
        case "next":
            return str(first + lines)
        case "bytes":
            return str(len(body.encode("utf-8", "surrogatepass")))
        case "plural":
            return item.one if lines == 1 else item.many


def _replace_groups(match: re.Match[str], news: Mapping[str, str]) -> str:
    text = match.string
    out: list[str] = []
    at = 0
    for name in sorted(news, key=match.start):
        start, end = match.span(name)
        if start < at:  # the group took no part in this match (-1)
            continue
        out += (text[at:start], news[name])
        at = end
    out.append(text[at:])
    return "".join(out)


def take_apart(form: Form, text: str) -> Shown:
    """``text`` (a tool's own output) as its form sees it."""
    envelope = None
    body = text
    for candidate in form.envelopes:
        match = _compiled(candidate.pattern).fullmatch(text)
        if match is not None:
            envelope, body = candidate, match["body"]
            break
    first = 1
    numbered = False
    if form.number is not None:
        plain = _without_numbers(form.number, body)
        if plain is not None:
            first, body = plain
            numbered = True
    return Shown(form, text, body, numbered, first, envelope)


def _without_numbers(number: str, body: str) -> tuple[int, str] | None:
    """(first number, body without numbers), or None unless each line has a number one above the last."""
    pattern = _compiled(number)
    texts: list[str] = []
    first = None
    for i, line in enumerate(body.split("\n")):
        match = pattern.match(line)
        if match is None:
            return None
        n = int(match["n"])
        if first is None:
            first = n
        if n != first + i:
            return None
        texts.append(line[match.end() :])
    return (first, "\n".join(texts)) if first is not None else None


def has_failed(form: Form, text: str, is_error: bool | None) -> bool:
    """Whether a result says that its call failed, by the protocol's flag or by the dialect's patterns."""
    return bool(is_error) or _any_match(form.failed, text)


def points_back(form: Form, text: str) -> bool:
    """Whether a result only points at an earlier one."""
    return _any_match(form.back_references, text)


def fill(wording: Wording, tool: str, rule: ToolRule, arguments: Mapping[str, Any], **more: object) -> str:
    """The text of ``wording`` with the call's own target and arguments in its places.

    ``{target}`` is the target argument, ``{tool}`` the tool; every argument has a place of its own name.
    """
    target = arguments.get(rule.target) if rule.target else None
    places: dict[str, object] = {str(key): _plain(value) for key, value in arguments.items()}
    places |= {"tool": tool, "target": _plain(target) if target is not None else tool}
    places |= more
    return _PLACE.sub(lambda m: str(places.get(m[1], m[0])), wording.text)


_PLACE = re.compile(r"\{(\w+)\}")


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def parse_dialect(data: Any, source: str) -> Dialect:
    """A dialect from what a YAML reader made of its text; raises ``DialectError`` naming ``source``."""
    try:
        return Dialect.model_validate(data)
    except ValidationError as error:
        places = "; ".join(
            f"{'.'.join(str(part) for part in item['loc'])}: {item['msg'].removeprefix('Value error, ')}"
            for item in error.errors()
        )
        raise DialectError(f"{source}: {places}") from None
