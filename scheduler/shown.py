"""A result taken apart and put together again, so that numbers and counts agree with new content."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from scheduler.form import Count, Envelope, Form, compiled


class Numbering(NamedTuple):
    """How line numbers are printed: the first one, its width (0: not aligned), and what follows it.

    ``bare_last``: the last line is empty and its separator was trimmed away.
    """

    first: int
    width: int
    separator: str
    bare_last: bool

    def prefix(self, n: int) -> str:
        """What stands before the text of line ``n``."""
        return str(n).rjust(self.width) + self.separator


@dataclass(frozen=True, slots=True)
class Shown:
    """A result taken apart: ``body`` is the tool's content without line numbers and wrapping.

    ``first`` is the number of its first line. ``wrap(body) == text`` always holds.
    """

    form: Form
    text: str
    body: str
    numbering: Numbering | None
    first: int
    envelope: Envelope | None

    @property
    def is_cut(self) -> bool:
        """Whether the text itself says that it shows a part only."""
        return self.envelope is not None and self.envelope.cut

    @property
    def notice(self) -> str | None:
        """What this harness adds when it cuts such a result; None when it is cut already and says so."""
        own = self.envelope.notice if self.envelope is not None else None
        return None if self.is_cut else own or self.form.notice

    def line_count(self, body: str) -> int:
        """How many lines ``body`` has, as this harness counts them."""
        return _line_count(body, self.numbering is not None or self.form.trailing_line)

    def wrap(self, body: str) -> str:
        """The whole result with ``body`` in the content's place, numbers and counts made to agree."""
        return self._with(body, {})

    def cut(self, body: str, numbers: Mapping[str, int]) -> str:
        """The whole result with ``body``, which is a part of its content, and the harness's notice of that.

        ``numbers`` are those that the notice has places for.
        """
        notice = self.notice or ""
        news: dict[str, str | None] = {}
        if self.envelope is not None:
            news |= {count.group: None for count in self.envelope.counts if count.whole}
        if "{body}" in notice:
            return notice.format(body=self._with(body, news), **numbers)
        if self.envelope is not None and self.envelope.ending is not None:
            return self._with(body, news | {self.envelope.ending: notice.format(**numbers)})
        return self._with(body, news) + notice.format(**numbers)

    def emptied(self) -> str | None:
        """This same result with nothing in it, or None when its shape does not say how that looks."""
        if self.envelope is None or self.envelope.hollow is None:
            return None
        return replace(self, numbering=None, first=1).wrap("")

    def _with(self, body: str, news: Mapping[str, str | None]) -> str:
        """The whole result with ``body`` in the content's place, and ``news`` in those of other groups; None
        leaves a group as it is."""
        removed = self.line_count(self.body) - self.line_count(body)
        first = self.first + removed if self.form.keep == "tail" else self.first
        printed = body if self.numbering is None else _numbered(self.numbering._replace(first=first), body)
        if self.envelope is None:
            return printed
        match = compiled(self.envelope.pattern).fullmatch(self.text)
        if match is None:  # it was chosen because it matches
            raise AssertionError("the envelope does not match its own text")
        groups: dict[str, str | None] = {"body": _as_printed(self.envelope, printed)}
        for count in self.envelope.counts:
            if match[count.group] is not None:
                groups[count.group] = self._count(count, match[count.group], body, first, removed)
        groups |= news
        return _replace_groups(match, {name: new for name, new in groups.items() if new is not None})

    def _count(self, count: Count, old: str, body: str, first: int, removed: int) -> str:
        lines = self.line_count(body) if count.like is None else _lines_like(count.like, body)
        match count.is_:
            case "lines":
                return str(lines * count.times)
            case "chars":
                return _grouped(len(body) + count.plus, count)
            case "chars_left":
                return _grouped(_number(old) + len(self.body) - len(body), count)
            case "tokens":
                return str(token_count(body))
            case "tokens_left":
                return str(int(old) + token_count(self.body) - token_count(body))
            case "first":
                return str(first)
            case "last":
                return str(first + lines - 1)
            case "next":
                return str(first + lines)
            case "left":
                return str(int(old) + removed)
            case "sum":
                return str(_sum(body))
            case "size":
                return _size(len(body.encode("utf-8", "surrogatepass")))
            case "plural":
                return count.one if (_sum(body) if count.of == "sum" else lines) == 1 else count.many


def _as_printed(envelope: Envelope, body: str) -> str:
    if not body and envelope.hollow is not None:
        return envelope.hollow
    return body if envelope.quoted is None else quoted(body, envelope.quoted)


def _as_read(envelope: Envelope, printed: str) -> str | None:
    """The body behind what is printed in its place, or None when that is not what it should be."""
    if envelope.hollow is not None and printed == envelope.hollow:
        return ""
    if envelope.quoted is None:
        return printed
    try:
        return str(json.loads(f'"{printed}"', strict=False))
    except ValueError:
        return None


_LIKE_IN_A_PAGE = {ord(char): f"\\u{ord(char):04x}" for char in "&<>'"}


def quoted(text: str, where: Literal["json", "page"]) -> str:
    """``text`` as the inside of a JSON string that stands by itself or in a web page."""
    if where == "json":
        return json.dumps(text, ensure_ascii=False)[1:-1]
    return json.dumps(text)[1:-1].translate(_LIKE_IN_A_PAGE)


def token_count(text: str) -> int:
    """How many tokens a harness reckons with that takes four bytes for one."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


def _lines_like(pattern: str, body: str) -> int:
    return sum(compiled(pattern).search(line) is not None for line in body.split("\n"))


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _grouped(number: int, count: Count) -> str:
    return f"{number:,}" if count.grouped else str(number)


def _line_count(body: str, trailing_line: bool) -> int:
    if not body:
        return 0
    return body.count("\n") + (trailing_line or not body.endswith("\n"))


_LAST_NUMBER = re.compile(r"(?<!\d)(\d{1,15})$", re.MULTILINE)


def _sum(body: str) -> int:
    return sum(int(match[1]) for match in _LAST_NUMBER.finditer(body))


def _size(size: int) -> str:
    for unit, factor in (("MB", 1024 * 1024), ("KB", 1024)):
        if size >= factor:
            return f"{size / factor:.1f}{unit}"
    return f"{size}B"


def _numbered(numbering: Numbering, body: str) -> str:
    lines = body.split("\n")
    printed = [numbering.prefix(numbering.first + i) + line for i, line in enumerate(lines)]
    if numbering.bare_last and not lines[-1]:
        printed[-1] = printed[-1].rstrip()
    return "\n".join(printed)


def _replace_groups(match: re.Match[str], news: Mapping[str, str]) -> str:
    text = match.string
    out: list[str] = []
    at = 0
    for name in sorted(news, key=match.start):
        start, end = match.span(name)
        if start < at:
            continue  # it went with the group that it stood in
        out += (text[at:start], news[name])
        at = end
    out.append(text[at:])
    return "".join(out)


def take_apart(form: Form, text: str, first: int = 1) -> Shown:
    """``text`` (a tool's own output) as its form sees it.

    ``first``: the number of the first line shown, for results that do not say it themselves.
    """
    for envelope in form.envelopes:
        match = compiled(envelope.pattern).fullmatch(text)
        body = None if match is None else _as_read(envelope, match["body"])
        if match is not None and body is not None:
            shown = _content(form, text, body, _first_line(envelope, match, form, first), envelope)
            # What only looks like this shape (a file that quotes one) disagrees with its own counts.
            if shown.wrap(shown.body) == text:
                return shown
    return _content(form, text, text, first, None)


def _content(form: Form, text: str, body: str, first: int, envelope: Envelope | None) -> Shown:
    plain = _without_numbers(form.number, body) if form.number is not None else None
    if plain is None:
        return Shown(form, text, body, None, first, envelope)
    numbering, content = plain
    return Shown(form, text, content, numbering, numbering.first, envelope)


def _first_line(envelope: Envelope, match: re.Match[str], form: Form, otherwise: int) -> int:
    for what, back in (("first", 0), ("next", _line_count(match["body"], form.trailing_line))):
        group = envelope.group_of(what)
        if group is not None and match[group] is not None:
            return int(match[group]) - back
    return otherwise


def _without_numbers(number: str, body: str) -> tuple[Numbering, str] | None:
    """The numbering and the body without it, or None unless every line has the number it should have."""
    match = compiled(number).match(body)
    if match is None:
        return None
    width = len(match["pad"]) + len(match["n"]) if match["pad"] else 0
    numbering = Numbering(int(match["n"]), width, match["sep"], bare_last=False)
    lines = body.split("\n")
    texts: list[str] = []
    for i, line in enumerate(lines):
        prefix = numbering.prefix(numbering.first + i)
        if line.startswith(prefix):
            texts.append(line[len(prefix) :])
        elif i and i == len(lines) - 1 and line == prefix.rstrip():
            numbering = numbering._replace(bare_last=True)
            texts.append("")
        else:
            return None
    return numbering, "\n".join(texts)
