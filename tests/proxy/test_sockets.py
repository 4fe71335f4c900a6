"""WebSockets through a real proxy: a client and an endpoint on real sockets on both sides of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import wsproto
import wsproto.events
from aiohttp import web
from wsproto.extensions import PerMessageDeflate

from harness.script import Misstep, Script, scripted
from harness.scripted_model import ScriptedModel
from harness.turns import ToolCall, Turn, Usage
from proxy.addon import ChaosProxy
from proxy.options import InjectorOptions
from proxy.runs import RunSettings
from tests.proxy.build import dumps
from tests.proxy.kept import OPENING, THREAD, TOOLS, Endpoint, output, printed, runs, user
from tests.proxy.stage import force, only, profile
from tests.proxy.wires import proxy, send

OFF = profile(name="off")
PATH = "/v1/responses"
WAIT = 30
UTF8 = "".join(f"Zeile {n}: größer als → {n}\n" for n in range(800))


def asking(*items: Any, **more: Any) -> bytes:
    fields = {"type": "response.create", "model": "m", "input": list(items), "tools": TOOLS}
    return dumps(fields | more)


FIRST = asking(*OPENING, user("Do it."))


@asynccontextmanager
async def connected(
    port: int, path: str = f"/run/r1{PATH}", **more: Any
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(
            f"http://127.0.0.1:{port}{path}", headers=THREAD, max_msg_size=0, autoping=False, **more
        ) as socket,
    ):
        yield socket


async def said(socket: aiohttp.ClientWebSocketResponse) -> list[bytes]:
    """The messages up to the end of an answer."""
    messages: list[bytes] = []
    while True:
        message = await socket.receive(timeout=WAIT)
        assert message.type is aiohttp.WSMsgType.TEXT, message
        messages.append(message.data.encode())
        if json.loads(message.data)["type"] in ("response.completed", "error", "response.failed"):
            return messages


async def ask(socket: aiohttp.ClientWebSocketResponse, body: bytes) -> list[dict[str, Any]]:
    await socket.send_str(body.decode())
    return [json.loads(message) for message in await said(socket)]


def answer_id(events: list[dict[str, Any]]) -> str:
    found: str = events[-1]["response"]["id"]
    return found


def messages_of(model: ScriptedModel) -> list[bytes]:
    return [found.body for found in model.received if found.method == "WEBSOCKET"]


@pytest.mark.parametrize("compress", [0, 15])
async def test_without_faults_every_message_is_what_it_was(tmp_path: Path, compress: int) -> None:
    odd = (
        b'{ "type" :"response.create",\n"z":1.50, "input":[{"role":"user","content":"\\u00e9"}],"tools":[{}]}'
    )
    big = asking(user(UTF8 * 20))
    script = scripted(Turn(UTF8[:900], (runs("cat a", "c1"),)), "Done.")
    async with ScriptedModel(script) as model:
        async with aiohttp.ClientSession() as http, http.ws_connect(model.url + PATH) as direct:
            straight = []
            for message in (FIRST, odd, big):
                await direct.send_str(message.decode())
                straight.append(await said(direct))
        model.received.clear()
        with proxy(tmp_path, model.url, OFF) as found:
            async with connected(found.port, compress=compress) as socket:
                through = []
                for message in (FIRST, odd, big):
                    await socket.send_str(message.decode())
                    through.append(await said(socket))
            assert through == straight
            assert messages_of(model) == [FIRST, odd, big]
            assert found.records("start")[0]["run_id"] == "r1"
            assert [r["protocol"] for r in found.records("request")] == ["openai-responses"] * 3
            assert all(r["bytes_in"] == r["bytes_out"] for r in found.records("request"))
            assert not found.records("error")


class Fragmenting:
    """A client that sends a message in frames of so many bytes, wherever that cuts it."""

    def __init__(self, size: int, *, deflate: bool) -> None:
        self._size = size
        self._deflate = [PerMessageDeflate()] if deflate else []
        self._ws = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)

    async def ask(self, port: int, messages: list[bytes]) -> list[bytes]:
        """The answers' messages."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        more = [(name.encode(), value.encode()) for name, value in THREAD.items()]
        hello = wsproto.events.Request(
            host="127.0.0.1", target=PATH, extensions=self._deflate, extra_headers=more
        )
        writer.write(self._ws.send(hello))
        got: list[bytes] = []
        text = ""
        left = [b"", *messages]
        while left:
            self._ws.receive_data(await asyncio.wait_for(reader.read(1 << 16), WAIT))
            for event in self._ws.events():
                text += event.data if isinstance(event, wsproto.events.TextMessage) else ""
                if isinstance(event, wsproto.events.TextMessage) and event.message_finished:
                    got.append(text.encode())
                    text = ""
                done = got and json.loads(got[-1])["type"] == "response.completed" and not text
                if isinstance(event, wsproto.events.AcceptConnection) or done:
                    left.pop(0)
                    if left:
                        for frame in self._frames(left[0].decode()):
                            writer.write(frame)
        writer.close()
        return got

    def _frames(self, text: str) -> Iterator[bytes]:
        for at in range(0, len(text), self._size):
            piece = text[at : at + self._size]
            last = at + self._size >= len(text)
            yield self._ws.send(wsproto.events.TextMessage(data=piece, message_finished=last))


@pytest.mark.parametrize("deflate", [False, True])
@pytest.mark.parametrize("size", [1, 700, 100_000])
async def test_a_message_in_any_number_of_frames(tmp_path: Path, size: int, deflate: bool) -> None:
    """With and without a fault in it."""
    first = asking(user("größer → 😀 " * 30))
    async with ScriptedModel(scripted(Turn("größer", (runs("cat a", "c1"),)), "Done.")) as model:
        with proxy(tmp_path, model.url, only("wrong_data", "shell")) as found:
            await Fragmenting(size, deflate=deflate).ask(found.port, [first])
            result = printed("größer als 10\nkleiner als 20\n")
            call = {
                "type": "function_call",
                "call_id": "c1",
                "name": "exec_command",
                "arguments": '{"cmd":"cat a"}',
            }
            second = asking(user("größer → 😀 " * 30), call, output("c1", result))
            got = await Fragmenting(size, deflate=deflate).ask(found.port, [second])
        one, two = messages_of(model)
        assert one == first
        changed = json.loads(two)["input"][2]["output"]
        assert changed != result
        assert two == second.replace(dumps(result), dumps(changed))
        assert "Done." in got[-1].decode()


async def test_the_handshake_goes_where_a_request_would(tmp_path: Path) -> None:
    async with ScriptedModel(Script()) as model:
        with proxy(tmp_path, model.url, OFF) as found:
            async with aiohttp.ClientSession() as http:
                url = f"http://127.0.0.1:{found.port}/run/r1{PATH}?a=b"
                headers = THREAD | {"authorization": "Bearer sk-secret"}
                async with http.ws_connect(url, headers=headers) as socket:
                    await ask(socket, FIRST)
        handshake = model.received[0]
        assert (handshake.method, handshake.path) == ("GET", f"{PATH}?a=b")
        assert handshake.header("authorization") == "Bearer sk-secret"
    assert b"sk-secret" not in everything_in(tmp_path)


async def test_a_fault_is_in_what_the_endpoint_got(tmp_path: Path) -> None:
    true, more = printed(UTF8), printed("kept")
    async with ScriptedModel(scripted(runs("cat a", "c1"), runs("cat b", "c2"), "Done.")) as model:
        chosen = force({"tool": "exec_command", "nth": 1, "kind": "wrong_data"})
        with proxy(tmp_path, model.url, chosen) as found:
            async with connected(found.port) as socket:
                first = await ask(socket, FIRST)
                results = [output("c1", true), user(UTF8)]
                body = asking(*results, previous_response_id=answer_id(first))
                second = await ask(socket, body)
                last = asking(output("c2", more), previous_response_id=answer_id(second))
                await ask(socket, last)
            got = messages_of(model)
            assert (got[0], got[2]) == (FIRST, last)
            changed = json.loads(got[1])
            # Only the result is another; it is whole, though it is longer than one frame of old was.
            assert changed["input"][1] == results[1]
            assert changed["input"][0]["output"] != true
            assert "\ufffd" not in got[1].decode()
            assert len(changed["input"][0]["output"].splitlines()) == len(true.splitlines())
            (one, two) = found.records("decision")
            assert (one["kind"], one["skipped"], two["fired"]) == ("wrong_data", None, False)
            (delivery,) = found.records("delivery")
            assert (delivery["call_id"], delivery["first"], delivery["upstream_status"]) == ("c1", True, 200)
            requests = found.records("request")
            assert [r["faults"] for r in requests] == [0, 1, 0]
            assert [(r["bytes_in"], r["bytes_out"]) for r in requests] == [
                (len(sent), len(received)) for sent, received in zip([FIRST, body, last], got, strict=True)
            ]


def everything_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


@asynccontextmanager
async def endpoint(
    serve: Callable[[web.WebSocketResponse], Awaitable[None]], *, autoping: bool = True
) -> AsyncIterator[str]:
    """An endpoint that does with each socket what ``serve`` says."""

    async def opened(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0, autoping=autoping)
        await socket.prepare(request)
        await serve(socket)
        return socket

    app = web.Application()
    app.router.add_get("/{path:.*}", opened)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def events_of(*calls: ToolCall, text: str = "Let me see what there is.", stream: str = "") -> list[bytes]:
    """The messages of one answer."""
    messages = Endpoint().take(dumps({"input": []}), Turn(text, calls))
    named = {"stream_id": stream} if stream else {}
    return [dumps(json.loads(message) | named) for message in messages]


async def test_each_message_goes_on_before_the_next_is_there(tmp_path: Path) -> None:
    """But for those of a call that may not run: they wait until it is whole, and then go on in order."""
    events = events_of(runs("cat a", "c1"))
    ping = b'{"type":"keepalive"}'
    begins = next(n for n, e in enumerate(events) if b"output_item.added" in e and b"function_call" in e)
    ends = next(n for n, e in enumerate(events) if b"output_item.done" in e and b"function_call" in e)
    go_on = asyncio.Semaphore(0)

    async def serve(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        for number, event in enumerate(events):
            await go_on.acquire()
            await socket.send_str(event.decode())
            if number == begins:
                await socket.send_str(ping.decode())
        await socket.receive()

    async with endpoint(serve) as url:
        with proxy(tmp_path, url, only("permission_denied", "shell")) as found:
            async with connected(found.port) as socket:
                await socket.send_str(FIRST.decode())
                for event in events[:begins]:
                    go_on.release()
                    assert (await socket.receive(timeout=WAIT)).data.encode() == event
                go_on.release()
                assert (await socket.receive(timeout=WAIT)).data.encode() == ping
                for _ in range(begins, ends - 1):
                    go_on.release()
                with pytest.raises(asyncio.TimeoutError):
                    await socket.receive(timeout=0.2)
                go_on.release()
                held = [(await socket.receive(timeout=WAIT)).data.encode() for _ in range(begins, ends + 1)]
                assert [json.loads(m)["type"] for m in held] == [
                    json.loads(m)["type"] for m in events[begins : ends + 1]
                ]
                go_on.release()
                held.append((await socket.receive(timeout=WAIT)).data.encode())
            wire = b'"exec_command__permission_denied"'
            assert [m.replace(wire, b'"exec_command"') for m in held] == events[begins:]
            assert [m.count(wire) for m in held if wire in m] == [1, 1, 1]
            (decision,) = found.records("decision")
            assert decision["wire_name"] == wire.decode().strip('"')


async def test_a_call_that_never_ran_is_told_as_the_model_made_it(tmp_path: Path) -> None:
    async with ScriptedModel(scripted(runs("cat a", "c1"), "Done.")) as model:
        with proxy(tmp_path, model.url, only("not_found", "shell")) as found:
            async with connected(found.port) as socket:
                events = await ask(socket, FIRST)
                call = next(e["item"] for e in events if e["type"] == "response.output_item.done")
                assert call["name"] == "exec_command__not_found"
                refused = output("c1", f"unsupported call: {call['name']}")
                await ask(socket, asking(refused, previous_response_id=answer_id(events)))
            async with connected(found.port) as socket:
                # A new connection: everything is sent again, as the harness has it.
                await ask(socket, asking(*OPENING, user("Do it."), call, refused, user("And?")))
            *_, part, whole = messages_of(model)
            for sent in (part, whole):
                assert b"unsupported call" not in sent
                assert b"__not_found" not in sent
            items = json.loads(whole)["input"]
            assert items[-2]["output"] == json.loads(part)["input"][0]["output"]
            assert items[-3]["name"] == "exec_command"
            assert [d["first"] for d in found.records("delivery")] == [True, False]
            assert not found.records("error")


async def test_two_answers_at_once(tmp_path: Path) -> None:
    """Told apart by their ``stream_id``; each has its own calls, and only its own are held."""
    one = events_of(runs("cat a", "a1"), stream="s1")
    two = events_of(text="Only words.", stream="s2")

    async def serve(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        await socket.receive()
        for pair in zip(one, two, strict=False):
            for event in pair:
                await socket.send_str(event.decode())
        for event in (*one[len(two) :], *two[len(one) :]):
            await socket.send_str(event.decode())
        await socket.receive()

    async with endpoint(serve) as url:
        with proxy(tmp_path, url, only("permission_denied", "shell")) as found:
            async with connected(found.port) as socket:
                await socket.send_str(asking(user("one"), stream_id="s1").decode())
                await socket.send_str(asking(user("two"), stream_id="s2").decode())
                got = [(await socket.receive(timeout=WAIT)).data.encode() for _ in (*one, *two)]
            plain = [m.replace(b"exec_command__permission_denied", b"exec_command") for m in got]
            assert [m for m in plain if b'"stream_id":"s1"' in m] == one
            assert [m for m in plain if b'"stream_id":"s2"' in m] == two
            assert [d["call_id"] for d in found.records("decision")] == ["a1"]
            assert [r["status"] for r in found.records("request")] == [200, 200]


@pytest.mark.parametrize("message", ["no JSON", "[]", '{"type":"response.create","input":7,"tools":[{}]}'])
async def test_a_message_that_cannot_be_read_is_no_clean_run(tmp_path: Path, message: str) -> None:
    got: list[Any] = []

    async def serve(socket: web.WebSocketResponse) -> None:
        got.append((await socket.receive()).data)
        await socket.send_str('{"type":"error","status":400,"error":{"message":"what?"}}')
        await socket.receive()

    async with endpoint(serve) as url:
        with proxy(tmp_path, url, only("empty")) as found:
            async with connected(found.port) as socket:
                await socket.send_str(message)
                (error,) = await said(socket)
                assert b"what?" in error
            assert got == [message]
            assert [e["where"] for e in found.records("error")] == ["request"]


@pytest.mark.parametrize("message", ["no JSON", '{"type":"response.create","input":7,"tools":[{}]}'])
async def test_a_message_that_cannot_be_read_can_be_refused(tmp_path: Path, message: str) -> None:
    async with ScriptedModel(Script()) as model:
        options = InjectorOptions(on_error="block")
        with proxy(tmp_path, model.url, only("empty"), options=options) as found:
            async with connected(found.port) as socket:
                await socket.send_str(message)
                (error,) = await said(socket)
            assert json.loads(error)["status"] == 500
            assert "chaosproxy refused" in json.loads(error)["error"]["message"]
            assert not messages_of(model)
            assert len(found.records("error")) == 1


async def test_an_answer_that_cannot_be_read_goes_on_and_is_no_clean_run(tmp_path: Path) -> None:
    events = events_of(runs("cat a", "c1"))
    begins = next(n for n, e in enumerate(events) if b"output_item.added" in e and b"function_call" in e)
    odd = [*events[: begins + 1], b"what?", *events[begins + 1 :]]

    async def serve(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        for event in odd:
            await socket.send_str(event.decode())
        await socket.receive()

    async with endpoint(serve) as url:
        with proxy(tmp_path, url, only("permission_denied", "shell")) as found:
            async with connected(found.port) as socket:
                await socket.send_str(FIRST.decode())
                got = [(await socket.receive(timeout=WAIT)).data.encode() for _ in odd]
            assert got == odd
            assert [e["where"] for e in found.records("error")] == ["response"]
            assert not found.records("decision")


@pytest.mark.parametrize("at", ["request", "response"])
async def test_an_injector_that_crashes_is_seen_and_the_answer_still_comes(tmp_path: Path, at: Any) -> None:
    async with ScriptedModel(scripted(runs("cat a", "c1"))) as model:
        options = InjectorOptions(crash_at=at)
        with proxy(tmp_path, model.url, only("permission_denied", "shell"), options=options) as found:
            async with connected(found.port) as socket:
                events = await ask(socket, FIRST)
            assert "exec_command__" not in json.dumps(events)
            assert messages_of(model) == [FIRST]
            assert "CrashedOnPurpose" in found.records("error")[0]["reason"]


async def test_past_the_budget_no_message_goes_on(tmp_path: Path) -> None:
    script = scripted(Turn("a", usage=Usage(60, 50)), "b")
    async with ScriptedModel(script) as model:
        with proxy(tmp_path, model.url, OFF) as found:
            budget = RunSettings("r1", "t1", 7, OFF, token_budget=100)
            found.server.do(lambda: found.injector.register(budget))
            async with connected(found.port) as socket:
                first = await ask(socket, FIRST)
                (error,) = await ask(socket, asking(user("on"), previous_response_id=answer_id(first)))
            assert (error["type"], error["error"]["code"]) == ("error", "insufficient_quota")
            assert len(messages_of(model)) == 1
            assert [(q["budget"], q["used"]) for q in found.records("quota")] == [(100, 110)]
            assert not found.records("error")
            assert found.injector.runs.get("r1").quota == "ours"


async def test_the_providers_own_quota_error_is_known(tmp_path: Path) -> None:
    async with ScriptedModel(Script()) as model:
        body = '{"type":"error","status":429,"error":{"code":"insufficient_quota","message":"x"}}'
        model.misbehave(Misstep(status=429, body=body))
        with proxy(tmp_path, model.url, OFF) as found:
            async with connected(found.port) as socket:
                (error,) = await ask(socket, FIRST)
                assert error == json.loads(body)
                (request,) = found.records("request")
                assert request["status"] == 429
                assert found.injector.runs.get("r1").quota == "theirs"
                await ask(socket, FIRST)
            run = found.injector.runs.get("r1")
            assert (run.quota, run.complete) == (None, True)


async def test_a_stopped_run_lets_no_message_through(tmp_path: Path) -> None:
    async with ScriptedModel(Script()) as model:
        with proxy(tmp_path, model.url, OFF) as found:
            async with connected(found.port) as socket:
                await ask(socket, FIRST)
                found.injector.runs.get("r1").stopped = True
                (error,) = await ask(socket, FIRST)
            assert error["status"] == 503
            assert len(messages_of(model)) == 1


async def test_slow_waits_once(tmp_path: Path) -> None:
    chosen = force({"tool": "exec_command", "nth": 1, "kind": "slow"}, kinds={"slow": {"seconds": 0.01}})
    async with ScriptedModel(scripted(runs("cat a", "c1"), "Done.")) as model:
        with proxy(tmp_path, model.url, chosen) as found:
            async with connected(found.port) as socket:
                first = await ask(socket, FIRST)
                body = asking(output("c1", printed("x")), previous_response_id=answer_id(first))
                await ask(socket, body)
            assert messages_of(model) == [FIRST, body]
            (decision,) = found.records("decision")
            assert (decision["kind"], decision["skipped"]) == ("slow", None)


async def test_nothing_else_waits_for_what_is_slow(tmp_path: Path) -> None:
    """Pings and the messages of another answer pass, both ways but for what is asked behind it."""
    got: list[str] = []
    ponged = asyncio.Event()

    async def serve(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        for event in events_of(runs("cat a", "c1")):
            await socket.send_str(event.decode())
        await socket.ping(b"still there")
        while len(got) < 2:
            await socket.send_str('{"type":"keepalive"}')
            try:
                message = await socket.receive(timeout=0.02)
            except TimeoutError:
                continue
            if message.type is aiohttp.WSMsgType.PONG:
                ponged.set()
            else:
                got.append(message.data)
        await socket.receive()

    chosen = force({"tool": "exec_command", "nth": 1, "kind": "slow"}, kinds={"slow": {"seconds": 1}})
    async with endpoint(serve, autoping=False) as url:
        with proxy(tmp_path, url, chosen) as found:
            async with connected(found.port) as socket:
                await socket.send_str(FIRST.decode())
                first = [json.loads(message) for message in await said(socket)]
                slow = asking(output("c1", printed("x")), previous_response_id=answer_id(first))
                await socket.send_str(slow.decode())
                await socket.send_str('{"type":"response.steer"}')
                assert (await socket.receive(timeout=WAIT)).type is aiohttp.WSMsgType.PING
                await socket.pong(b"still there")
                await asyncio.wait_for(ponged.wait(), WAIT)
                assert b"keepalive" in (await socket.receive(timeout=WAIT)).data.encode()
                assert not got
                while len(got) < 2:
                    await socket.receive(timeout=WAIT)
        assert got == [slow.decode(), '{"type":"response.steer"}']


@pytest.mark.parametrize("close", ["harness", "endpoint"])
async def test_a_connection_that_closes_while_something_waits(tmp_path: Path, close: str) -> None:
    ended = asyncio.Event()

    async def serve(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        for event in events_of(runs("cat a", "c1")):
            await socket.send_str(event.decode())
        if close == "endpoint":
            await asyncio.sleep(0.1)
            await socket.close()
        else:
            assert (await socket.receive()).type is not aiohttp.WSMsgType.TEXT
        ended.set()

    chosen = force({"tool": "exec_command", "nth": 1, "kind": "slow"}, kinds={"slow": {"seconds": 0.4}})
    async with endpoint(serve) as url:
        with proxy(tmp_path, url, chosen) as found:
            async with connected(found.port) as socket:
                await socket.send_str(FIRST.decode())
                first = [json.loads(message) for message in await said(socket)]
                slow = asking(output("c1", printed("x")), previous_response_id=answer_id(first))
                await socket.send_str(slow.decode())
                if close == "endpoint":
                    assert (await socket.receive(timeout=WAIT)).type is aiohttp.WSMsgType.CLOSE
            await asyncio.wait_for(ended.wait(), WAIT)
            await asyncio.sleep(0.5)
            # The proxy is as it was.
            async with connected(found.port) as socket:
                await socket.send_str(FIRST.decode())
                await said(socket)
            assert not found.records("error")


@pytest.mark.parametrize("cut", ["drop", "end"])
async def test_an_answer_that_is_cut(tmp_path: Path, cut: Any) -> None:
    async with ScriptedModel(scripted(runs("cat a", "c1"), "Done.")) as model:
        model.misbehave(Misstep(cut_after_bytes=1500, cut=cut))
        with proxy(tmp_path, model.url, only("empty", "shell")) as found:
            async with connected(found.port) as socket:
                await socket.send_str(FIRST.decode())
                while (await socket.receive(timeout=WAIT)).type is aiohttp.WSMsgType.TEXT:
                    pass
            async with connected(found.port) as socket:
                first = await ask(socket, FIRST)
                body = asking(output("c1", printed("x")), previous_response_id=answer_id(first))
                await ask(socket, body)
            assert json.loads(messages_of(model)[-1])["input"][0]["output"] == printed("")
            assert len(found.records("decision")) == 1
            assert [r["output_tokens"] is None for r in found.records("request") if r["protocol"]] == [
                True,
                False,
                False,
            ]
            assert not found.records("error")


async def test_a_harness_that_goes_away_in_the_middle(tmp_path: Path) -> None:
    noticed = asyncio.Event()

    async def serve(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        await socket.send_str(events_of(runs("cat a", "c1"))[0].decode())
        await socket.receive()
        noticed.set()

    async with endpoint(serve) as url:
        with proxy(tmp_path, url, only("empty", "shell")) as found:
            async with connected(found.port) as socket:
                await socket.send_str(FIRST.decode())
                await socket.receive(timeout=WAIT)
            await asyncio.wait_for(noticed.wait(), WAIT)
            (request,) = found.records("request")
            assert request["output_tokens"] is None
            assert not found.records("error")
            assert found.injector.runs.get("r1").open_requests == 0


async def test_pings_pass(tmp_path: Path) -> None:
    async def serve(socket: web.WebSocketResponse) -> None:
        await socket.ping(b"are you there")
        await socket.receive()

    async with endpoint(serve) as url:
        with proxy(tmp_path, url, OFF) as found:
            async with connected(found.port) as socket:
                message = await socket.receive(timeout=WAIT)
                assert (message.type, message.data) == (aiohttp.WSMsgType.PING, b"are you there")


async def test_messages_in_bytes_are_read_too(tmp_path: Path) -> None:
    async def serve(socket: web.WebSocketResponse) -> None:
        message = await socket.receive()
        assert (message.type, message.data) == (aiohttp.WSMsgType.BINARY, FIRST)
        for event in events_of(runs("cat a", "c1")):
            await socket.send_bytes(event)
        await socket.receive()

    async with endpoint(serve) as url:
        with proxy(tmp_path, url, only("permission_denied", "shell")) as found:
            async with connected(found.port) as socket:
                await socket.send_bytes(FIRST)
                got = [await socket.receive(timeout=WAIT) for _ in events_of(runs("cat a", "c1"))]
            assert {message.type for message in got} == {aiohttp.WSMsgType.BINARY}
            assert [d["wire_name"] for d in found.records("decision")] == ["exec_command__permission_denied"]


async def test_a_socket_that_nobody_understands_is_no_clean_run(tmp_path: Path) -> None:
    got: list[Any] = []

    async def serve(socket: web.WebSocketResponse) -> None:
        for _ in range(3):
            got.append((await socket.receive()).data)
            await socket.send_str("{}")
        await socket.receive()

    async with endpoint(serve) as url:
        with proxy(tmp_path, url, OFF) as found:
            async with connected(found.port, "/run/r1/v1/realtime") as socket:
                for message in ("{}", FIRST.decode(), FIRST.decode()):
                    await socket.send_str(message)
                    assert (await socket.receive(timeout=WAIT)).data == "{}"
            assert got == ["{}", FIRST.decode(), FIRST.decode()]
            (error,) = found.records("error")
            assert "/v1/realtime" in error["reason"]


async def test_a_handshake_that_is_refused_passes(tmp_path: Path) -> None:
    """Codex then speaks HTTP."""
    async with ScriptedModel(Script()) as model:
        with proxy(tmp_path, model.url, OFF) as found:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                async with connected(found.port, "/run/r1/v1/elsewhere"):
                    pass
            assert refused.value.status == 404
            assert not found.records("error")
            body = dumps({"model": "m", "input": [user("x")], "tools": TOOLS})
            reply = await asyncio.to_thread(send, found.port, body, path=f"/run/r1{PATH}")
            assert reply.status == 200


async def test_messages_are_not_piled_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    true = ChaosProxy.websocket_message

    def watched(self: ChaosProxy, flow: Any) -> Any:
        waiting = true(self, flow)
        kept.append(len(flow.websocket.messages))
        return waiting

    monkeypatch.setattr(ChaosProxy, "websocket_message", watched)
    async with ScriptedModel(Script()) as model:
        with proxy(tmp_path, model.url, OFF) as found:
            async with connected(found.port) as socket:
                for _ in range(5):
                    await ask(socket, FIRST)
    assert len(kept) > 20
    assert set(kept) == {1}
