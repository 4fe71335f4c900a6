"""Ending a program with everything it has started, and nothing else.

Harnesses start commands in sessions of their own, so the process group is not enough: children are followed
by their parents, and what has lost its parent is known by the HOME that it inherited. Both want /proc
(Linux).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_PROC = Path("/proc")
_LOOK_AGAIN_S = 0.01


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """SIGINT and SIGTERM raise ``KeyboardInterrupt`` while the block runs, so that what was started is ended;
    only the main thread can be told of them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def kill_all(pid: int, home: str | None) -> None:
    """SIGKILL to the process group of ``pid``, its descendants, and whatever has ``home`` as its HOME.

    Everything is stopped before it is killed, so that nothing new is started in between. ``home`` must be the
    program's own.
    """
    _signal_group(pid, signal.SIGSTOP)
    family = _stopped_family(pid)
    _signal_group(pid, signal.SIGKILL)
    _signal(family, signal.SIGKILL)
    kill_by_home(home)


def kill_by_home(home: str | None) -> int:
    """SIGKILL to every process whose HOME is ``home``, until there is none; how many there were."""
    if not home or home == os.environ.get("HOME"):
        return 0
    mark = f"HOME={home}".encode()
    killed = 0
    while found := [pid for pid in _pids() if mark in _environment(pid) and not _is_dead(pid)]:
        killed += _signal(found, signal.SIGKILL)
        time.sleep(_LOOK_AGAIN_S)
    return killed


def _stopped_family(pid: int) -> list[int]:
    """Every descendant of ``pid``, stopped: looked for again until no new one turns up."""
    known: set[int] = set()
    while fresh := _descendants(pid) - known:
        _signal(fresh, signal.SIGSTOP)
        known |= fresh
    return list(known)


def _descendants(pid: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for process in _pids():
        status = _status(process)
        if status is not None:
            children.setdefault(status[1], []).append(process)
    found: set[int] = set()
    left = [pid]
    while left:
        for child in children.get(left.pop(), ()):
            if child not in found:
                found.add(child)
                left.append(child)
    return found


def _pids() -> Iterator[int]:
    if _PROC.is_dir():
        yield from (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())


def _status(pid: int) -> tuple[str, int] | None:
    """(state, parent) of a process; None when it has gone."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[1])


def _is_dead(pid: int) -> bool:
    status = _status(pid)
    return status is None or status[0] in ("Z", "X")


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _signal(pids: Iterable[int], number: signal.Signals) -> int:
    sent = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            sent += 1
    return sent
