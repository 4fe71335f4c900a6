"""A model endpoint that answers from a script and keeps what it was sent.

In a test::

    async with ScriptedModel(scripted(ToolCall("read", {"path": "a.txt"}), "Done.")) as model:
        ...  # point a harness at model.url
    assert "a.txt" in model.agent_requests[0].conversation.user_texts[0]

``ThreadedScriptedModel`` is the same for code without an event loop, and
``python -m harness.scripted_model SCRIPT.yaml --port N`` for a shell.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from aiohttp import WSMsgType, web

from harness.received import Received
from harness.script import Misstep, Policy, Script
from harness.turns import Answer, Conversation, Turn, Usage
from harness.wire import SOCKET_METHOD, SocketWire, Wire, socket_wire_of, wire_of

_BYTES_PER_TOKEN = 4
_SIDE_TEXT = "Working on the task"


class ScriptedModel:
    """An HTTP server on ``host``; ``port`` 0 takes a free one. Any path prefix is accepted.

    ``policy`` is a ``Script`` or any function from what the model sees to its turn; it is not asked about
    side requests, and what it raises is answered with status 500. ``missteps`` come before those of the
    script. ``received`` grows by one per request, in the order of arrival, before the request is answered.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        chunk_delay_s: float | None = None,
        missteps: Iterable[Misstep] = (),
    ) -> None:
        script = policy if isinstance(policy, Script) else Script()
        self.received: list[Received] = []
        self._policy = policy
        self._chunk_delay_s = script.chunk_delay_s if chunk_delay_s is None else chunk_delay_s
        self._missteps: deque[Misstep] = deque((*missteps, *script.missteps))
        self._kept: dict[str, tuple[Any, ...]] = {}
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """``http://HOST:PORT``, once started."""
        return f"http://{self._host}:{self._port}"

    @property
    def agent_requests(self) -> list[Received]:
        """The requests that were a step of an agent, in the order of arrival."""
        return [request for request in self.received if request.is_agent]

    def misbehave(self, misstep: Misstep) -> None:
        """Queues a misstep for the agent requests to come."""
        self._missteps.append(misstep)

    async def start(self) -> None:
        """Binds the port; OSError when it is taken."""
        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{path:.*}", self._answer)
        # Bodies are kept as they came: the witness must see what was compressed, and how.
        self._runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Closes the port and every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        socket_wire = socket_wire_of(request.raw_path)
        if socket_wire is not None and web.WebSocketResponse().can_prepare(request).ok:
            return await self._converse(request, socket_wire)
        received = self._note(await _received(request))
        wire = wire_of(received.method, received.path)
        try:
            view = received.conversation
        except ValueError as error:
            return _json(wire.error(400, str(error)) if wire is not None else b"", status=400)
        if wire is None or view is None:
            return _not_a_model_request(received)
        if view.side == "count_tokens":
            return _json(wire.token_count(view.bytes_in // _BYTES_PER_TOKEN))
        misstep = self._next_misstep() if view.side is None else Misstep()
        if misstep.delay_s:
            await asyncio.sleep(misstep.delay_s)
        if misstep.raw is not None or misstep.status is not None:
            return await self._send_odd(request, wire, misstep)
        answer = self._completed(wire, received, view)
        if view.stream:
            return await self._write(request, wire.streamed(answer), wire.stream_type, misstep)
        return await self._write(request, [wire.whole(answer)], "application/json", misstep)

    def _note(self, received: Received) -> Received:
        """Keeps a request, with what the endpoint knows already when the request goes on from an answer."""
        wire = wire_of(received.method, received.path)
        earlier = None
        # A body that cannot be read is refused later.
        with contextlib.suppress(ValueError):
            earlier = wire.continues(received.plain_body) if wire is not None else None
        if earlier is not None:
            received = replace(received, before=self._kept.get(earlier))
        self.received.append(received)
        return received

    def _completed(self, wire: Wire, received: Received, view: Conversation) -> Answer:
        if view.side is None or isinstance(self._policy, Script):
            turn = self._policy(view)
        else:
            turn = Turn(_SIDE_TEXT)
        answer = _completed(turn, view, wire.call_prefix)
        return self._kept_for_later(wire, received, answer)

    def _kept_for_later(self, wire: Wire, received: Received, answer: Answer) -> Answer:
        kept = wire.kept(received.before or (), received.plain_body, answer)
        if kept is not None:
            self._kept[wire.answer_id(answer)] = kept
        return answer

    async def _converse(self, request: web.Request, wire: SocketWire) -> web.StreamResponse:
        """A WebSocket: answers messages until the other side has gone. The handshake is kept too."""
        handshake = await _received(request)
        self.received.append(handshake)
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        async for message in socket:
            body = message.data.encode("utf-8", "surrogatepass") if message.type is WSMsgType.TEXT else None
            if body is None:
                break
            note = replace(handshake, method=SOCKET_METHOD, body=body, at_s=time.time())
            if not await self._reply(socket, wire, self._note(note)):
                _drop(request)
                break
        return socket

    async def _reply(self, socket: web.WebSocketResponse, wire: SocketWire, received: Received) -> bool:
        """Answers one message; False when the connection is to be dropped."""
        try:
            view = received.conversation if wire.asks(received.body) else None
        except ValueError as error:
            await socket.send_str(wire.error_message(400, str(error)).decode())
            return True
        if view is None:
            return True
        misstep = self._next_misstep() if view.side is None else Misstep()
        if misstep.delay_s:
            await asyncio.sleep(misstep.delay_s)
        if misstep.raw is not None:
            messages: Iterable[bytes] = [misstep.raw]
        elif misstep.status is not None:
            text = "the scripted model was told to fail"
            messages = [misstep.body.encode() if misstep.body else wire.error_message(misstep.status, text)]
        else:
            answer = self._completed(wire, received, view)
            if view.side == "warm_up":
                answer = self._kept_for_later(wire, received, wire.warmed_up(answer))
            messages = wire.messages(answer)
        return await self._send_messages(socket, messages, misstep)

    async def _send_messages(
        self, socket: web.WebSocketResponse, messages: Iterable[bytes], misstep: Misstep
    ) -> bool:
        left = misstep.cut_after_bytes
        for message in messages:
            if left is not None:
                left -= len(message)
                if left < 0:
                    if misstep.cut == "end":
                        await socket.close()
                    return misstep.cut == "end"
            await socket.send_str(message.decode("utf-8", "surrogatepass"))
            await asyncio.sleep(self._chunk_delay_s)
        return True

    def _next_misstep(self) -> Misstep:
        if not self._missteps:
            return Misstep()
        first = self._missteps[0]
        if first.times > 1:
            self._missteps[0] = replace(first, times=first.times - 1)
        else:
            self._missteps.popleft()
        return first

    async def _send_odd(self, request: web.Request, wire: Wire, misstep: Misstep) -> web.StreamResponse:
        status = misstep.status or 200
        if misstep.raw is not None:
            body = misstep.raw
        elif misstep.body is not None:
            body = misstep.body.encode()
        else:
            body = wire.error(status, "the scripted model was told to fail")
        return await self._write(request, [body], misstep.content_type, misstep)

    async def _write(
        self, request: web.Request, pieces: Iterable[bytes], content_type: str, misstep: Misstep
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=misstep.status or 200, headers={"content-type": content_type})
        response.headers.extend(misstep.headers)
        if content_type == "text/event-stream":
            response.headers.setdefault("cache-control", "no-cache")
        await response.prepare(request)
        left = misstep.cut_after_bytes
        for piece in pieces:
            await response.write(piece if left is None else piece[:left])
            if left is not None:
                left -= len(piece)
                if left <= 0:
                    break
            await asyncio.sleep(self._chunk_delay_s)
        if left is not None and misstep.cut == "drop":
            _drop(request)
            return response
        # A client that has gone is no error of ours.
        with contextlib.suppress(ConnectionResetError):
            await response.write_eof()
        return response


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _drop(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


async def _received(request: web.Request) -> Received:
    return Received(
        method=request.method,
        path=request.raw_path,
        headers=tuple((key.decode("latin-1"), value.decode("latin-1")) for key, value in request.raw_headers),
        body=await request.read(),
        at_s=time.time(),
    )


def _not_a_model_request(received: Received) -> web.Response:
    if received.method == "HEAD":
        return web.Response(status=200)
    return _json(b'{"type":"error","error":{"type":"not_found_error","message":"Not found"}}', status=404)


def _json(body: bytes, *, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _completed(turn: Turn, view: Conversation, prefix: str) -> Answer:
    """Chooses ids from what the conversation looks like, so that the same request gets the same answer."""
    taken = {str(call.call_id) for call in view.calls}
    seed = "\x1f".join((*view.opening, *sorted(taken), str(len(view.turns))))
    step = "" if turn.step is None else f"_step{turn.step}"
    fresh = (found for found in _identifiers(seed) if f"{prefix}{found}{step}" not in taken)
    calls = tuple(
        call if call.call_id is not None else replace(call, call_id=f"{prefix}{next(fresh)}{step}")
        for call in turn.calls
    )
    usage = turn.usage or _made_up_usage(turn, view)
    return Answer(f"msg_{next(fresh)}", view.model, replace(turn, calls=calls), usage, view)


def _identifiers(seed: str) -> Iterator[str]:
    count = 0
    while True:
        yield hashlib.sha256(f"{seed}\x1f{count}".encode("utf-8", "surrogatepass")).hexdigest()[:24]
        count += 1


def _made_up_usage(turn: Turn, view: Conversation) -> Usage:
    sent = len(turn.text) + sum(len(call.tool) + len(str(call.arguments)) for call in turn.calls)
    return Usage(view.bytes_in // _BYTES_PER_TOKEN + 1, sent // _BYTES_PER_TOKEN + 1)


class ThreadedScriptedModel:
    """A ``ScriptedModel`` on its own thread and event loop, for code that has none::

    with ThreadedScriptedModel(policy) as model:
        launch(model.url)
    """

    def __init__(
        self,
        policy: Policy,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        chunk_delay_s: float | None = None,
        missteps: Iterable[Misstep] = (),
    ) -> None:
        self._model = ScriptedModel(
            policy, host=host, port=port, chunk_delay_s=chunk_delay_s, missteps=missteps
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="scripted-model", daemon=True)

    @property
    def url(self) -> str:
        """``http://HOST:PORT``, once started."""
        return self._model.url

    @property
    def received(self) -> list[Received]:
        """What was sent so far: a copy, safe to walk while requests come in."""
        return list(self._model.received)

    @property
    def agent_requests(self) -> list[Received]:
        """As ``ScriptedModel.agent_requests``."""
        return self._model.agent_requests

    def misbehave(self, misstep: Misstep) -> None:
        """As ``ScriptedModel.misbehave``."""
        self._call(lambda: self._model.misbehave(misstep))

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._model.start(), self._loop).result()
        except OSError:
            self._end_thread()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._model.stop(), self._loop).result()
        # An answer that is held back for one who has gone is not waited for.
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._end_thread()

    def _call(self, action: Callable[[], None]) -> None:
        done = threading.Event()

        def act() -> None:
            action()
            done.set()

        self._loop.call_soon_threadsafe(act)
        done.wait()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


if __name__ == "__main__":
    from harness.scripted_model_command import main

    main()
