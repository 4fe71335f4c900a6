"""The reference agent's four tools: read, write, edit, shell. Every wording of a result is in this file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READ_LIMIT_LINES = 2000
SHELL_LIMIT_CHARS = 30_000
SHELL_TIMEOUT_S = 60.0

TOOLS: tuple[dict[str, Any], ...] = (
    {
        "name": "read",
        "description": "Read a text file of the workspace.",
        "input_schema": {
            "type": "object",
            "properties": {"path": {"type": "string", "description": "Path, relative to the workspace."}},
            "required": ["path"],
        },
    },
    {
        "name": "write",
        "description": "Write a file of the workspace, in place of what it held; makes its directories.",
        "input_schema": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"],
        },
    },
    {
        "name": "edit",
        "description": "Replace a text that stands exactly once in a file.",
        "input_schema": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "old": {"type": "string"}, "new": {"type": "string"}},
            "required": ["path", "old", "new"],
        },
    },
    {
        "name": "shell",
        "description": "Run a command with /bin/sh in the workspace.",
        "input_schema": {
            "type": "object",
            "properties": {
                "command": {"type": "string"},
                "timeout": {"type": "number", "description": f"Seconds, {SHELL_TIMEOUT_S:.0f} if not given."},
            },
            "required": ["command"],
        },
    },
)


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What the model is told: ``is_error`` goes on the wire only when true."""

    text: str
    is_error: bool = False


class _Refusal(Exception):
    """A call that cannot be done; the message is the result."""


class Toolbox:
    """The tools at work in one workspace. The file tools refuse every path that leads out of it."""

    def __init__(self, workspace: Path) -> None:
        self._root = workspace.resolve()
        self._tools: dict[str, Callable[[Mapping[str, Any]], Awaitable[str]]] = {
            "read": self._read,
            "write": self._write,
            "edit": self._edit,
            "shell": self._shell,
        }

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        """Runs one call; whatever goes wrong is told in the output."""
        run = self._tools.get(tool)
        if run is None:
            return ToolOutput(f"error: no such tool: {tool}", is_error=True)
        try:
            return ToolOutput(await run(arguments))
        except _Refusal as refusal:
            return ToolOutput(str(refusal), is_error=True)

    async def _read(self, arguments: Mapping[str, Any]) -> str:
        name = _text(arguments, "path")
        content = self._content(name)
        if not content:
            return "(the file is empty)"
        lines = content.splitlines(keepends=True)
        if len(lines) <= READ_LIMIT_LINES:
            return content
        shown = "".join(lines[:READ_LIMIT_LINES])
        return f"{shown}[cut: lines 1-{READ_LIMIT_LINES} of {len(lines)} shown]"

    async def _write(self, arguments: Mapping[str, Any]) -> str:
        name, content = _text(arguments, "path"), _text(arguments, "content")
        size = self._store(name, content)
        return f"wrote {size} bytes to {name}"

    async def _edit(self, arguments: Mapping[str, Any]) -> str:
        name, old, new = (_text(arguments, key) for key in ("path", "old", "new"))
        content = self._content(name)
        count = content.count(old) if old else 0
        if count == 0:
            raise _Refusal(f"error: text not found in {name}")
        if count > 1:
            raise _Refusal(f"error: text found {count} times in {name}: it must be there once")
        self._store(name, content.replace(old, new))
        return f"edited {name}: 1 replacement"

    async def _shell(self, arguments: Mapping[str, Any]) -> str:
        command = _text(arguments, "command")
        timeout_s = arguments.get("timeout", SHELL_TIMEOUT_S)
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or timeout_s <= 0:
            raise _Refusal("error: timeout must be a positive number of seconds")
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=self._root,
            env=_shell_environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        output = bytearray()
        timed_out = False
        try:
            async with asyncio.timeout(timeout_s):
                await _collect(process, output)
        except TimeoutError:
            timed_out = True
        finally:
            # What the command left in the background ends with it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            exit_code = await process.wait()
        text = _limited(output.decode("utf-8", "replace"))
        if timed_out:
            raise _Refusal(_with_status(text, f"[timed out after {timeout_s:g} s]"))
        if exit_code != 0:
            raise _Refusal(_with_status(text, f"[exit code {exit_code}]"))
        return text or "(no output)"

    def _content(self, name: str) -> str:
        path = self._inside(name)
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise _Refusal(f"error: not a text file: {name}") from error
        except OSError as error:
            raise _Refusal(_file_error(error, name)) from error

    def _store(self, name: str, content: str) -> int:
        path = self._inside(name)
        data = content.encode("utf-8", "surrogatepass")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.write_bytes(data)
        except OSError as error:
            raise _Refusal(_file_error(error, name)) from error

    def _inside(self, name: str) -> Path:
        try:
            path = (self._root / name).resolve()
        except (OSError, ValueError) as error:
            raise _Refusal(f"error: not a path: {name!r}") from error
        if not path.is_relative_to(self._root):
            raise _Refusal(f"error: outside the workspace: {name}")
        return path


async def _collect(process: asyncio.subprocess.Process, output: bytearray) -> None:
    assert process.stdout is not None
    while piece := await process.stdout.read(65536):
        output += piece
    await process.wait()


def _text(arguments: Mapping[str, Any], key: str) -> str:
    value = arguments.get(key)
    if not isinstance(value, str):
        raise _Refusal(f"error: {key} must be given, as a string")
    return value


def _file_error(error: OSError, name: str) -> str:
    match error:
        case FileNotFoundError():
            return f"error: no such file: {name}"
        case IsADirectoryError():
            return f"error: is a directory: {name}"
        case PermissionError():
            return f"error: permission denied: {name}"
        case _:
            return f"error: {error.strerror or error}: {name}"


def _shell_environment() -> dict[str, str]:
    # PYTHONPATH is how the agent itself is found; the workspace's programs must not see it.
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def _limited(text: str) -> str:
    if len(text) <= SHELL_LIMIT_CHARS:
        return text
    half = SHELL_LIMIT_CHARS // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[{left_out} characters left out]\n{text[-half:]}"


def _with_status(text: str, status: str) -> str:
    if not text:
        return status
    return f"{text}{status}" if text.endswith("\n") else f"{text}\n{status}"
