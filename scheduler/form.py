"""The shapes of a harness's results, as data: what surrounds a tool's own content and must agree with it."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from scheduler.nearest import unknown


class Checked(BaseModel):
    """A frozen model whose unknown keys are refused with the nearest valid one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            valid = {field.alias or name for name, field in cls.model_fields.items()}
            for key in data:
                if key not in valid:
                    raise ValueError(unknown("key", str(key), valid))
        return data


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """``pattern`` as a regular expression, compiled once."""
    return re.compile(pattern)


def checked_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """``patterns`` themselves; raises ``ValueError`` on the first that is no regular expression."""
    for pattern in patterns:
        try:
            compiled(pattern)
        except re.error as error:
            raise ValueError(f"not a regular expression: {pattern!r}: {error}") from None
    return patterns


_TAIL = 4096


def any_match(patterns: tuple[str, ...], text: str) -> bool:
    """Whether one of ``patterns`` is found in ``text``.

    One that starts with ``\\A`` is tried at the start alone, one that ends with ``\\Z`` is looked for in the
    last 4,096 characters: a long text is not read through for them.
    """
    return any(_found(pattern, text) for pattern in patterns)


def _found(pattern: str, text: str) -> bool:
    if pattern.startswith(r"\A"):
        return compiled(pattern).match(text) is not None
    start = len(text) - _TAIL if pattern.endswith(r"\Z") else 0
    return compiled(pattern).search(text, max(0, start)) is not None


def _with_groups(pattern: str, *names: str) -> str:
    checked_patterns((pattern,))
    groups = compiled(pattern).groupindex
    for name in names:
        if name not in groups:
            raise ValueError(f"the pattern {pattern!r} has no group {name!r}")
    return pattern


def _checked_notice(notice: str) -> str:
    try:
        notice.format(first=1, last=1, next=2, shown=1, total=1, left=1, body="")
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(f"not a notice: {notice!r}: {error!r}") from None
    return notice


PLACE = re.compile(r"\{(?:(items|bytes|json|page|absolute|relative|given):)?(\w+)(?:\|([^{}|]*))?\}")
# Places that every call has words for.
ALWAYS_KNOWN = frozenset(
    "tool remote target name program seconds milliseconds minutes duration where pid hex6 hex12".split()  # noqa: SIM905
)


def is_always_known(how: str, place: str) -> bool:
    """Whether every call has words for a place: ``how`` they are to be put there, if in no plain way."""
    return place in ALWAYS_KNOWN or how in {"items", "bytes", "given"}


class Wording(Checked):
    """One text that the harness can show, with ``{target}``-like places for the call's own words.

    ``error`` is what the protocol's flag becomes; None leaves it as it is, and out for a call that never ran.
    ``when``: place → pattern that is searched in what stands there; all must be found. Wordings whose
    ``when`` holds go before those without one. ``exit``: the status with which a command ended that printed
    this text; the form's ``frame`` is put around it. ``late``: all of the call's time limit has passed.
    """

    text: str
    error: bool | None = None
    exit: int | None = None
    late: bool = False
    when: dict[str, str] = Field(default_factory=dict)

    @field_validator("when")
    @classmethod
    def _when(cls, value: dict[str, str]) -> dict[str, str]:
        checked_patterns(tuple(value.values()))
        return value

    @property
    def is_for_all(self) -> bool:
        """Whether every call can have it, whatever its arguments."""
        return not self.when and all(is_always_known(how, name) for how, name, _ in PLACE.findall(self.text))


class Count(Checked):
    """A number or word inside a result that must agree with its new content.

    ``is``: ``lines`` (how many the content has), ``first``, ``last`` and ``next`` (line numbers: of the
    first, of the last, and the one after it), ``left`` (how many lines are not shown), ``sum`` (of the
    numbers at the ends of the lines, as ``grep -c`` prints them), ``size`` (of the content, as ``1.5KB``),
    ``chars`` (of the content, ``plus`` what stands before it), ``tokens`` (of the content; one is four bytes,
    or what is left of them), ``chars_left``, ``tokens_left`` (how many of them are not shown) or ``plural``
    (``one`` when what it is the plural ``of`` is 1, else ``many``).

    ``times`` multiplies ``lines``; ``like`` is a pattern for those lines that count; ``grouped`` sets
    thousands of characters apart by commas. ``whole``: it tells of all there is, also when the harness's
    notice says that a part is shown.
    """

    group: str
    is_: Literal[
        "lines",
        "first",
        "last",
        "next",
        "left",
        "sum",
        "size",
        "chars",
        "chars_left",
        "tokens",
        "tokens_left",
        "plural",
    ] = Field(alias="is")
    of: Literal["lines", "sum"] = "lines"
    one: str = ""
    many: str = "s"
    times: int = 1
    plus: int = 0
    like: str | None = None
    grouped: bool = False
    whole: bool = False

    @field_validator("like")
    @classmethod
    def _like(cls, value: str | None) -> str | None:
        return value if value is None else checked_patterns((value,))[0]


class Envelope(Checked):
    """A result shape: ``pattern`` must match the whole text; its group ``body`` is the tool's own content,
    the groups named in ``counts`` are written anew when the content changes.

    ``cut`` marks a shape that already says that it shows a part only; ``empty`` is how this shape looks with
    nothing in it, where that is not the form's ``empty``. ``hollow`` says that an empty result has this same
    shape, and what then stands in the body's place. ``quoted``: the body is the inside of a JSON string, of
    one by itself or of one in a ``page``, where all but ASCII is escaped, and ``&<>'`` too. ``ending``: the
    group that gives way to the notice when the content is cut, and ``notice`` this shape's own, where that is
    not the form's.
    """

    pattern: str
    counts: tuple[Count, ...] = ()
    cut: bool = False
    empty: Wording | None = None
    hollow: str | None = None
    quoted: Literal["json", "page"] | None = None
    ending: str | None = None
    notice: str | None = None

    @field_validator("notice")
    @classmethod
    def _notice(cls, value: str | None) -> str | None:
        return value if value is None else _checked_notice(value)

    @model_validator(mode="after")
    def _groups(self) -> Envelope:
        others = [self.ending] if self.ending is not None else []
        _with_groups(self.pattern, "body", *(count.group for count in self.counts), *others)
        if self.hollow is not None and self.empty is not None:
            raise ValueError("`hollow` and `empty` say the same: give one of them")
        return self

    def group_of(self, what: str) -> str | None:
        """The group that holds the count ``what``, when there is one."""
        return next((count.group for count in self.counts if count.is_ == what), None)


class Form(Checked):
    """The shapes of one family's (or tool's) results.

    ``number`` matches a printed line number at the start of a line: groups ``pad`` (spaces that right-align
    it, may be empty), ``n`` and ``sep``. ``first_line`` names the argument that says which line of the file
    the first line shown is. ``trailing_line``: a newline at the end starts one more line, in this harness's
    counting. ``empty``: how a result without content is shown; ``nothing``: patterns of other results that
    hold no content of the tool's. ``failed``: patterns of results that say that the call failed.
    ``keep``: which end is left when this harness cuts; ``notice``: what it then adds, with ``{first}``,
    ``{last}``, ``{next}``, ``{total}`` (line numbers), ``{shown}`` and ``{left}`` (how many lines), and with
    ``{body}`` where it does not just follow the content. ``frame``: what stands around the ``{output}`` of a
    command that ended with status ``{exit}``; ``{tokens}`` counts it, as ``tokens`` does, ``{wall}`` is how
    many seconds it took, with four decimals.
    ``errors``: kind → wordings. ``back_references``: patterns of results that only point at an earlier one.
    """

    number: str | None = None
    first_line: str | None = None
    trailing_line: bool = False
    envelopes: tuple[Envelope, ...] = ()
    empty: Wording | None = None
    nothing: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    keep: Literal["head", "tail"] = "head"
    notice: str | None = None
    frame: str | None = None
    errors: dict[str, tuple[Wording, ...]] = Field(default_factory=dict)
    back_references: tuple[str, ...] = ()

    _patterns = field_validator("nothing", "failed", "back_references")(checked_patterns)

    @field_validator("number")
    @classmethod
    def _number(cls, value: str | None) -> str | None:
        return value if value is None else _with_groups(value, "pad", "n", "sep")

    @field_validator("notice")
    @classmethod
    def _notice(cls, value: str | None) -> str | None:
        return value if value is None else _checked_notice(value)

    @model_validator(mode="after")
    def _framed(self) -> Form:
        for kind, wordings in self.errors.items():
            if self.frame is None and any(wording.exit is not None for wording in wordings):
                raise ValueError(f"a wording of {kind} has an exit status, but there is no frame for it")
        return self

    @field_validator("errors")
    @classmethod
    def _some_wordings(cls, value: dict[str, tuple[Wording, ...]]) -> dict[str, tuple[Wording, ...]]:
        for kind, wordings in value.items():
            if not wordings:
                raise ValueError(f"no wording of {kind}: leave the kind out, or give one")
        return value

    @cached_property
    def sayable(self) -> frozenset[str]:
        """The kinds that this harness can word for every call of the tool."""
        return frozenset(
            kind for kind, wordings in self.errors.items() if any(wording.is_for_all for wording in wordings)
        )


def has_failed(form: Form, text: str, is_error: bool | None) -> bool:
    """Whether a result says that its call failed, by the protocol's flag or by the dialect's patterns."""
    return bool(is_error) or any_match(form.failed, text)


def points_back(form: Form, text: str) -> bool:
    """Whether a result only points at an earlier one."""
    return any_match(form.back_references, text)
