"""mitmproxy in this process: only the addons that are needed, a ready signal, a clean stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mitmproxy import options
from mitmproxy.proxy.layers.http import _http1

from proxy import connections
from proxy.addon import ChaosProxy
from proxy.connections import Hooks
from proxy.few_addons import Master, core, disable_h2c, next_layer, proxyserver, tlsconfig
from proxy.injector import Injector
from proxy.protocols.errors import error_document
from proxy.upstream import Upstreams

if TYPE_CHECKING:
    from aiohttp.web import AppRunner

# Models think in silence for longer than mitmproxy's ten minutes.
_TCP_TIMEOUT_S = 3600


class ServerError(RuntimeError):
    """The proxy cannot listen; the message says where and why."""


def _error_response(status_code: int, message: str = "") -> bytes:
    body = error_document(status_code, f"chaosproxy: {message}" if message else "chaosproxy: bad gateway")
    return (
        b"HTTP/1.1 %d Error\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
        b"Connection: close\r\n\r\n%s" % (status_code, len(body), body)
    )


# mitmproxy answers a failed upstream with an HTML page, which no harness can read.
_http1.make_error_response = _error_response
connections.install()


def _config_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "chaosproxy" / "mitmproxy"


class ProxyServer:
    """One listening proxy. ``port`` 0 takes a free one; ``token`` must then open every path.

    ``control_port``: where the control API listens, on the loopback; None: nowhere. 0 becomes the port taken.
    """

    def __init__(
        self,
        injector: Injector,
        upstreams: Upstreams,
        host: str,
        port: int,
        *,
        token: str | None = None,
        control_port: int | None = None,
    ) -> None:
        self._injector = injector
        self._upstreams = upstreams
        self._host = host
        self._port = port
        self._token = token
        self.control_port = control_port
        self._control: AppRunner | None = None
        self._master: Master | None = None
        self._proxyserver = proxyserver.Proxyserver()

    async def run(self, ready: Callable[[int], None], stop: asyncio.Event) -> None:
        """Serves until ``stop`` is set; raises ``ServerError`` when it cannot listen."""
        logging.getLogger("mitmproxy").setLevel(logging.CRITICAL)
        opts = options.Options(
            mode=["reverse:http://127.0.0.1:9"],  # every request is given its own upstream
            listen_host=self._host,
            listen_port=self._port,
            confdir=str(_config_directory()),
            tcp_timeout=_TCP_TIMEOUT_S,
        )
        master = self._master = Master(opts)
        master.addons.add(
            core.Core(),
            self._proxyserver,
            next_layer.NextLayer(),
            tlsconfig.TlsConfig(),
            disable_h2c.DisableH2C(),
            ChaosProxy(self._injector, self._upstreams, self._token),
        )
        master.addons.handle_lifecycle = Hooks(master.addons)  # type: ignore[assignment, method-assign]
        opts.update(connection_strategy="lazy")
        task = asyncio.create_task(master.run())
        try:
            port = await self._listening(task)
            await self._start_control(port)
            ready(port)
            waiting = asyncio.create_task(stop.wait())
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        finally:
            if self._control is not None:
                await self._control.cleanup()
            await self._close()
            master.shutdown()
            await task

    async def _start_control(self, port: int) -> None:
        if self.control_port is None:
            return
        from proxy.control import ControlApi

        try:
            self._control = await ControlApi(self._injector, self.control_port).start(
                base_url_of(self._host, port, self._token)
            )
        except OSError as error:
            where = f"127.0.0.1:{self.control_port}"
            raise ServerError(f"the control API cannot listen on {where}: {_reason(error)}") from error
        self.control_port = int(self._control.addresses[0][1])

    async def _listening(self, task: asyncio.Task[None]) -> int:
        """The port, once every server of mitmproxy listens."""
        while not task.done():
            servers = list(self._proxyserver.servers)
            if servers and all(server.is_running for server in servers):
                return int(self._proxyserver.listen_addrs()[0][1])
            error = next((server.last_exception for server in servers if server.last_exception), None)
            if error is not None:
                raise ServerError(f"cannot listen on {self._host}:{self._port}: {_reason(error)}")
            await asyncio.sleep(0.005)
        await task
        raise ServerError(f"cannot listen on {self._host}:{self._port}")

    async def _close(self) -> None:
        """Stops listening; a master that shuts down leaves its ports open."""
        await self._proxyserver.servers.update([])


def base_url_of(host: str, port: int, token: str | None) -> str:
    """What a harness's base URL starts with."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}" + (f"/{token}" if token else "")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in {98, 48, 10048}:
        return "the port is in use; give another --port, or stop what listens there"
    return str(error)


def serve_forever(server: ProxyServer, ready: Callable[[int], None]) -> None:
    """Serves until SIGINT or SIGTERM; raises ``ServerError`` when it cannot listen."""

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        await server.run(ready, stop)

    asyncio.run(main())


class BackgroundServer:
    """A proxy in a thread of its own: ``with BackgroundServer(…) as server``, then ``server.port``."""

    def __init__(self, server: ProxyServer) -> None:
        self._server = server
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._port: Future[int] = Future()
        self._thread = threading.Thread(target=self._main, name="chaosproxy", daemon=True)

    @property
    def port(self) -> int:
        return self._port.result()

    def do[T](self, action: Callable[[], T]) -> T:
        """Runs ``action`` in the proxy's own thread, between two requests, and gives back what it gives."""
        if self._loop is None:
            raise ServerError("the proxy is not running")
        done: Future[T] = Future()

        def act() -> None:
            try:
                done.set_result(action())
            except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                done.set_exception(error)

        self._loop.call_soon_threadsafe(act)
        return done.result(timeout=60)

    def _main(self) -> None:
        async def run() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            await self._server.run(self._port.set_result, self._stop)

        try:
            asyncio.run(run())
        except ServerError as error:
            if not self._port.done():
                self._port.set_exception(error)

    def __enter__(self) -> Self:
        self._thread.start()
        self._port.result(timeout=30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=30)
