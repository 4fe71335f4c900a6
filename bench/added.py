"""What the whole proxy adds to a request: time and processor, against bare mitmproxy, turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

from bench import processes
from bench.client import Client
from bench.conversation import Conversation, Turn
from bench.effort import MB, Effort, size_name
from bench.figures import Figure, Spread, quantile, spread
from bench.processes import Child
from bench.supply import grown, send, step_bytes

Say = Callable[[str], None]
_SIDES = ("direct", "bare", "chaos")


@dataclass(slots=True)
class _Block:
    """``ns``: per side, the round trip of each turn; ``cpu_ns``: per side, what a turn used on average."""

    ns: dict[str, list[int]] = field(default_factory=lambda: {side: [] for side in _SIDES})
    cpu_ns: dict[str, float] = field(default_factory=dict)

    def added(self, side: str) -> list[int]:
        return [through - direct for through, direct in zip(self.ns[side], self.ns["direct"], strict=True)]


def measure_added(effort: Effort, say: Say) -> list[Figure]:
    """Each turn goes directly to the endpoint, through bare mitmproxy and through chaosproxy, in an order
    that moves on with every turn. The conversation grows and carries faults; all three see the same bytes."""
    figures: list[Figure] = []
    for size in effort.sizes:
        with (
            processes.workspace() as folder,
            processes.endpoint(folder) as model,
            processes.bare_proxy(model.port, folder) as bare,
            processes.chaosproxy(model.port, folder) as chaos,
        ):
            ports = {"direct": model.port, "bare": bare.port, "chaos": chaos.port}
            clients = {side: Client(port) for side, port in ports.items()}
            try:
                blocks = []
                for seed in range(effort.blocks + 1):
                    block = _block(size, seed, effort.rounds, clients, {"bare": bare, "chaos": chaos})
                    if seed:  # the first one warms everything up
                        blocks.append(block)
                say(f"added: {size_name(size)}: {len(blocks)} blocks of {effort.rounds} turns")
            finally:
                for client in clients.values():
                    client.close()
        figures += _figures(size, blocks)
    return figures


def _block(
    size: int, seed: int, rounds: int, clients: Mapping[str, Client], children: Mapping[str, Child]
) -> _Block:
    block = _Block()
    conversation = grown(size, seed, clients["chaos"])
    for side in ("direct", "bare"):
        if conversation.size > 100_000:
            send(clients[side], _peek(size, seed))
    before = {side: child.cpu_ns for side, child in children.items()}
    for i in range(rounds):
        if size < 100_000 and conversation.size > 1.4 * size:
            conversation = grown(size, seed * 1000 + i, clients["chaos"])
        turn = conversation.next(result_bytes=step_bytes(size))
        for j in range(3):
            side = _SIDES[(i + j) % 3]
            reply = send(clients[side], turn)
            block.ns[side].append(reply.ns)
            if side == "chaos":
                conversation.heard(reply.raw)
    for side, child in children.items():
        block.cpu_ns[side] = (child.cpu_ns - before[side]) / rounds
    return block


def _peek(size: int, seed: int) -> Turn:
    """Some turn of that size, for sides that keep no conversation."""
    return Conversation("claude-code", seed).next(result_bytes=size)


def _figures(size: int, blocks: list[_Block]) -> list[Figure]:
    target = 1.5 if size >= 5 * MB else 1.0
    case = size_name(size)
    cpu = spread([block.cpu_ns["chaos"] / block.cpu_ns["bare"] for block in blocks])
    times = spread([median(block.added("chaos")) / median(block.added("bare")) for block in blocks])
    trips = {side: [ns for block in blocks for ns in block.ns[side]] for side in _SIDES}
    added = {side: [ns for block in blocks for ns in block.added(side)] for side in ("bare", "chaos")}
    tails = {side: quantile(values, 0.99) for side, values in added.items()}
    used = {side: median(block.cpu_ns[side] for block in blocks) for side in ("bare", "chaos")}
    tail = tails["chaos"] / tails["bare"]
    return [
        Figure("added", case, "CPU per request / bare mitmdump", cpu, target, _against(used)),
        Figure(
            "added", case, "added time p50 / bare mitmdump", times, target,
            f"{_against({side: median(values) for side, values in added.items()})}"
            f" (round trips: direct {_ms(median(trips['direct']))}, mitmdump {_ms(median(trips['bare']))},"
            f" chaosproxy {_ms(median(trips['chaos']))})",
        ),
        Figure(
            "added", case, "added time p99 / bare mitmdump", Spread(tail, tail, tail, len(added["chaos"])),
            None, _against(tails),
        ),
    ]  # fmt: skip


def _against(ns: Mapping[str, float]) -> str:
    return f"{_ms(ns['chaos'])} against {_ms(ns['bare'])}"


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.2f} ms"
