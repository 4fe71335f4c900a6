"""wrong_data: plausible but wrong. Numbers drift, flags flip, lines swap, names change; the shape stays."""

from __future__ import annotations

import re
from collections.abc import Callable

from scheduler.faults.registry import TEXT_FAMILIES, Kind, Rewrite, Scene, Skip, implicit, register
from scheduler.uniform import PayloadStream

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*\w)")
_FLAG = re.compile(
    r"(?<!\w)(?:true|false|True|False|TRUE|FALSE|yes|no|on|off|enabled|disabled|passed|failed|PASSED|FAILED"
    r"|PASS|FAIL|ok|OK|and|or|min|max|start|end|left|right|first|last|read|write|open|closed?)(?!\w)|==|!=|<=|>="
)
_FLIPS = {
    "true": "false", "True": "False", "TRUE": "FALSE", "yes": "no", "on": "off", "enabled": "disabled",
    "passed": "failed", "PASSED": "FAILED", "PASS": "FAIL", "==": "!=", "<=": ">=", "and": "or", "min": "max",
    "start": "end", "left": "right", "first": "last", "read": "write", "open": "closed",
}  # fmt: skip
_FLIPS |= {after: before for before, after in _FLIPS.items()} | {
    "ok": "failed",
    "OK": "FAILED",
    "close": "open",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VOWELS = str.maketrans("aeiouyAEIOUY", "eioauiEIOAUI")


def _drift_number(line: str, stream: PayloadStream) -> str | None:
    found = list(_NUMBER.finditer(line))
    if not found:
        return None
    match = found[stream.below(len(found))]
    digits = match[0]
    whole, dot, fraction = digits.partition(".")
    step = 1 + stream.below(3)
    drifted = int(whole) + step if stream.next() < 0.5 or int(whole) < step else int(whole) - step
    return line[: match.start()] + str(drifted).zfill(len(whole)) + dot + fraction + line[match.end() :]


def _flip_flag(line: str, stream: PayloadStream) -> str | None:
    found = list(_FLAG.finditer(line))
    if not found:
        return None
    match = found[stream.below(len(found))]
    return line[: match.start()] + _FLIPS[match[0]] + line[match.end() :]


def _change_name(line: str, stream: PayloadStream) -> str | None:
    found = [match for match in _NAME.finditer(line) if len(match[0]) > 1] or list(_NAME.finditer(line))
    if not found:
        return None
    match = found[stream.below(len(found))]
    name = match[0]
    changed = name.translate(_VOWELS)
    if changed == name:
        # No vowel to move: the next letter of the alphabet for the last one.
        last = name[-1]
        changed = name[:-1] + ("a" if last in "zZ9_" else chr(ord(last) + 1))
    return line[: match.start()] + changed + line[match.end() :]


_CHANGES: tuple[Callable[[str, PayloadStream], str | None], ...] = (_drift_number, _flip_flag, _change_name)


def _swap(lines: list[str], at: int) -> bool:
    for other in (at + 1, at - 1):
        if 0 <= other < len(lines) and lines[other] != lines[at] and lines[other].strip():
            lines[at], lines[other] = lines[other], lines[at]
            return True
    return False


def alter(body: str, stream: PayloadStream) -> str:
    """``body`` with one line in twelve changed (at least one, at most twelve); the line count stays.

    Returns ``body`` itself when it has no letter and no digit to change.
    """
    lines = body.split("\n")
    full = [i for i, line in enumerate(lines) if line.strip()]
    if not full:
        return body
    for _ in range(min(12, 1 + len(full) // 12)):
        at = full[stream.below(len(full))]
        choice = stream.below(len(_CHANGES) + 1)
        if choice == len(_CHANGES) and _swap(lines, at):
            continue
        for i in range(len(_CHANGES)):
            changed = _CHANGES[(choice + i) % len(_CHANGES)](lines[at], stream)
            if changed is not None:
                lines[at] = changed
                break
    altered = "\n".join(lines)
    if altered == body:
        # Two changes can undo each other, and a picked line can have nothing to change.
        for at in full:
            changed = _change_name(lines[at], stream) or _drift_number(lines[at], stream)
            if changed is not None:
                lines[at] = changed
                break
    return "\n".join(lines)


def rewrite(scene: Scene) -> Rewrite | Skip:
    if scene.is_empty or scene.points_back:
        return Skip("no_change")
    text = scene.shown.wrap(alter(scene.shown.body, scene.stream))
    return Skip("no_change") if text == scene.shown.text else Rewrite(text)


register(
    Kind(
        name="wrong_data",
        summary="plausible but wrong data, same shape and line count",
        timing="after",
        families=TEXT_FAMILIES,
        mode=implicit,
        rewrite=rewrite,
        on_text=True,
        keeps_images=True,
    )
)
