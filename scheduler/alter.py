"""Plausible but wrong: numbers drift, flags flip, names change, lines swap. The shape of a text stays.

The line count never changes. What was JSON stays JSON: only digits, words, and whole lines that end alike are
touched; never quotes, brackets, separators or what follows a backslash.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from scheduler.uniform import PayloadStream

MAX_CHANGES = 12
_LINES_PER_CHANGE = 12
_WINDOW = 2000
_NAMES_FROM = 200_000


class _Place(NamedTuple):
    """A piece of a line that can change: ``line[start:end]``."""

    start: int
    end: int


# A maximal run of word characters and inner dots: a number, a version, a dotted name. Possessive, so that a
# long run is read once. Not behind a backslash, where letters can be an escape.
_CHUNK = re.compile(r"(?<![\\\w])\w++(?:\.\w++)*+")
_WORD = re.compile(r"[^\W\d]\w*+")
_DECIMAL = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,15}))?(s|ms|us|ns|x|px|em|[kKMGT]i?B?)?")
_DIGITS = re.compile(r"[0-9]+")
_MODE = re.compile(r"^[-dlbcps][-rwxsStT]{9}(?=[\s.+@])")
_MONTH = re.compile(r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+$")


def alter(body: str, stream: PayloadStream) -> str:
    """``body`` with about one line in twelve changed: at least one, at most twelve.

    Returns ``body`` itself only when it has no letter and no digit.
    """
    lines = body.split("\n")
    full = [i for i, line in enumerate(lines) if not line.isspace() and line]
    if not full:
        return body
    names = _names(body)
    for _ in range(min(MAX_CHANGES, 1 + len(full) // _LINES_PER_CHANGE)):
        at = full[stream.below(len(full))]
        first = stream.below(len(_CHANGES))
        for change in (*_CHANGES[first:], *_CHANGES[:first]):
            if change(lines, at, names, stream):
                break
    altered = "\n".join(lines)
    if altered != body:
        return altered
    # Two changes can undo each other, and what was picked can have nothing to change.
    for change in (_drift, _flip, _rename, _fill, _vary, _nudge):
        for at in full:
            if change(lines, at, names, stream):
                return "\n".join(lines)
    return _any_letter(body)


def _put(lines: list[str], at: int, place: _Place, new: str) -> bool:
    line = lines[at]
    if line[place.start : place.end] == new:
        return False
    lines[at] = line[: place.start] + new + line[place.end :]
    return True


def _chunks(line: str, stream: PayloadStream) -> list[re.Match[str]]:
    """The chunks of a line; of a very long one, those of a window."""
    if len(line) <= 2 * _WINDOW:
        mode = _MODE.match(line)
        return list(_CHUNK.finditer(line, mode.end() if mode else 0))
    start = stream.below(len(line) - _WINDOW)
    end = start + _WINDOW
    found = [match for match in _CHUNK.finditer(line, start, end) if match.end() < end]
    first = _CHUNK.search(line)
    return found or ([] if first is None else [first])


# Numbers.


def _drift(lines: list[str], at: int, _names: _Names, stream: PayloadStream) -> bool:
    """One number of the line goes up or down, by little, and keeps its width where it can."""
    line = lines[at]
    places = [place for chunk in _chunks(line, stream) if (place := _number_in(chunk)) is not None]
    if not places:
        return False
    place = places[stream.below(len(places))]
    digits = line[place.start : place.end].replace(".", "")
    new = _drifted(digits, _range_of(line, place, digits), stream)
    if new is None:
        return False
    point = line.find(".", place.start, place.end)
    if point >= 0:
        new = new[: point - place.start] + "." + new[point - place.start :]
    return _put(lines, at, place, new)


def _number_in(chunk: re.Match[str]) -> _Place | None:
    """The number that a chunk is: all of it, without its unit, or the last part of a version."""
    text, start = chunk[0], chunk.start()
    match = _DECIMAL.fullmatch(text)
    if match is not None:
        return _Place(start, start + (match.end(2) if match[2] else match.end(1)))
    last = text.rpartition(".")[2]
    if text.count(".") > 1 and all(_DIGITS.fullmatch(part) and len(part) < 16 for part in text.split(".")):
        return _Place(chunk.end() - len(last), chunk.end())
    return None


def _range_of(line: str, place: _Place, digits: str) -> tuple[int, int]:
    """What a two-digit field of a date or a time can hold; anything else can hold what its width holds."""
    value, high = int(digits), 10 ** len(digits) - 1
    if len(digits) <= 2 and _MONTH.search(line, max(0, place.start - 8), place.start):
        return 1, 28
    if line[place.end : place.end + 1] == "%" and value <= 100:
        return 0, min(high, 100)
    if len(digits) != 2:
        return 0, high
    beside = line[place.start - 1 : place.start] + line[place.end : place.end + 1]
    if ":" in beside:
        return (0, 23) if value <= 23 else (24, 59)
    if "-" in beside and re.search(r"\d-$|^-\d", line[max(0, place.start - 2) : place.start]) is not None:
        return (1, 12) if 1 <= value <= 12 else (0, 28)
    return 0, high


def _drifted(digits: str, limits: tuple[int, int], stream: PayloadStream) -> str | None:
    value, width = int(digits), len(digits)
    low, high = limits
    if width > 1 and not digits.startswith("0"):
        low = max(low, 10 ** (width - 1))
    near = 3 if value < 20 or 1900 <= value <= 2100 else max(3, value // 10)
    step = 1 + stream.below(near)
    up = stream.next() < 0.5
    for candidate in (value + step, value - step) if up else (value - step, value + step):
        if low <= candidate <= high:
            return str(candidate).zfill(width)
    for candidate in (value + 1, value - 1):
        if low <= candidate <= high:
            return str(candidate).zfill(width)
    return None


# Flags.

_PAIRS = (
    ("true", "false"), ("True", "False"), ("TRUE", "FALSE"), ("enabled", "disabled"), ("Enabled", "Disabled"),
    ("passed", "failed"), ("PASSED", "FAILED"), ("PASS", "FAIL"), ("pass", "fail"), ("success", "failure"),
    ("valid", "invalid"), ("active", "inactive"), ("present", "absent"), ("allow", "deny"),
    ("min", "max"), ("asc", "desc"), ("left", "right"), ("first", "last"), ("start", "end"),
    ("and", "or"), ("INFO", "WARN"), ("GET", "POST"),
)  # fmt: skip
_VALUE_PAIRS = (("on", "off"), ("yes", "no"), ("open", "closed"), ("up", "down"))
_OPERATORS = (("==", "!="), ("<=", ">="), ("<", ">"))


def _both_ways(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    return dict(pairs) | {second: first for first, second in pairs}


_FLIPS = _both_ways(_PAIRS)
_VALUE_FLIPS = _both_ways(_VALUE_PAIRS) | {"ok": "failed"}
_OPERATOR_FLIPS = _both_ways(_OPERATORS)
_OPERATOR = re.compile(r"(?<=[\w)\]] )(?:==|!=|<=|>=|<|>)(?= [\w('\"-])")
# A word that is a flag only as a value: behind a colon or an equals sign, at the end of its line or field.
_COUNTED = re.compile(r"\d\s$")
_BEFORE_VALUE = re.compile(r"[:=]\s*[\"']?$")


def _flip(lines: list[str], at: int, _names: _Names, stream: PayloadStream) -> bool:
    """One flag or comparison of the line becomes its opposite."""
    line = lines[at]
    chunks = _chunks(line, stream)
    found = [(_Place(*chunk.span()), new) for chunk in chunks if (new := _flipped(line, chunk)) is not None]
    if chunks and len(line) <= 2 * _WINDOW:
        found += [(_Place(*match.span()), _OPERATOR_FLIPS[match[0]]) for match in _OPERATOR.finditer(line)]
    if not found:
        return False
    place, new = found[stream.below(len(found))]
    return _put(lines, at, place, new)


def _flipped(line: str, chunk: re.Match[str]) -> str | None:
    new = _FLIPS.get(chunk[0])
    if new is None:
        new = _VALUE_FLIPS.get(chunk[0])
        if new is not None and not _BEFORE_VALUE.search(line, max(0, chunk.start() - 8), chunk.start()):
            return None
    # "3 passed, 1 failed" must not become "3 failed, 1 failed".
    counted = _COUNTED.search(line, max(0, chunk.start() - 3), chunk.start())
    return None if new is not None and counted and new in line else new


def _fill(lines: list[str], at: int, _names: _Names, stream: PayloadStream) -> bool:
    """Nothing becomes a value."""
    chunks = [chunk for chunk in _chunks(lines[at], stream) if chunk[0] in ("null", "None", "nil")]
    return bool(chunks) and _put(lines, at, _Place(*chunks[0].span()), "0")


# Names.

_KEYWORD_TEXT = """
and array as assert async await bool boolean break byte bytes case catch char class const continue def
default defer del delete dict do done double elif else elseif end enum esac except exec export extends
extern false False fi final finally float fn for foreach from func function go goto if impl implements
import in include init inline instanceof int interface is lambda let list local long loop match mod module
move mut namespace native new nil None nonlocal not null of or override package pass private protected pub
public raise range ref require return self Self set short signed sizeof static str string struct super
switch template then this throw throws trait True true try tuple type typedef typeof undefined union unless
unsafe until use using var virtual void volatile where while with yield http https www com org net html body
head div span src href UTC GMT the Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec Mon Tue Wed Thu Fri Sat
Sun
"""
_EXTENSION_TEXT = """
bash c cc cfg cpp cs css csv go h hpp html ini ipynb java js json jsonl jsx kt lock log lua md mjs php png
py pyi rb rs rst sh sql svg swift toml ts tsx txt vue xml yaml yml zip gz tar
"""
_KEYWORDS = frozenset(_KEYWORD_TEXT.split())
_EXTENSIONS = frozenset(_EXTENSION_TEXT.split())
_NO_NAMES = _KEYWORDS | _FLIPS.keys() | _VALUE_FLIPS.keys()
_BANNER = re.compile(r"\s*([=\-_*#~])\1{2}")


def _words(chunk: re.Match[str]) -> list[_Place]:
    """The words of a chunk that name something: no keyword, no file extension, not too short."""
    places = []
    parts = chunk[0].split(".")
    start = chunk.start()
    for i, part in enumerate(parts):
        is_extension = i == len(parts) - 1 and i > 0 and part in _EXTENSIONS
        if len(part) > 2 and not is_extension and part not in _NO_NAMES and _WORD.fullmatch(part):
            places.append(_Place(start, start + len(part)))
        start += len(part) + 1
    return places


# What stands around a name, and how it is written: a function's name becomes a function's name.
_Context = tuple[str, bool, bool, bool]
_Names = dict[_Context, dict[str, None]]


def _names(body: str) -> _Names:
    """The names that stand in the text (in its first part, when it is long), by context, each once."""
    found: _Names = {}
    for chunk in _CHUNK.finditer(body, 0, _NAMES_FROM):
        for place in _words(chunk):
            name = body[place.start : place.end]
            found.setdefault(_context(body, place, name), {}).setdefault(name)
    return found


def _context(text: str, place: _Place, name: str) -> _Context:
    around = text[place.start - 1 : place.start] + " " + text[place.end : place.end + 2]
    return _SPACE.sub(" ", around), name.isupper(), name[0].isupper(), "_" in name.strip("_")


_SPACE = re.compile(r"\s+")


def _rename(lines: list[str], at: int, names: _Names, stream: PayloadStream) -> bool:
    """One name of the line becomes another name of the text that stands in such a place elsewhere."""
    line = lines[at]
    if _BANNER.match(line):
        return False
    places = [place for chunk in _chunks(line, stream) for place in _words(chunk)]
    if not places:
        return False
    place = places[stream.below(len(places))]
    old = line[place.start : place.end]
    others = list(names.get(_context(line, place, old), ()))
    first = stream.below(len(others)) if others else 0
    for name in others[first:] + others[:first]:
        if abs(len(name) - len(old)) <= 6 and name not in line:
            return _put(lines, at, place, name)
    return False


def _vary(lines: list[str], at: int, _names: _Names, stream: PayloadStream) -> bool:
    """One word of the line becomes its plural, or its singular."""
    line = lines[at]
    chunks = _chunks(line, stream)
    places = [place for chunk in chunks for place in _words(chunk)]
    places = places or [
        _Place(*chunk.span()) for chunk in chunks if chunk[0].isascii() and chunk[0].isalpha()
    ]
    if not places:
        return False
    place = places[stream.below(len(places))]
    word = line[place.start : place.end]
    plural = "S" if word.isupper() and len(word) > 1 else "s"
    return _put(lines, at, place, word[:-1] if word[-1] == plural and len(word) > 3 else word + plural)


# Lines.

_OPENS, _CLOSES = "([{", ")]}"


def _swap(lines: list[str], at: int, _names: _Names, _stream: PayloadStream) -> bool:
    """The line changes places with its neighbour, when both can stand where the other stood."""
    for other in (at + 1, at - 1):
        if 0 <= other < len(lines) and _alike(lines[at], lines[other]):
            lines[at], lines[other] = lines[other], lines[at]
            return True
    return False


def _alike(one: str, two: str) -> bool:
    if one == two or not one.strip() or not two.strip() or len(one) + len(two) > 4 * _WINDOW:
        return False
    same = _indent(one) == _indent(two) and _start(one) == _start(two) and _ending(one) == _ending(two)
    return same and _closed(one) and _closed(two)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _start(line: str) -> str:
    first = line.lstrip()[0]
    return "" if first.isalnum() else first


def _ending(line: str) -> str:
    return "" if line[-1].isalnum() else line[-1]


def _closed(line: str) -> bool:
    """Whether a line opens nothing that another line closes."""
    return (
        line.rstrip()[-1] not in ":\\"
        and all(line.count(o) == line.count(c) for o, c in zip(_OPENS, _CLOSES, strict=True))
        and line.count('"') % 2 == 0
        and "'''" not in line
        and "```" not in line
    )


# The last resort: any letter or digit at all.


def _nudge(lines: list[str], at: int, _names: _Names, _stream: PayloadStream) -> bool:
    """The last letter or digit of the line that no backslash comes before becomes its neighbour."""
    line = lines[at]
    for i in range(len(line) - 1, -1, -1):
        if line[i].isalnum() and "\\" not in line[max(0, i - 5) : i] and not _is_word_of_json(line, i):
            return _put(lines, at, _Place(i, i + 1), _neighbour(line[i]))
    return False


def _is_word_of_json(line: str, i: int) -> bool:
    return any(word in line[max(0, i - 4) : i + 5] for word in ("true", "false", "null"))


def _any_letter(body: str) -> str:
    """``body`` with one letter or digit changed wherever it stands, an escape included, unless that would
    make JSON into something else."""
    for match in re.finditer(r"[^\W_]", body):
        i = match.start()
        new = body[:i] + _neighbour(body[i]) + body[i + 1 :]
        if not _is_json(body) or _is_json(new):
            return new
    return body


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _neighbour(char: str) -> str:
    """Another letter or digit of the same sort, next to ``char`` in its alphabet."""
    for step in (1, -1, 2, -2, 3, -3):
        code = ord(char) + step
        if 0 <= code < 0x110000 and not 0xD800 <= code < 0xE000:
            other = chr(code)
            if other.isalnum() and other.isdigit() == char.isdigit() and other.isupper() == char.isupper():
                return other
    return "x" if char != "x" else "y"


_CHANGES: tuple[Callable[[list[str], int, _Names, PayloadStream], bool], ...] = (
    _drift,
    _flip,
    _rename,
    _swap,
)
