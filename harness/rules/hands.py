"""How the demo model uses whatever tools are on offer, and how it understands what they answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from harness.turns import Conversation, ToolCall, ToolOffer, ToolResult


@dataclass(frozen=True, slots=True)
class Read:
    """Read a whole file."""

    path: str


@dataclass(frozen=True, slots=True)
class Write:
    """Give a file a new content."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace a text that stands once in a file."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Shell:
    """Run a command in the workspace."""

    command: str


Act = Read | Write | Edit | Shell


@dataclass(frozen=True, slots=True)
class Seen:
    """What an act brought: ``failed`` if the answer says so, ``partial`` if it says that it is not all."""

    text: str
    failed: bool = False
    partial: bool = False


_KINDS: dict[type[Act], tuple[str, ...]] = {
    Read: ("read",),
    Write: ("write",),
    Edit: ("edit",),
    Shell: ("bash", "shell"),
}
# The lines in which Claude Code, Pi and the reference agent say where they work.
_WORKSPACES = (
    re.compile(r"Primary working directory: (\S.*)"),
    re.compile(r"<cwd>\s*(\S.*?)\s*</cwd>"),
    re.compile(r"^Workspace: (\S.*)$", re.MULTILINE),
)
_REMINDERS = re.compile(r"(\n\n<system-reminder>\n.*?\n</system-reminder>)+\s*\Z", re.DOTALL)
_EMPTY = re.compile(
    r"\A\s*(\(no output\)|\(Bash completed with no output\)|\(the file is empty\)"
    r"|<system-reminder>Warning: the file exists but the contents are empty\.</system-reminder>)?\s*\Z"
)
_FAILURE = re.compile(
    r"\AExit code \d+|^Command exited with code \d+|^\[exit code \d+\]"
    r"|^Command timed out after|^\[timed out after|\ACommand did not complete within|\A<tool_use_error>",
    re.MULTILINE,
)
_PARTIAL = re.compile(
    r"^\[cut: |characters left out\]|characters truncated\]|<persisted-output>"
    r"|^\[Showing lines|more lines in file|^\[Line \d+ is|\[truncated\]|^\[.*\btruncated\b.*\]$",
    re.MULTILINE,
)
_NUMBERED = re.compile(r"\s*\d+\t(.*)")
_BARE_NUMBER = re.compile(r"\s*\d+")


class Hands:
    """The tools of one conversation."""

    def __init__(self, view: Conversation) -> None:
        self._tools = {kind: _offer(view, names) for kind, names in _KINDS.items()}
        self._workspace = _workspace(view)

    @property
    def usable(self) -> bool:
        """Whether there is a tool for every kind of act."""
        return all(self._tools.values())

    def call(self, act: Act) -> ToolCall:
        """The act as a call of the tool on offer, with that tool's own argument names."""
        offer = self._tools[type(act)]
        if offer is None:
            raise LookupError(f"no tool for {type(act).__name__}")
        return ToolCall(offer.name, self._arguments(act, offer.parameters))

    def is_call_of(self, act: Act, call: ToolCall) -> bool:
        """Whether an earlier call was this act: the harness may have respelled all but its target."""
        mine = self.call(act)
        keys = [key for key in ("file_path", "path", "command") if key in mine.arguments]
        return mine.tool == call.tool and all(call.arguments.get(key) == mine.arguments[key] for key in keys)

    def seen(self, act: Act, result: ToolResult | None) -> Seen:
        """What the result of an act tells."""
        if result is None:
            return Seen("", failed=True)
        text = _REMINDERS.sub("", result.text)
        if _EMPTY.match(text):
            return Seen("", failed=result.is_error is True)
        failed = result.is_error is True or (isinstance(act, Shell) and _FAILURE.search(text) is not None)
        partial = _PARTIAL.search(text) is not None
        if isinstance(act, Read) and not failed and self._numbers_lines:
            return _without_numbers(text, partial=partial)
        return Seen(text, failed, partial)

    @property
    def _numbers_lines(self) -> bool:
        offer = self._tools[Read]
        return offer is not None and "file_path" in offer.parameters

    def _arguments(self, act: Act, parameters: tuple[str, ...]) -> Mapping[str, Any]:
        if isinstance(act, Shell):
            return {"command": act.command}
        target = self._target(act.path, parameters)
        match act:
            case Read():
                return target
            case Write():
                return target | {"content": act.content}
            case Edit() if "edits" in parameters:
                return target | {"edits": [{"oldText": act.old, "newText": act.new}]}
            case Edit() if "old_string" in parameters:
                return target | {"old_string": act.old, "new_string": act.new}
            case Edit():
                return target | {"old": act.old, "new": act.new}

    def _target(self, path: str, parameters: tuple[str, ...]) -> dict[str, Any]:
        if "file_path" in parameters:
            return {"file_path": str(PurePosixPath(self._workspace, path))}
        return {"path": path}


def _offer(view: Conversation, names: tuple[str, ...]) -> ToolOffer | None:
    return next((tool for tool in view.tools if tool.name.lower() in names), None)


def _workspace(view: Conversation) -> str:
    for text in (view.system, *view.user_texts):
        for pattern in _WORKSPACES:
            found = pattern.search(text)
            if found:
                return found.group(1)
    return ""


def _without_numbers(text: str, *, partial: bool) -> Seen:
    """Claude Code numbers the lines; a line without a number is not of the file."""
    lines = text.split("\n")
    content = [found.group(1) for line in lines if (found := _NUMBERED.fullmatch(line))]
    # Before a reminder the tab of a last, empty line is gone.
    if _BARE_NUMBER.fullmatch(lines[-1]):
        content.append("")
    return Seen("\n".join(content), partial=partial or len(content) < len(lines))
