"""How long the command takes from its start to its first answered request."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import processes
from bench.client import Client
from bench.conversation import Conversation
from bench.effort import Effort
from bench.figures import Figure, spread
from bench.supply import send

Say = Callable[[str], None]
_TARGET_S = 1.0


class _Start(NamedTuple):
    """Until the first answer was there: the time on the wall, and what the processor did of it."""

    wall_s: float
    cpu_s: float


def measure_startup(effort: Effort, say: Say) -> list[Figure]:
    """The very first start of an installation makes what later ones find: certificates, parsed files."""
    first: list[_Start] = []
    later: list[_Start] = []
    bare: list[_Start] = []
    with processes.workspace() as folder, processes.endpoint(folder) as model:
        _bare(model.port, folder / "bare")
        for i in range(effort.starts):
            first.append(_chaos(model.port, folder / f"new-{i}"))
            later.append(_chaos(model.port, folder / f"new-{i}"))
            bare.append(_bare(model.port, folder / "bare"))
            say(f"startup: start {i + 1} of {effort.starts}")
    return [
        _figure("later starts", later, bare),
        _figure("first start ever", first, bare),
    ]


def _figure(case: str, mine: list[_Start], bare: list[_Start]) -> Figure:
    busy, theirs = median(start.cpu_s for start in mine), median(start.cpu_s for start in bare)
    return Figure(
        "startup", case, "to the first answer", spread([start.wall_s for start in mine]), _TARGET_S,
        f"{busy:.2f} s of them on the processor; bare mitmdump"
        f" {median(start.wall_s for start in bare):.2f} s, {theirs:.2f} s on the processor", "s",
    )  # fmt: skip


def _chaos(upstream: int, folder: Path) -> _Start:
    port = processes.free_port()
    return _until_answered(processes.chaosproxy_command(upstream, port, folder), folder, port)


def _bare(upstream: int, folder: Path) -> _Start:
    port = processes.free_port()
    return _until_answered(processes.bare_proxy_command(upstream, port, folder), folder, port)


def _until_answered(command: list[str], folder: Path, port: int) -> _Start:
    turn = Conversation("claude-code", seed=1).next(calls=0)
    began = time.perf_counter()
    with processes.running(command, folder, port) as child, Client(port) as client:
        send(client, turn)
        return _Start(time.perf_counter() - began, child.cpu_ns / 1e9)
