"""How long the command takes from its start to its first answered request."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from bench import processes
from bench.client import Client
from bench.conversation import Conversation
from bench.effort import Effort
from bench.figures import Figure, spread
from bench.supply import send

Say = Callable[[str], None]
_TARGET_S = 1.0


def measure_startup(effort: Effort, say: Say) -> list[Figure]:
    """The very first start of an installation makes a certificate authority; later ones find it."""
    first: list[float] = []
    later: list[float] = []
    bare: list[float] = []
    with processes.workspace() as folder, processes.endpoint(folder) as model:
        _bare(model.port, folder / "bare")
        for i in range(effort.starts):
            first.append(_chaos(model.port, folder / f"new-{i}"))
            later.append(_chaos(model.port, folder / f"new-{i}"))
            bare.append(_bare(model.port, folder / "bare"))
            say(f"startup: start {i + 1} of {effort.starts}")
    middle = f"bare mitmdump {spread(bare).median:.2f} s"
    return [
        Figure("startup", "later starts", "to the first answer", spread(later), _TARGET_S, middle, "s"),
        Figure("startup", "first start ever", "to the first answer", spread(first), _TARGET_S, middle, "s"),
    ]


def _chaos(upstream: int, folder: Path) -> float:
    port = processes.free_port()
    return _until_answered(processes.chaosproxy_command(upstream, port, folder), folder, port)


def _bare(upstream: int, folder: Path) -> float:
    port = processes.free_port()
    return _until_answered(processes.bare_proxy_command(upstream, port, folder), folder, port)


def _until_answered(command: list[str], folder: Path, port: int) -> float:
    turn = Conversation("claude-code", seed=1).next(calls=0)
    began = time.perf_counter()
    with processes.running(command, folder, port), Client(port) as client:
        send(client, turn)
        return time.perf_counter() - began
