"""Made-up agent conversations whose bodies look like those of real harnesses on the wire.

The texts are the standard library's own sources and language reference: real code and real prose, so that the
share of escapes, the lengths of lines and the digits are those of what agents read all day.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson

# A call as ``answer_events`` spells it.
_NAMES = re.compile(rb'"id":"(toolu_\w+)","name":"([^"]+)"')

Harness = Literal["claude-code", "pi"]

_MODULES = (
    "argparse",
    "ast",
    "datetime",
    "decimal",
    "enum",
    "inspect",
    "pathlib",
    "shutil",
    "tarfile",
    "typing",
)


class Call(NamedTuple):
    """One tool call of the model."""

    call_id: str
    tool: str
    arguments: dict[str, Any]


class Turn(NamedTuple):
    """One request, and the calls that the endpoint is to answer it with."""

    headers: tuple[tuple[str, str], ...]
    body: bytes
    answer: tuple[Call, ...]


@lru_cache(maxsize=1)
def _code() -> tuple[str, ...]:
    folder = Path(random.__file__).parent
    lines: list[str] = []
    for name in _MODULES:
        path = folder / f"{name}.py"
        source = path if path.is_file() else folder / name / "__init__.py"
        lines += source.read_text("utf-8").splitlines()
    return tuple(lines)


@lru_cache(maxsize=1)
def _prose() -> str:
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


@dataclass(frozen=True, slots=True)
class _Manner:
    """How one harness speaks: its headers, its fixed parts, and the names of its tools."""

    agent: str
    session_header: str | None
    system_bytes: int
    tools: int
    tool_bytes: int
    read: tuple[str, str]
    shell: str
    numbered: bool
    reminds: bool
    no_such_tool: str


# Sizes as seen on the wire: Claude Code 2.1.289 sends 28 KB of system text and 44 KB of tools behind the
# messages, Pi 1.0.3 a few KB of both.
_MANNERS: dict[Harness, _Manner] = {
    "claude-code": _Manner(
        "claude-cli/2.1.289 (external, sdk-cli)", "x-claude-code-session-id", 28_000, 12, 3_600,
        ("Read", "file_path"), "Bash", numbered=True, reminds=True,
        no_such_tool="<tool_use_error>Error: No such tool available: {}</tool_use_error>",
    ),
    "pi": _Manner(
        "pi (linux; x64)", None, 3_000, 4, 700, ("read", "path"), "bash", numbered=False, reminds=False,
        no_such_tool="Tool {} not found",
    ),
}  # fmt: skip


class Conversation:
    """A history that grows turn by turn; each turn's body holds all of it. The same seed, the same bodies."""

    def __init__(self, harness: Harness, seed: int, workspace: str = "/tmp/work/project") -> None:
        self._manner = _MANNERS[harness]
        self._random = random.Random(seed)
        self._session = f"{seed:08x}-0000-4000-8000-000000000000"
        self._workspace = workspace
        self._head = b'{"model":"claude-sonnet-4-5","messages":['
        self._tail = self._fixed_parts()
        self._messages: list[bytes] = []
        self._pending: tuple[Call, ...] = ()
        self._calls = 0

    def next(self, calls: int = 1, result_bytes: int = 1_500) -> Turn:
        """The next request: results of about ``result_bytes`` bytes for the calls of the last answer.

        The answer to it will ask for ``calls`` calls; with none it is a text, and the user speaks next.
        """
        if self._messages:
            self._messages.append(self._assistant(self._pending))
        plain, marked = self._user(result_bytes)
        self._messages.append(plain)
        body = b"".join((self._head, b",".join([*self._messages[:-1], marked]), self._tail))
        self._pending = tuple(self._call() for _ in range(calls))
        return Turn(self._headers(), body, self._pending)

    def heard(self, answer: bytes) -> None:
        """Takes the names of tools from the answer as it arrived: a harness has no tool of a name that was
        changed on the way, says so, and keeps the name."""
        names = dict(_NAMES.findall(answer))
        self._pending = tuple(
            call._replace(tool=names.get(call.call_id.encode(), call.tool.encode()).decode())
            for call in self._pending
        )

    def next_of_size(self, size: int, calls: int = 1) -> Turn:
        """As ``next``, with results that bring the body to about ``size`` bytes."""
        return self.next(calls, max(100, (size - self.size) // max(1, len(self._pending))))

    @property
    def size(self) -> int:
        """How many bytes a body of the history so far has."""
        return len(self._head) + sum(len(m) + 1 for m in self._messages) + len(self._tail)

    def compact(self) -> None:
        """Starts the history anew, as a harness does that has summed it up."""
        self._messages = []
        self._pending = ()

    # -- parts --

    def _headers(self) -> tuple[tuple[str, str], ...]:
        manner = self._manner
        session = ((manner.session_header, self._session),) if manner.session_header else ()
        return (
            ("user-agent", manner.agent),
            ("content-type", "application/json"),
            ("accept", "application/json"),
            ("accept-encoding", "gzip, deflate, br, zstd"),
            ("anthropic-version", "2023-06-01"),
            ("x-api-key", "none-needed"),
            *session,
        )

    def _fixed_parts(self) -> bytes:
        manner, prose = self._manner, _prose()
        tools = []
        for i in range(manner.tools):
            name = (manner.read[0], manner.shell)[i] if i < 2 else f"Tool{i}"
            at = 40_000 + i * manner.tool_bytes
            schema = {
                "type": "object",
                "properties": {manner.read[1]: {"type": "string"}, "command": {"type": "string"}},
                "required": [manner.read[1]],
                "additionalProperties": False,
            }
            tools.append(
                {"name": name, "description": prose[at : at + manner.tool_bytes], "input_schema": schema}
            )
        system = [
            {"type": "text", "text": "You are a coding agent.", "cache_control": {"type": "ephemeral"}},
            {
                "type": "text",
                "text": f"Primary working directory: {self._workspace}\n" + prose[: manner.system_bytes],
                "cache_control": {"type": "ephemeral"},
            },
        ]
        fields = b',"max_tokens":32000,"stream":true}'
        return b'],"system":' + orjson.dumps(system) + b',"tools":' + orjson.dumps(tools) + fields

    def _user(self, result_bytes: int) -> tuple[bytes, bytes]:
        """A user message, plain and with the mark that says where the provider's cache ends: it moves on with
        every turn, so a message bears it only while it is the last."""
        if self._pending:
            blocks = [self._result(call, result_bytes) for call in self._pending]
        else:
            blocks = [{"type": "text", "text": self._words(result_bytes)}]
        plain = orjson.dumps({"role": "user", "content": blocks})
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
        return plain, orjson.dumps({"role": "user", "content": blocks})

    def _result(self, call: Call, about: int) -> dict[str, Any]:
        known = call.tool in (self._manner.read[0], self._manner.shell)
        size = int(about * self._random.choice((0.4, 0.8, 1.0, 1.0, 1.8)))
        if not known:
            text = self._manner.no_such_tool.format(call.tool)
        else:
            text = self._listing(size) if call.tool == self._manner.read[0] else self._lines(size)
        if self._manner.reminds:
            left = 15_000_000 - 137 * self._calls
            text += (
                f"\n\n<system-reminder>\n<total_tokens>{left} tokens left</total_tokens>\n</system-reminder>"
            )
        block: dict[str, Any] = {"tool_use_id": call.call_id, "type": "tool_result", "content": text}
        if call.tool == self._manner.shell or not self._manner.reminds or not known:
            block["is_error"] = not known
        return block

    def _lines(self, size: int) -> str:
        code = _code()
        at = self._random.randrange(len(code))
        taken: list[str] = []
        while size > 0:
            line = code[at % len(code)]
            taken.append(line)
            size -= len(line) + 2
            at += 1
        return "\n".join(taken)

    def _listing(self, size: int) -> str:
        lines = self._lines(size).split("\n")
        if not self._manner.numbered:
            return "\n".join(lines)
        return "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, 1))

    def _words(self, size: int) -> str:
        prose = _prose()
        at = self._random.randrange(len(prose) - size) if size < len(prose) else 0
        return prose[at : at + size]

    def _call(self) -> Call:
        self._calls += 1
        call_id = f"toolu_{self._random.getrandbits(96):024x}"
        name = f"{self._workspace}/src/module_{self._random.randrange(60)}.py"
        if self._random.random() < 0.6:
            tool, argument = self._manner.read
            return Call(call_id, tool, {argument: name})
        return Call(call_id, self._manner.shell, {"command": f"python -m pytest {name} -q -x"})

    def _assistant(self, calls: tuple[Call, ...]) -> bytes:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": self._words(120)}]
        blocks += (
            {"type": "tool_use", "id": call.call_id, "name": call.tool, "input": call.arguments}
            for call in calls
        )
        return orjson.dumps({"role": "assistant", "content": blocks})
