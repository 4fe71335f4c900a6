"""The mitmproxy addon: hooks only. Works in chaosproxy's own server and under ``mitmdump -s``.

mitmdump --mode reverse:http://127.0.0.1:9 -s proxy/addon.py --set chaos_seed=7 --set chaos_profile=moderate
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from mitmproxy import ctx, exceptions, http
from mitmproxy.addonmanager import Loader

from configs import ConfigError, load_profile
from ledger.decisions import LedgerError
from proxy.exchange import Exchange, Head, Refusal
from proxy.injector import Injector
from proxy.protocols.errors import error_document
from proxy.service import ServiceError, ServiceSettings, open_service
from proxy.socket_layer import send_instead
from proxy.sockets import Socket
from proxy.upstream import UpstreamError, Upstreams, parse_upstreams, route, without_token
from scheduler.profile import ProfileError

_JSON = {"content-type": "application/json"}


class _Flight(NamedTuple):
    """A request whose body is on its way: the run that its path named, and its headers."""

    run_id: str
    path: str
    headers: Mapping[str, str]


def _lower(headers: http.Headers) -> dict[str, str]:
    """Names in lower case; lines of the same name are joined (RFC 9110 section 5.3)."""
    found: dict[str, str] = {}
    for raw_name, raw_value in headers.fields:
        name = raw_name.lower().decode("utf-8", "surrogateescape")
        value = raw_value.decode("utf-8", "surrogateescape")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


class ChaosProxy:
    """Makes tool calls fail on a seeded schedule; without an ``injector`` one is made of the options."""

    def __init__(
        self,
        injector: Injector | None = None,
        upstreams: Upstreams | None = None,
        token: str | None = None,
    ) -> None:
        self.injector = injector
        self._upstreams = upstreams
        self._token = token
        self._broken: str | None = None
        self._flights: dict[str, _Flight] = {}
        self._exchanges: dict[str, Exchange] = {}
        self._sockets: dict[str, Socket] = {}

    def load(self, loader: Loader) -> None:
        loader.add_option("chaos_seed", int, 0, "Seed of the fault schedule.")
        loader.add_option("chaos_profile", str, "moderate", "A shipped profile, or the path of a YAML file.")
        loader.add_option("chaos_log", str, "decisions.jsonl", "Where the decision log is written.")
        loader.add_option(
            "chaos_upstream", str, "", "URL of the model endpoint; empty: by auth header or path."
        )

        # Each request is given its own upstream: there is nothing to connect to before one comes.
        if "connection_strategy" in loader.master.options:
            loader.master.options.update(connection_strategy="lazy")

    def configure(self, updated: set[str]) -> None:
        if self.injector is not None or not updated & {"chaos_seed", "chaos_profile", "chaos_upstream"}:
            return
        try:
            load_profile(ctx.options.chaos_profile)
            parse_upstreams([ctx.options.chaos_upstream] if ctx.options.chaos_upstream else [])
        except (ProfileError, ConfigError, UpstreamError) as error:
            raise exceptions.OptionsError(str(error)) from error

    def running(self) -> None:
        if self.injector is not None:
            return
        upstream = ctx.options.chaos_upstream
        self._upstreams = parse_upstreams([upstream] if upstream else [])
        settings = ServiceSettings(
            ctx.options.chaos_seed,
            load_profile(ctx.options.chaos_profile),
            self._upstreams,
            Path(ctx.options.chaos_log),
        )
        try:
            self.injector = open_service(settings, lambda line: print(line, file=sys.stderr))  # noqa: T201
        except (LedgerError, ServiceError) as error:
            self._broken = str(error)
            raise exceptions.OptionsError(str(error)) from error

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        if self.injector is None:
            flow.response = _answer(503, f"chaosproxy cannot inject anything: {self._broken or 'not ready'}")
            return
        opened = without_token(flow.request.path, self._token)
        if opened is None:
            flow.response = _answer(403, "this proxy wants its token at the start of the path")
            return
        run_id, path = route(opened)
        headers = _lower(flow.request.headers)
        origin = self._upstreams.of(path, headers) if self._upstreams else None
        if run_id is None:
            flow.response = _answer(
                400, "the path names no run: /run/<run_id>/…, with 1 to 128 of A-Z a-z 0-9 . _ ~ - as its id"
            )
        elif origin is None:
            flow.response = _answer(
                502, "nothing says which provider this request is for: start chaosproxy with --upstream URL"
            )
        else:
            self._flights[flow.id] = _Flight(run_id, path, headers)
            request = flow.request
            # The last of these writes the host header, once for all three.
            request.scheme, request.data.host, request.port = origin.scheme, origin.host, origin.port
            request.path = origin.path + path
            # Responses have to be read, so none is asked for in a coding.
            if "accept-encoding" in headers:
                del request.headers["accept-encoding"]

    def request(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        flight = self._flights.pop(flow.id, None)
        if flight is None or self.injector is None:
            return None
        head = Head(flow.request.method, flight.path, flight.headers)
        if flight.headers.get("upgrade", "").lower() == "websocket":
            self._sockets[flow.id] = Socket(self.injector, flight.run_id, head)
        body = flow.request.raw_content or b""
        exchange = self.injector.on_request(flight.run_id, head, body)
        self._exchanges[flow.id] = exchange
        if exchange.refusal is not None:
            flow.response = _refuse(exchange.refusal)
        elif exchange.body is not body:
            flow.request.data.content = exchange.body
            if "content-length" in flight.headers:
                flow.request.headers["content-length"] = str(len(exchange.body))
        return asyncio.sleep(exchange.wait_s) if exchange.wait_s else None

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        exchange = self._exchanges.get(flow.id)
        if exchange is None or self.injector is None or flow.response is None:
            return
        # A body that has gone is not needed again, and there are large ones.
        flow.request.data.content = None
        headers = _lower(flow.response.headers)
        self.injector.on_response_head(exchange, flow.response.status_code, headers)
        # A message of one document asks for tools with its last byte: it waits until they are remembered.
        # A stream goes on as it comes, but for the calls that may have to be held.
        whole = exchange.reader is not None and "event-stream" not in headers.get("content-type", "")
        if exchange.refusal is not None or whole:
            return
        flow.response.stream = partial(_pass_on, self.injector, exchange)
        if exchange.holder is not None:
            # What goes on can be longer than what came, and is in no coding.
            flow.response.headers.pop("content-encoding", None)
            if flow.response.headers.pop("content-length", None) is not None and flow.request.is_http11:
                flow.response.headers["transfer-encoding"] = "chunked"

    def response(self, flow: http.HTTPFlow) -> None:
        exchange = self._exchanges.get(flow.id)
        if (
            exchange is not None
            and self.injector is not None
            and flow.response is not None
            and not flow.response.stream
            and exchange.refusal is None
        ):
            body = flow.response.raw_content or b""
            passed = self.injector.on_response_chunk(exchange, body)
            if exchange.holder is not None:
                passed += self.injector.on_response_chunk(exchange, b"")
                flow.response.headers.pop("content-encoding", None)
            if passed != body:
                flow.response.content = passed
        self._finish(flow)

    def websocket_message(self, flow: http.HTTPFlow) -> None:
        socket = self._sockets.get(flow.id)
        if socket is None or flow.websocket is None:
            return
        message = flow.websocket.messages[-1]
        # Every message would be kept for as long as the socket is open.
        del flow.websocket.messages[:-1]
        if not message.from_client:
            passed = socket.answered(message.content)
            if not _is_as_it_came(passed, message.content):
                send_instead(flow, to_harness=passed)
            return
        asked = socket.asked(message.content)
        if not _is_as_it_came(asked.on, message.content):
            send_instead(flow, to_endpoint=asked.on, to_harness=asked.back, wait_s=asked.wait_s)
        elif asked.wait_s:
            send_instead(flow, wait_s=asked.wait_s)

    def websocket_end(self, flow: http.HTTPFlow) -> None:
        self._hang_up(flow)

    def error(self, flow: http.HTTPFlow) -> None:
        self._flights.pop(flow.id, None)
        self._finish(flow)
        self._hang_up(flow)

    def _hang_up(self, flow: http.HTTPFlow) -> None:
        socket = self._sockets.pop(flow.id, None)
        if socket is not None:
            socket.close()

    def _finish(self, flow: http.HTTPFlow) -> None:
        exchange = self._exchanges.pop(flow.id, None)
        if exchange is not None and self.injector is not None:
            self.injector.on_response_end(exchange)
        if flow.websocket is None:
            self._sockets.pop(flow.id, None)

    def done(self) -> None:
        if self.injector is not None:
            for socket in self._sockets.values():
                socket.close()
            for exchange in self._exchanges.values():
                self.injector.on_response_end(exchange)
            self.injector.close()


def _pass_on(injector: Injector, exchange: Exchange, chunk: bytes) -> list[bytes]:
    """What goes on of a chunk. Nothing at all is said as such: an empty chunk would end a chunked body."""
    passed = injector.on_response_chunk(exchange, chunk)
    return [passed] if passed else []


def _is_as_it_came(passed: Sequence[bytes], message: bytes) -> bool:
    return len(passed) == 1 and passed[0] == message


def _answer(status: int, message: str) -> http.Response:
    return http.Response.make(status, error_document(status, message), _JSON)


def _refuse(refusal: Refusal) -> http.Response:
    # What we refuse once we refuse again: no harness is to try for minutes.
    headers = {**_JSON, "x-should-retry": "false", **refusal.headers}
    return http.Response.make(refusal.status, refusal.body, headers)


addons = [ChaosProxy()]
