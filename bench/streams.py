"""How long an event of a response stands in the proxy, and whether it stands there at all."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import re
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

from bench import processes
from bench.client import BenchError, Client, request_head
from bench.conversation import Conversation
from bench.effort import Effort, size_name
from bench.figures import Figure, quantile, spread
from bench.processes import Child
from bench.supply import grown, play

Say = Callable[[str], None]
_AT = re.compile(rb'"at":(\d+)')
_INTERVAL_MS = 10
_MANY_INTERVAL_MS = 25
_PAUSE_S = 0.2


class _Listener(asyncio.Protocol):
    """Asks for one stream and notes how late each event comes. ``together``: events not alone in a read."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.delays_ns: list[int] = []
        self.together = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
            transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter_ns()
        data = self._rest + data
        found = _AT.findall(data)
        self.delays_ns += (now - int(at) for at in found)
        self.together += max(0, len(found) - 1)
        cut = data.rfind(b"\n")
        self._rest = data[cut + 1 :]
        if data.endswith(b"0\r\n\r\n") and self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def _listen(port: int, streams: int, events: int, interval_ms: int) -> list[_Listener]:
    loop = asyncio.get_running_loop()
    listeners = []
    for i in range(streams):
        turn = Conversation("claude-code", seed=i).next()
        headers = (*turn.headers, ("x-bench-stream", f"{events} {interval_ms}"))
        request = request_head(headers, len(turn.body), f"stream-{i}") + turn.body
        _, listener = await loop.create_connection(partial(_Listener, request), "127.0.0.1", port)
        listeners.append(listener)
        await asyncio.sleep(interval_ms / 1e3 / streams)
    await asyncio.gather(*(listener.done for listener in listeners))
    for listener in listeners:
        if len(listener.delays_ns) != events:
            raise BenchError(f"{len(listener.delays_ns)} of {events} events came through port {port}")
    return listeners


def _delays(port: int, streams: int, events: int, interval_ms: int) -> tuple[list[int], int]:
    """(the delay of every event in ns, how many did not come alone)."""
    listeners = asyncio.run(_listen(port, streams, events, interval_ms))
    return [ns for one in listeners for ns in one.delays_ns], sum(one.together for one in listeners)


def measure_streams(effort: Effort, say: Say) -> list[Figure]:
    with (
        processes.workspace() as folder,
        processes.endpoint(folder) as model,
        processes.chaosproxy(model.port, folder) as chaos,
        _nginx(model.port, folder) as nginx,
    ):
        figures = _one_stream(effort, model, chaos, nginx)
        say("streams: one stream")
        figures += _many_streams(effort, model, chaos)
        say(f"streams: {effort.streams} streams, with and without posts")
    return figures


def _one_stream(effort: Effort, model: Child, chaos: Child, nginx: Child | None) -> list[Figure]:
    sides = {"direct": model.port, "chaos": chaos.port} | ({"nginx": nginx.port} if nginx else {})
    medians: dict[str, list[float]] = {side: [] for side in sides}
    together = []
    for i in range(effort.stream_rounds + 1):
        for side, port in sides.items():
            delays, joined = _delays(port, 1, effort.stream_events, _INTERVAL_MS)
            if not i:  # the first one warms everything up
                continue
            medians[side].append(median(delays) / 1e6)
            if side == "chaos":
                together.append(joined / effort.stream_events)
    base = "nginx" if nginx else "direct"
    added = [mine - other for mine, other in zip(medians["chaos"], medians[base], strict=True)]
    absolute = ", ".join(f"{side} {median(values):.2f} ms" for side, values in medians.items())
    note = "" if nginx else "; nginx is not installed here, so this is over a direct connection"
    return [
        Figure("streams", "1 stream", f"added per event p50, over {base}", spread(added), 0.5,
               f"{absolute}{note}", "ms"),
        Figure("streams", "1 stream", "events that had to wait for another", spread(together), 0.0,
               f"of {effort.stream_events} events, one every {_INTERVAL_MS} ms"),
    ]  # fmt: skip


def _many_streams(effort: Effort, model: Child, chaos: Child) -> list[Figure]:
    tails: dict[str, list[float]] = {}
    sides = {"direct": model.port, "chaos": chaos.port}
    with contextlib.ExitStack() as posts:
        posters = {
            side: posts.enter_context(_poster(port, effort.post_bytes)) for side, port in sides.items()
        }
        for _ in range(effort.stream_rounds):
            for side, port in sides.items():
                for beside in ("without", "with"):
                    if beside == "with":
                        posters[side].set()
                    delays, _ = _delays(port, effort.streams, effort.stream_events, _MANY_INTERVAL_MS)
                    posters[side].clear()
                    tails.setdefault(f"{side} {beside}", []).append(quantile(delays, 0.99) / 1e6)
    ratio = {
        side: spread([a / b for a, b in zip(tails[f"{side} with"], tails[f"{side} without"], strict=True)])
        for side in sides
    }
    case = f"{effort.streams} streams"
    posted = size_name(effort.post_bytes)
    return [
        Figure(
            "streams", case, f"p99 beside {posted} posts / without", ratio["chaos"], 3.0,
            f"{median(tails['chaos with']):.2f} ms against {median(tails['chaos without']):.2f} ms;"
            f" one post after the other, {_PAUSE_S * 1e3:.0f} ms between them",
        ),
        Figure(
            "streams", case, "the same on a direct connection", ratio["direct"], None,
            f"{median(tails['direct with']):.2f} ms against {median(tails['direct without']):.2f} ms",
        ),
    ]  # fmt: skip


@contextlib.contextmanager
def _poster(port: int, size: int) -> Iterator[multiprocessing.synchronize.Event]:
    """A process that posts large turns while the event that it gives is set."""
    context = multiprocessing.get_context("spawn")
    go, ready = context.Event(), context.Event()
    process = context.Process(target=_post, args=(port, size, go, ready), daemon=True)
    process.start()
    try:
        if not ready.wait(timeout=120):
            raise BenchError("the posts did not get under way")
        yield go
    finally:
        process.terminate()
        process.join()


def _post(
    port: int, size: int, go: multiprocessing.synchronize.Event, ready: multiprocessing.synchronize.Event
) -> None:
    with Client(port) as client:
        conversation = grown(size, 1, client, "posts")
        ready.set()
        while True:
            turn = conversation.next()
            go.wait()
            play(client, conversation, turn, "posts")
            time.sleep(_PAUSE_S)


@contextlib.contextmanager
def _nginx(upstream: int, folder: Path) -> Iterator[Child | None]:
    """nginx as the plain reverse proxy that streams are compared with, where it is installed."""
    if shutil.which("nginx") is None:
        yield None
        return
    place = folder / "nginx"
    place.mkdir()
    port = processes.free_port()
    (place / "nginx.conf").write_text(
        f"""
        daemon off; worker_processes 1; pid {place}/pid; error_log {place}/errors; events {{}}
        http {{
            access_log off; client_body_temp_path {place}/body; proxy_temp_path {place}/proxy;
            fastcgi_temp_path {place}/f; uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;
            upstream model {{ server 127.0.0.1:{upstream}; keepalive 32; }}
            server {{
                listen 127.0.0.1:{port}; client_max_body_size 0; tcp_nodelay on;
                location / {{
                    proxy_pass http://model; proxy_http_version 1.1; proxy_set_header Connection "";
                    proxy_buffering off; proxy_request_buffering off;
                }}
            }}
        }}
        """,
        "ascii",
    )
    command = [processes.program("nginx"), "-p", str(place), "-c", str(place / "nginx.conf")]
    with processes.running(command, place, port) as child:
        yield child
