"""How one harness words things: its tools, the shapes of its results, its identity on the wire.

A dialect is data (configs/harnesses/*.yaml); this file says what the data mean. How a result is taken apart
and put together again stands in ``shown``, the shapes themselves in ``form``; their names are here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

import orjson
from pydantic import Field, ValidationError, field_validator, model_validator

from scheduler.call import FAMILIES, Family
from scheduler.commands import LIST_COMMANDS, SEARCH_COMMANDS, command_text
from scheduler.form import (
    Checked,
    Count,
    Envelope,
    Form,
    Wording,
    any_match,
    checked_patterns,
    compiled,
    has_failed,
    points_back,
)
from scheduler.nearest import unknown
from scheduler.shown import Shown, take_apart

__all__ = [
    "Appendix",
    "Count",
    "Dialect",
    "DialectError",
    "Envelope",
    "Form",
    "Identification",
    "Shown",
    "Timeout",
    "ToolRule",
    "Wording",
    "has_failed",
    "parse_dialect",
    "points_back",
    "take_apart",
]


class DialectError(ValueError):
    """A dialect that cannot be used; the message says where it is wrong."""


class Timeout(Checked):
    """Where a call says how long it may take, and how long it may take when it does not say."""

    argument: str | None = None
    unit: Literal["s", "ms"] = "s"
    default_s: float = Field(default=120, gt=0)

    def seconds(self, arguments: Mapping[str, Any]) -> float:
        """The limit of this call, in seconds."""
        value = arguments.get(self.argument) if self.argument else None
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9:
            return value / 1000 if self.unit == "ms" else float(value)
        return self.default_s


class ToolRule(Checked):
    """One tool: its family, the argument that names its target, and the arguments that do not identify it.

    ``form`` names the shapes of its results when they are not its family's. ``raw`` is for a tool that takes
    a text in place of JSON: what the pattern's named groups first find in it are the call's arguments.
    ``harmless``: arguments with which a call of it does nothing at all; see ``Dialect.withhold``.
    """

    family: Family
    target: str | None = None
    raw: str | None = None
    volatile: frozenset[str] = frozenset()
    defaults: dict[str, Any] = Field(default_factory=dict)
    form: str | None = None
    timeout: Timeout = Timeout()
    harmless: dict[str, Any] | None = Field(default=None, min_length=1)

    @field_validator("raw")
    @classmethod
    def _raw(cls, value: str | None) -> str | None:
        return value if value is None else checked_patterns((value,))[0]

    @field_validator("family", mode="before")
    @classmethod
    def _family(cls, value: Any) -> Any:
        if value not in FAMILIES:
            raise ValueError(unknown("family", str(value), FAMILIES))
        return value


class Newest(Checked):
    """How the results of the newest answer stand at the end of a history that is retold: ``between`` two of
    them, and ``after`` the last. Where that is so, they are known for whole and for the newest."""

    between: str
    after: str

    @field_validator("between", "after")
    @classmethod
    def _pattern(cls, value: str) -> str:
        return checked_patterns((value,))[0]


class Flattened(Checked):
    """A tool result that is retold inside a text: behind the literal ``open``, at the start of a line, up to
    where the pattern ``end`` matches.

    Of a longer result the first ``limit`` UTF-16 code units are retold, then ``cut``, with ``{left}`` for how
    many more there are; of an empty one, nothing. ``which``: ``each`` result once, in their order, or the
    ``latest`` of each target alone. ``target`` is a pattern for what stands before ``open`` and names the
    call's target: its group ``target`` is the inside of a JSON string. ``lost_call`` is a pattern for how a
    call is retold whose name and arguments the harness lost, with ``{wire_name}`` for the name that it lost;
    any other is retold as ``tool(arguments)`` by such a harness. ``newest``: None where a result is never
    retold before it has been sent.
    """

    open: str = Field(min_length=1)
    end: str
    limit: int | None = Field(default=None, gt=0)
    cut: str = ""
    which: Literal["each", "latest"] = "each"
    target: str | None = None
    lost_call: str | None = None
    newest: Newest | None = None

    @field_validator("end", "target", "lost_call")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        return value if value is None else checked_patterns((value,))[0]


class Identification(Checked):
    """How requests of this harness are told apart, by header (lower case) or by patterns in its texts.

    ``pattern`` is searched in the ``header``; its group ``version``, when it has one, is the harness's
    version. ``body``, for a harness whose header is not its own alone, is an ASCII text that stands in the
    body of each of its requests. ``workspace`` patterns have a group ``path`` and are searched in the first
    messages. ``compaction`` patterns mark a history that was summed up: they are searched in each text up to
    the model's first answer, this included. ``flattened`` says how tool results look that the harness retells
    inside a text.
    """

    header: str = "user-agent"
    pattern: str | None = None
    body: str | None = Field(default=None, pattern=r"^[ -~]+$")
    session_headers: tuple[str, ...] = ()
    sub_headers: tuple[str, ...] = ()
    workspace: tuple[str, ...] = ()
    compaction: tuple[str, ...] = ()
    flattened: Flattened | None = None

    _patterns = field_validator("workspace", "compaction")(checked_patterns)

    @field_validator("pattern")
    @classmethod
    def _one_pattern(cls, value: str | None) -> str | None:
        return value if value is None else checked_patterns((value,))[0]


class Appendix(Checked):
    """Something that the harness puts behind a tool's own output.

    It starts with the literal ``open``, after ``between`` (or at the start of the text), and runs to the
    end of the text; ``pattern`` must match all of it.
    """

    open: str = Field(min_length=1)
    pattern: str
    between: str = "\n\n"

    @field_validator("pattern")
    @classmethod
    def _pattern(cls, value: str) -> str:
        return checked_patterns((value,))[0]

    def start(self, text: str, end: int) -> int | None:
        """Where the appendix that ends at ``end`` starts, its separator included, or None."""
        at = text.rfind(self.between + self.open, 0, end)
        if at >= 0:
            inside = at + len(self.between)
        elif text.startswith(self.open):
            at = inside = 0
        else:
            return None
        return at if compiled(self.pattern).fullmatch(text, inside, end) else None


class Dialect(Checked):
    """Everything that is known of one harness's wording.

    ``export``: the lines that point the harness at a proxy, with ``{base_url}``. ``superseded``: patterns of
    the texts that the harness itself puts over a result that it cleared or never had. ``unknown_tool_names``:
    what the harness calls, in the history that it sends back, a tool that it does not have, where it does not
    keep the name that the model used. ``withhold``: how a call is kept from running. ``rename``: it goes on
    under a name that no tool has; ``swap``, for a harness that cannot live with an unknown tool: under its
    own name, with the ``harmless`` arguments of its tool in the place of its own. A tool without any always
    runs. ``finishes``, for a harness whose session ends with a call: a pattern of what that call is about.
    """

    name: str
    title: str
    export: tuple[str, ...] = ()
    identify: Identification = Identification()
    tools: dict[str, ToolRule] = Field(default_factory=dict)
    tool_patterns: dict[str, ToolRule] = Field(default_factory=dict)
    forms: dict[str, Form] = Field(default_factory=dict)
    appended: tuple[Appendix, ...] = ()
    unknown_tool_names: frozenset[str] = frozenset()
    withhold: Literal["rename", "swap"] = "rename"
    finishes: str | None = None
    superseded: tuple[str, ...] = ()
    search_commands: tuple[str, ...] = SEARCH_COMMANDS
    list_commands: tuple[str, ...] = LIST_COMMANDS

    _patterns = field_validator("superseded", "search_commands", "list_commands")(checked_patterns)

    @field_validator("finishes")
    @classmethod
    def _finishes(cls, value: str | None) -> str | None:
        return value if value is None else checked_patterns((value,))[0]

    @field_validator("tool_patterns")
    @classmethod
    def _tool_patterns(cls, value: dict[str, ToolRule]) -> dict[str, ToolRule]:
        checked_patterns(tuple(value))
        return value

    @model_validator(mode="after")
    def _harmless(self) -> Dialect:
        rules = {**self.tools, **self.tool_patterns}
        having = [tool for tool, rule in rules.items() if rule.harmless is not None]
        if self.withhold == "swap" and not having:
            raise ValueError("`withhold: swap` needs a tool with `harmless` arguments")
        if self.withhold == "rename" and having:
            raise ValueError(
                f"the `harmless` arguments of {having[0]} are of no use without `withhold: swap`"
            )
        for tool in having:
            if rules[tool].raw is not None:
                raise ValueError(f"{tool} takes a text: it has no `harmless` arguments")
        return self

    def sayable(self, rule: ToolRule) -> frozenset[str]:
        """The kinds that can be worded for the tools that ``rule`` speaks of; no before-kind among them when
        their calls cannot be kept from running."""
        if self.withhold == "swap" and rule.harmless is None:
            return frozenset()
        return self.form_of(rule, rule.family).sayable

    def rule(self, tool: str) -> ToolRule:
        """The rule of ``tool``; a tool that the dialect does not know is of family ``other``."""
        found = self.tools.get(tool)
        if found is not None:
            return found
        for pattern, rule in self.tool_patterns.items():
            if compiled(pattern).fullmatch(tool):
                return rule
        return self._folded.get(tool.casefold(), _UNLISTED)

    @cached_property
    def _folded(self) -> dict[str, ToolRule]:
        return {name.casefold(): rule for name, rule in self.tools.items()}

    def arguments(self, tool: str, text: bytes) -> Mapping[str, Any]:
        """The arguments of a call as an object: ``text`` is JSON, or what the tool takes in its place.

        Empty when they are none.
        """
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            value = text.decode("utf-8", "replace")
        if isinstance(value, dict):
            return value
        raw = self.rule(tool).raw
        if raw is None or not isinstance(value, str):
            return {}
        found = compiled(raw).search(value)
        return {} if found is None else {k: v for k, v in found.groupdict().items() if v is not None}

    def family(self, tool: str, arguments: Mapping[str, Any]) -> Family:
        """The family of a call; a shell call that only searches or lists counts as search or list."""
        rule = self.rule(tool)
        if rule.family == "shell" and rule.target:
            command = command_text(arguments.get(rule.target))
            if command is not None:
                if any_match(self.search_commands, command):
                    return "search"
                if any_match(self.list_commands, command):
                    return "list"
        return rule.family

    def form(self, tool: str, family: str) -> Form:
        """The result shapes of ``tool``. A shell call counted as search or list still answers as a shell."""
        return self.form_of(self.rule(tool), family)

    def form_of(self, rule: ToolRule, family: str) -> Form:
        """The result shapes of the tools that ``rule`` speaks of, for a call that counts as ``family``."""
        name = rule.form or (rule.family if rule.family in self.forms else family)
        return self.forms.get(name) or self.forms.get("other") or _NO_FORM

    def own_form(self, tool: str) -> Form:
        """The result shapes of ``tool``, whatever family a call of it counts as: those of a call that never
        ran, where no result tells more."""
        return self.form(tool, self.rule(tool).family)

    def split_appended(self, text: str) -> tuple[str, str]:
        """``text`` as (the tool's own output, what the harness appended behind it)."""
        end = len(text)
        again = True
        while again and end:
            again = False
            for appendix in self.appended:
                start = appendix.start(text, end)
                if start is not None:
                    end = start
                    again = True
        return text[:end], text[end:]

    def is_appended(self, text: str) -> bool:
        """Whether a whole block is something that the harness appended."""
        return bool(text) and not self.split_appended(text)[0]

    def is_finishing(self, target: str) -> bool:
        """Whether a call that is about ``target`` ends the session: nothing more is asked for with it."""
        return self.finishes is not None and compiled(self.finishes).search(target) is not None

    def is_superseding(self, text: str) -> bool:
        """Whether the harness itself cleared or repaired this result: then its text wins."""
        return any_match(self.superseded, text)


_UNLISTED = ToolRule(family="other")
_NO_FORM = Form()


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
