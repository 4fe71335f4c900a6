"""A call's own words in the places of a wording: its arguments, its paths, its programs, its time limit."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from typing import Any

from scheduler.commands import command_text, first_step, last_program
from scheduler.dialect import ToolRule
from scheduler.form import PLACE, Wording, compiled, is_always_known
from scheduler.shown import quoted, token_count
from scheduler.uniform import PayloadStream


def words_of(
    tool: str,
    rule: ToolRule,
    arguments: Mapping[str, Any],
    workspace: str | None = None,
    session: str | None = None,
) -> dict[str, str]:
    """place → what stands there for this call. Every argument has a place of its own name.

    ``{tool}`` is the tool, ``{target}`` the target argument, ``{name}`` the last part of a path,
    ``{program}`` the program that a command runs last, ``{seconds}``, ``{milliseconds}``, ``{minutes}`` and
    ``{duration}`` the call's time limit (``120``, ``120000``, ``2.0``, ``2m 0s``); ``{items:x}`` is how many
    items the list ``x`` has (1 when it is no list), ``{bytes:x}`` how long the text ``x`` is in UTF-8,
    ``{json:x}`` and ``{page:x}`` the text as ``quoted`` writes it, ``{absolute:x}`` a path from the root
    and ``{relative:x}`` one from the workspace, when that is known; ``{given:x|words}`` the argument ``x``
    itself, or these words where the call has none. ``{where}`` is the argument ``path``
    made absolute, or else the workspace; ``{remote}`` what an MCP server calls its tool.

    There may be: ``{workspace}``, ``{session}`` (what the harness calls the session), ``{host}`` of a URL,
    and of a shell command, about the program that could fail alone: ``{looked_up}`` (its name) or
    ``{program_path}``, as it was typed, ``{executable}`` (its path either way), ``{redirected}`` (the file
    that it writes), ``{directory}`` (where the command changes to).
    """
    value = arguments.get(rule.target) if rule.target else None
    target = tool if value is None else command_text(value) or _plain(value)
    seconds = rule.timeout.seconds(arguments)
    words = {str(key): _plain(item) for key, item in arguments.items()}
    words |= {f"given {key}": item for key, item in words.items()}
    words |= {
        "tool": tool,
        "remote": tool.rsplit("__", 1)[-1],
        "target": target,
        "name": target.rstrip("/").rsplit("/", 1)[-1] or target,
        "program": last_program(target),
        "seconds": f"{seconds:g}",
        "milliseconds": f"{seconds * 1000:.0f}",
        "minutes": f"{seconds / 60:.1f}",
        "duration": _duration(seconds),
        "where": _absolute(words.get("path") or ".", workspace),
    }
    if workspace is not None:
        words["workspace"] = workspace
    if session is not None:
        words["session"] = session
    host = _HOST.match(target)
    if host is not None:
        words["host"] = host[1]
    if rule.family == "shell" and value is not None:
        words |= _words_of_step(target)
    return words


def _words_of_step(command: str) -> dict[str, str]:
    step = first_step(command)
    if step is None:
        return {}
    words = {}
    if step.program is not None and "/" in step.program:
        words["program_path"] = words["executable"] = step.program
    elif step.program is not None:
        words["looked_up"] = step.program
        words["executable"] = f"/usr/bin/{step.program}"
    if step.redirected is not None:
        words["redirected"] = step.redirected
    if step.directory is not None:
        words["directory"] = step.directory
    return words


_HOST = re.compile(r"https?://(?:[^/?#@\s]*@)?([\w.-]+)")


def can_fill(wording: Wording, words: Mapping[str, str]) -> bool:
    """Whether there are words for all places of ``wording``."""
    return all(is_always_known(how, place) or place in words for how, place, _ in PLACE.findall(wording.text))


def fitting_wordings(wordings: tuple[Wording, ...], words: Mapping[str, str]) -> list[Wording]:
    """The wordings that this call can have: those whose ``when`` holds, or else those without one."""
    fillable = [wording for wording in wordings if can_fill(wording, words)]
    chosen = [wording for wording in fillable if wording.when and _holds(wording, words)]
    return chosen or [wording for wording in fillable if not wording.when]


def _holds(wording: Wording, words: Mapping[str, str]) -> bool:
    return all(
        place in words and compiled(pattern).search(words[place]) for place, pattern in wording.when.items()
    )


def fill(
    wording: Wording,
    words: Mapping[str, str],
    stream: PayloadStream | None = None,
    frame: str | None = None,
) -> str:
    """The text of ``wording``, in ``frame`` when it has an exit status.

    ``{pid}``, ``{hex6}`` and ``{hex12}`` come from ``stream``: a process id, and so many digits.
    """
    text = _filled(wording.text, words, stream)
    if wording.exit is None or frame is None:
        return text
    wall = float(words["seconds"]) + (stream.below(100) / 1e4 if stream is not None else 0)
    around = {
        "output": text,
        "exit": str(wording.exit),
        "tokens": str(token_count(text)),
        "wall": f"{wall:.4f}" if wording.late else "0.0000",
    }
    return _filled(frame, {**words, **around}, stream)


def _filled(text: str, words: Mapping[str, str], stream: PayloadStream | None) -> str:
    def word(match: re.Match[str]) -> str:
        how, place, otherwise = match.groups()
        if how == "given":
            return words.get(f"given {place}", otherwise or "")
        if how == "items":
            return str(_items(words.get(place, "")))
        if how == "bytes":
            return str(len(words.get(place, "").encode("utf-8", "surrogatepass")))
        if how == "absolute":
            return _absolute(words[place], words.get("workspace")) if place in words else match[0]
        if how == "relative":
            return _relative(words[place], words.get("workspace")) if place in words else match[0]
        if how in {"json", "page"}:
            return quoted(words[place], "page" if how == "page" else "json") if place in words else match[0]
        if place == "pid" and stream is not None:
            return str(1000 + stream.below(60_000))
        if place in {"hex6", "hex12"} and stream is not None:
            digits = int(place[3:])
            return f"{stream.below(16**digits):0{digits}x}"
        return words.get(place, match[0])

    return PLACE.sub(word, text)


def _relative(path: str, workspace: str | None) -> str:
    """A path from the workspace, where that can be known."""
    if workspace is None or not path.startswith("/"):
        return path
    return posixpath.relpath(path, workspace)


def _absolute(path: str, workspace: str | None) -> str:
    """A path from the root, where that can be known."""
    if workspace is None or path.startswith(("/", "~", "\\")):
        return path
    return posixpath.normpath(posixpath.join(workspace, path))


def _items(text: str) -> int:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return 1
    return len(value) if isinstance(value, list) else 1


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _duration(seconds: float) -> str:
    whole = max(1, int(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes}m {rest}s"
    return f"{minutes}m {rest}s" if minutes else f"{rest}s"
