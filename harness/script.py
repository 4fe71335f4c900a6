"""What the scripted model answers: a list of turns, or a policy, and how it misbehaves."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from harness.turns import Conversation, PastTurn, ToolCall, Turn, Usage
from harness.wire.past import newest

_STEPS_DONE = "Steps done: "
_SNAPSHOT = "<state_snapshot>"
_STEP_IN_ID = re.compile(r"_step(\d+)$")

Policy = Callable[[Conversation], Turn]


@dataclass(frozen=True, slots=True)
class Branch:
    """Turns for the conversations whose opening texts contain ``when`` (a subagent's prompt, for example)."""

    when: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Misstep:
    """How the endpoint misbehaves on its next ``times`` agent requests.

    With ``status`` the answer is that status and ``body`` (default: an error in the protocol's shape).
    With ``raw`` the answer is exactly those bytes under ``content_type``. ``cut_after_bytes`` ends the answer
    after so many bytes: ``cut`` says whether the connection drops or the body ends as if it were whole.
    ``delay_s`` waits before the first byte. ``headers`` are added to the response.
    """

    times: int = 1
    status: int | None = None
    body: str | None = None
    raw: bytes | None = None
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    delay_s: float = 0.0
    cut_after_bytes: int | None = None
    cut: Literal["drop", "end"] = "drop"


@dataclass(frozen=True, slots=True)
class Script:
    """A list of turns per conversation: each request gets the turn after the newest one that it contains.

    A used-up list answers ``end_text`` and no call. Side requests (``Conversation.side``) get ``side_text``
    and use up no turn. The first of ``branches`` whose text is in a conversation's opening gives the turns in
    place of ``turns``. The string ``{ws}`` in arguments stands for a workspace, see ``in_workspace``.
    """

    turns: tuple[Turn, ...] = ()
    branches: tuple[Branch, ...] = ()
    end_text: str = "Done."
    side_text: str = "Working on the task"
    missteps: tuple[Misstep, ...] = ()
    chunk_delay_s: float = 0.0

    def __call__(self, view: Conversation) -> Turn:
        """The turn for this request."""
        if view.side is not None:
            return Turn(self._side_text(view))
        turns = self._turns_of(view)
        done = _turns_done(turns, view)
        return replace(turns[done], step=done) if done < len(turns) else Turn(self.end_text)

    def _side_text(self, view: Conversation) -> str:
        if view.side != "compaction":
            return self.side_text
        summary = f"{self.side_text}. {_STEPS_DONE}{_turns_done(self._turns_of(view), view)}."
        # Qwen Code takes no other summary than one in the shape that it asks for.
        asked = any(_SNAPSHOT in text for text in newest(view))
        return f"{_SNAPSHOT}\n{summary}\n{_SNAPSHOT.replace('<', '</')}" if asked else summary

    def _turns_of(self, view: Conversation) -> tuple[Turn, ...]:
        opening = "\n".join(view.opening)
        return next((branch.turns for branch in self.branches if branch.when in opening), self.turns)

    def in_workspace(self, workspace: Path) -> Script:
        """The same script with ``{ws}`` in the calls' arguments replaced by ``workspace``."""
        branches = tuple(Branch(b.when, _placed(b.turns, workspace)) for b in self.branches)
        return replace(self, turns=_placed(self.turns, workspace), branches=branches)


def scripted(*turns: Turn | ToolCall | str) -> Script:
    """A script from turns, single calls and plain texts: ``scripted(ToolCall("read", …), "Done.")``."""
    return Script(tuple(_as_turn(turn) for turn in turns))


def _as_turn(turn: Turn | ToolCall | str) -> Turn:
    if isinstance(turn, str):
        return Turn(turn)
    return Turn(calls=(turn,)) if isinstance(turn, ToolCall) else turn


def _placed(turns: Sequence[Turn], workspace: Path) -> tuple[Turn, ...]:
    return tuple(
        replace(turn, calls=tuple(_placed_call(call, workspace) for call in turn.calls)) for turn in turns
    )


def _placed_call(call: ToolCall, workspace: Path) -> ToolCall:
    placed = cast("dict[str, Any]", _filled(dict(call.arguments), str(workspace)))
    return replace(call, arguments=placed)


def _filled(value: Any, workspace: str) -> Any:
    if isinstance(value, str):
        return value.replace("{ws}", workspace)
    if isinstance(value, Mapping):
        return {key: _filled(item, workspace) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(item, workspace) for item in value]
    return value


def _turns_done(turns: Sequence[Turn], view: Conversation) -> int:
    """How many turns the model has given, as its own words in the request tell.

    Answers are not just counted: harnesses drop some (compaction, a kill before they were stored) and Claude
    Code adds one of its own when it resumes.
    """
    done = 0
    for summarised in re.finditer(re.escape(_STEPS_DONE) + r"(\d+)", "\n".join(view.opening)):
        done = int(summarised.group(1))
    for past in view.turns:
        steps = [
            int(found.group(1)) for call in past.calls if (found := _STEP_IN_ID.search(call.call_id or ""))
        ]
        if steps:
            done = max(steps) + 1
        elif done < len(turns) and _is_said(turns[done], past):
            done += 1
    return done


def _is_said(turn: Turn, past: PastTurn) -> bool:
    if [call.tool for call in turn.calls] != [call.tool for call in past.calls]:
        return False
    return bool(turn.calls) or turn.text == past.text


class ScriptError(ValueError):
    """A script file that cannot be used; the message names the file and the field."""


def load_script(path: Path) -> Script:
    """Reads a YAML script; its keys are the fields of ``Script``, ``Turn``, ``ToolCall`` and ``Misstep``.

    Raises ScriptError when the file is not YAML or does not fit.
    """
    try:
        read = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
        return _ScriptFile.model_validate(read if read is not None else {}).script()
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise ScriptError(f"{path}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ScriptError(f"{path}: {where}: {first['msg']}") from error


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _CallPart(_Part):
    tool: str
    # JsonValue refuses what YAML knows and no model could send (dates, sets).
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    call_id: str | None = None
    raw_arguments: str | None = None

    def call(self) -> ToolCall:
        return ToolCall(self.tool, self.arguments, self.call_id, self.raw_arguments)


class _UsagePart(_Part):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


class _TurnPart(_Part):
    text: str = ""
    calls: list[_CallPart] = Field(default_factory=list)
    usage: _UsagePart | None = None

    def turn(self) -> Turn:
        usage = None if self.usage is None else Usage(**self.usage.model_dump())
        return Turn(self.text, tuple(call.call() for call in self.calls), usage)


class _BranchPart(_Part):
    when: Annotated[str, Field(min_length=1)]
    turns: list[_TurnPart]


class _MisstepPart(_Part):
    times: Annotated[int, Field(ge=1)] = 1
    status: Annotated[int, Field(ge=100, le=599)] | None = None
    body: str | None = None
    raw: str | None = None
    content_type: str = "application/json"
    headers: dict[str, str] = Field(default_factory=dict)
    delay_s: Annotated[float, Field(ge=0)] = 0.0
    cut_after_bytes: Annotated[int, Field(ge=0)] | None = None
    cut: Literal["drop", "end"] = "drop"

    def misstep(self) -> Misstep:
        return Misstep(
            times=self.times,
            status=self.status,
            body=self.body,
            raw=None if self.raw is None else self.raw.encode(),
            content_type=self.content_type,
            headers=tuple(self.headers.items()),
            delay_s=self.delay_s,
            cut_after_bytes=self.cut_after_bytes,
            cut=self.cut,
        )


class _ScriptFile(_Part):
    turns: list[_TurnPart] = Field(default_factory=list)
    branches: list[_BranchPart] = Field(default_factory=list)
    end_text: str = "Done."
    side_text: str = "Working on the task"
    missteps: list[_MisstepPart] = Field(default_factory=list)
    chunk_delay_s: Annotated[float, Field(ge=0)] = 0.0

    def script(self) -> Script:
        return Script(
            turns=tuple(turn.turn() for turn in self.turns),
            branches=tuple(Branch(b.when, tuple(turn.turn() for turn in b.turns)) for b in self.branches),
            end_text=self.end_text,
            side_text=self.side_text,
            missteps=tuple(misstep.misstep() for misstep in self.missteps),
            chunk_delay_s=self.chunk_delay_s,
        )
