"""Other fault-injecting proxies beside this one, where they are installed: what each adds to a request.

They are told to inject nothing, which is the least that they can do; chaosproxy works as always.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from bench import processes
from bench.client import Client
from bench.effort import KB, Effort, size_name
from bench.figures import Figure, spread
from bench.processes import Child
from bench.supply import grown, send, step_bytes

Say = Callable[[str], None]
_SIZE = 200 * KB
# chaosproxy's added time against theirs: at least twenty times less, at least half.
_TARGETS = {"agentbreak": 0.05, "agentgauntlet": 0.5}


@contextlib.contextmanager
def _agentbreak(command: str, upstream: int, folder: Path) -> Iterator[Child]:
    folder.mkdir()
    port = processes.free_port()
    application, scenarios = folder / "application.yaml", folder / "scenarios.yaml"
    application.write_text(
        f"llm: {{enabled: true, mode: proxy, upstream_url: 'http://127.0.0.1:{upstream}'}}\n"
        f"mcp: {{enabled: false}}\nserve: {{port: {port}}}\n",
        "ascii",
    )
    scenarios.write_text("version: 1\nscenarios: []\n", "ascii")
    words = [command, "serve", "--config", str(application), "--scenarios", str(scenarios)]
    with processes.running(words, folder, port, at=folder) as child:
        yield child


@contextlib.contextmanager
def _agentgauntlet(command: str, upstream: int, folder: Path) -> Iterator[Child]:
    port = processes.free_port()
    words = [command, "proxy", "--upstream", f"http://127.0.0.1:{upstream}", "--port", str(port)]
    with processes.running([*words, "--probability", "0"], folder, port) as child:
        yield child


_STARTERS = {"agentbreak": _agentbreak, "agentgauntlet": _agentgauntlet}


def measure_others(commands: Path, effort: Effort, say: Say) -> list[Figure]:
    """Against each of the other proxies whose command is in the folder ``commands``."""
    figures: list[Figure] = []
    for name, starter in _STARTERS.items():
        command = commands / name
        if not command.exists():
            say(f"others: {name} is not in {commands}")
            continue
        with (
            processes.workspace() as folder,
            processes.endpoint(folder) as model,
            starter(str(command.absolute()), model.port, folder / name) as other,
            processes.chaosproxy(model.port, folder) as chaos,
        ):
            ports = {"direct": model.port, name: other.port, "chaos": chaos.port}
            figures.append(_beside(name, ports, effort))
        say(f"others: {name}: {effort.blocks * effort.rounds} turns")
    return figures


def _beside(name: str, ports: dict[str, int], effort: Effort) -> Figure:
    with contextlib.ExitStack() as stack:
        clients = {side: stack.enter_context(Client(port)) for side, port in ports.items()}
        conversation = grown(_SIZE, 1, clients["chaos"])
        added: dict[str, list[list[int]]] = {name: [], "chaos": []}
        for _ in range(effort.blocks):
            block: dict[str, list[int]] = {side: [] for side in ports}
            for i in range(effort.rounds):
                turn = conversation.next(result_bytes=step_bytes(_SIZE))
                for j in range(3):
                    side = list(ports)[(i + j) % 3]
                    reply = send(clients[side], turn)
                    block[side].append(reply.ns)
                    if side == "chaos":
                        conversation.heard(reply.raw)
            for side, found in added.items():
                found.append([a - b for a, b in zip(block[side], block["direct"], strict=True)])
    ratios = [median(mine) / median(other) for mine, other in zip(added["chaos"], added[name], strict=True)]
    mine, theirs = (median(ns for block in added[side] for ns in block) / 1e6 for side in ("chaos", name))
    return Figure(
        "others", size_name(_SIZE), f"added time p50 / {name}", spread(ratios), _TARGETS[name],
        f"{mine:.2f} ms against {theirs:.2f} ms, with its faults off",
    )  # fmt: skip
