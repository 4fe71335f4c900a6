"""Streams stay streams, and what goes wrong on the wire is seen, told and never taken for a clean run."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.script import Script, scripted
from harness.scripted_model import ThreadedScriptedModel
from harness.turns import ToolCall
from ledger.decisions import LedgerError
from proxy.options import InjectorOptions
from proxy.server import BackgroundServer, ProxyServer, ServerError
from proxy.upstream import parse_upstreams
from tests.proxy.build import Answer, assistant, body, call, result, streamed, user, whole
from tests.proxy.stage import force, only, profile
from tests.proxy.wires import CLAUDE, EVENT_STREAM, MESSAGES, RawModel, Request, document, proxy, send

FIRST = [user("hi " * 60)]
TURN = [
    *FIRST,
    assistant(call("t1", "Read", file_path="a.txt")),
    user(result("t1", "1\tone\n2\ttwo\n3\tthree")),
]
READS = Answer("Let me see.", [("t1", "Read", '{"file_path": "a.txt"}')])
OFF = profile(name="off")
WAIT = 30


def open_stream(port: int, raw: bytes) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
    connection.request("POST", MESSAGES, body=raw, headers=CLAUDE)
    return connection, connection.getresponse()


@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
def test_each_event_goes_on_before_the_next_is_there(tmp_path: Path, ends: bytes) -> None:
    """The model says the next event only when the harness has the one before."""
    events = [e + ends * 2 for e in streamed(READS).replace(b"\n", ends).split(ends * 2)[:-1]]
    go_on = threading.Semaphore(0)

    def answer(connection: socket.socket, _: Request) -> None:
        connection.sendall(EVENT_STREAM)
        for event in events:
            assert go_on.acquire(timeout=WAIT)
            connection.sendall(event)

    with RawModel(answer) as model, proxy(tmp_path, model.url, only("empty")) as found:
        connection, response = open_stream(found.port, body(FIRST))
        for event in events:
            go_on.release()
            assert response.read(len(event)) == event
        assert response.read() == b""
        connection.close()
        assert found.records("request")[0]["output_tokens"] == READS.usage[3]


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_stream_in_pieces_of_any_size(tmp_path: Path, size: int) -> None:
    raw = streamed(READS)

    def answer(connection: socket.socket, _: Request) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(EVENT_STREAM)
        for at in range(0, len(raw), size):
            connection.sendall(raw[at : at + size])

    with RawModel(answer) as model, proxy(tmp_path, model.url, only("empty")) as found:
        assert send(found.port, body(FIRST)).body == raw
        send(found.port, body(TURN))
        assert b"two" not in model.requests[-1].body
        assert [d["call_id"] for d in found.records("decision")] == ["t1"]


def test_a_whole_message_is_remembered_before_the_harness_has_it(tmp_path: Path) -> None:
    def answer(connection: socket.socket, _: Request) -> None:
        connection.sendall(document(whole(READS)))

    with RawModel(answer) as model, proxy(tmp_path, model.url, only("empty")) as found:
        reply = send(found.port, body(FIRST, stream=False))
        assert reply.body == whole(READS)
        assert [row.call_id for row in found.injector._memory.calls("default", "c0")] == ["t1"]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_stream_that_is_cut(tmp_path: Path, share: float) -> None:
    raw = streamed(READS)
    raw = raw[: int(len(raw) * share)]

    def answer(connection: socket.socket, _: Request) -> None:
        connection.sendall(EVENT_STREAM + raw)

    with RawModel(answer) as model, proxy(tmp_path, model.url, only("empty")) as found:
        assert send(found.port, body(TURN)).body == raw
        # It goes on: the same request again carries the same.
        send(found.port, body(TURN))
        assert model.requests[0].body == model.requests[1].body != body(TURN)
        assert not found.records("error")
    assert [end["ended"] for end in found_ends(tmp_path)] == [None]


def found_ends(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "decisions.jsonl").read_bytes().splitlines()
    return [record for record in map(json.loads, lines) if record["event"] == "end"]


def test_an_endpoint_that_overloads_before_it_answers_has_not_seen_the_fault(tmp_path: Path) -> None:
    said = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"x"}}\n\n'

    def answer(connection: socket.socket, _: Request) -> None:
        connection.sendall(EVENT_STREAM + said)

    with RawModel(answer) as model, proxy(tmp_path, model.url, only("empty")) as found:
        assert send(found.port, body(TURN)).body == said
        assert found.records("decision")
        assert not found.records("delivery")


@pytest.mark.parametrize("how", ["refuses", "closes", "says nonsense"])
def test_an_endpoint_that_does_not_answer(tmp_path: Path, how: str) -> None:
    def answer(connection: socket.socket, _: Request) -> None:
        if how == "says nonsense":
            connection.sendall(b"\x00\x01 what\r\n\r\n")

    with RawModel(answer) as model:
        url = model.url
        if how == "refuses":
            model.__exit__()
        with proxy(tmp_path, url, only("empty")) as found:
            reply = send(found.port, body(TURN))
            assert reply.status == 502
            assert reply.json["type"] == "error"
            assert reply.json["error"]["message"]
            assert reply.headers["content-type"] == "application/json"
            (request,) = found.records("request")
            assert request["status"] is None
            assert not found.records("delivery")
    assert [end["ended"] for end in found_ends(tmp_path)] == [None]


def test_a_harness_that_goes_away_in_the_middle(tmp_path: Path) -> None:
    gone, noticed = threading.Event(), threading.Event()

    def answer(connection: socket.socket, request: Request) -> None:
        connection.sendall(EVENT_STREAM + streamed(READS)[:200])
        if len(model.requests) == 1:
            assert gone.wait(WAIT)
            # The proxy closes its end when the harness is gone.
            while connection.recv(1024):
                pass
            noticed.set()

    with RawModel(answer) as model, proxy(tmp_path, model.url, only("empty")) as found:
        connection, response = open_stream(found.port, body(FIRST))
        assert response.read(20)
        response.close()
        connection.close()
        gone.set()
        assert noticed.wait(WAIT)
        assert send(found.port, body(TURN)).status == 200
        assert len(found.records("request")) == 2
        assert not found.records("error")


def test_slow_waits_once(tmp_path: Path) -> None:
    chosen = force({"tool": "Read", "nth": 1, "kind": "slow"}, kinds={"slow": {"seconds": 0.01}})
    with ThreadedScriptedModel(Script()) as model, proxy(tmp_path, model.url, chosen) as found:
        waits = []
        true = found.injector.on_request

        def watched(*args: Any) -> Any:
            exchange = true(*args)
            waits.append(exchange.wait_s)
            return exchange

        found.injector.on_request = watched  # type: ignore[assignment, method-assign]
        for _ in range(3):
            send(found.port, body(TURN))
        assert waits == [0.01, 0.0, 0.0]
        assert all(seen.body == body(TURN) for seen in model.received)
        (decision,) = found.records("decision")
        assert (decision["kind"], decision["payload_sha256"]) == ("slow", None)


def test_many_at_once(tmp_path: Path) -> None:
    with ThreadedScriptedModel(Script()) as model, proxy(tmp_path, model.url, only("empty")) as found:

        def one(i: int) -> None:
            mine = [user(f"task {i} " * 30)]
            for turn in range(3):
                mine += [
                    assistant(call(f"t{turn}", "Read", file_path=f"{i}.txt")),
                    user(result(f"t{turn}", f"secret of {i}")),
                ]
                headers = {"X-Claude-Code-Session-Id": f"session-{i}"} if i % 2 else {"User-Agent": "pi (x)"}
                reply = send(found.port, body(mine), path=f"/run/r{i % 3}{MESSAGES}", headers=headers)
                assert reply.status == 200

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one, range(12)))
        assert len(model.received) == 36
        assert not found.records("error")
        assert {r["run_id"] for r in found.records("start")} == {"r0", "r1", "r2"}
        for seen in model.received:
            newest = seen.json["messages"][-1]["content"][-1]["content"]
            assert "secret" not in newest


def test_a_port_in_use(tmp_path: Path) -> None:
    with ThreadedScriptedModel(Script()) as model, proxy(tmp_path / "a", model.url, OFF) as found:
        upstreams = parse_upstreams([model.url])
        second = BackgroundServer(ProxyServer(found.injector, upstreams, "127.0.0.1", found.port))
        with pytest.raises(ServerError, match=rf"127\.0\.0\.1:{found.port}.*in use.*--port"), second:
            pass
        assert send(found.port, body(FIRST)).status == 200


def test_no_port_is_left_open(tmp_path: Path) -> None:
    with ThreadedScriptedModel(Script()) as model, proxy(tmp_path, model.url, OFF) as found:
        port = found.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


@pytest.mark.parametrize("at", ["request", "response"])
def test_an_injector_that_crashes_is_seen_and_the_answer_still_comes(tmp_path: Path, at: Any) -> None:
    options = InjectorOptions(crash_at=at)
    with (
        ThreadedScriptedModel(scripted(ToolCall("Read", {"file_path": "a.txt"}))) as model,
        proxy(tmp_path, model.url, only("empty"), options=options) as found,
    ):
        reply = send(found.port, body(FIRST))
        assert reply.status == 200
        assert reply.body.endswith(b'data: {"type":"message_stop"}\n\n')
        assert model.received[0].body == body(FIRST)
        (error,) = found.records("error")
        assert error["where"] == "injector"
        assert "CrashedOnPurpose" in error["reason"]
        assert found.records("start")


def test_an_injector_that_crashes_can_block(tmp_path: Path) -> None:
    options = InjectorOptions(crash_at="request", on_error="block")
    with (
        ThreadedScriptedModel(Script()) as model,
        proxy(tmp_path, model.url, only("empty"), options=options) as found,
    ):
        reply = send(found.port, body(FIRST))
        assert reply.status == 500
        assert reply.json["type"] == "error"
        assert reply.headers["x-should-retry"] == "false"
        assert not model.received
        assert len(found.records("error")) == 1
        (request,) = found.records("request")
        assert (request["status"], request["bytes_out"]) == (None, 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_lets_nothing_leave(tmp_path: Path) -> None:
    with ThreadedScriptedModel(Script()) as model, proxy(tmp_path, model.url, only("empty")) as found:
        assert send(found.port, body(FIRST)).status == 200
        import os

        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, found.injector._log._fd)
        os.close(full)
        for _ in range(2):
            reply = send(found.port, body(TURN))
            assert reply.status == 507
            assert "No space left" in reply.json["error"]["message"]
        assert len(model.received) == 1
        # Anything else that an agent could send is refused as well.
        assert send(found.port, b'{"tools":[{}]}', path="/v1/unknown").status == 507
        assert send(found.port, b"junk", headers={"Content-Encoding": "gzip"}).status == 507
        assert len(model.received) == 1


def test_a_memory_that_cannot_be_written_makes_the_run_invalid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log still can be: it says so, once, and nothing leaves."""
    with ThreadedScriptedModel(Script()) as model, proxy(tmp_path, model.url, only("empty")) as found:
        assert send(found.port, body(FIRST)).status == 200

        def full(*_: Any) -> None:
            raise LedgerError("cannot write the memory: disk full")

        monkeypatch.setattr(found.injector._memory, "add_calls", full)
        for _ in range(3):
            assert send(found.port, body(TURN)).status == 507
        monkeypatch.undo()
        assert len(model.received) == 1
        (written,) = found.records("error")
        assert (written["where"], "disk full" in written["reason"]) == ("ledger", True)


def test_a_disk_that_fills_up_while_the_model_answers(tmp_path: Path) -> None:
    raw = streamed(READS)

    def answer(connection: socket.socket, _: Request) -> None:
        connection.sendall(EVENT_STREAM)
        found.server.do(found.injector._memory.close)
        connection.sendall(raw)

    with RawModel(answer) as model, proxy(tmp_path, model.url, only("empty")) as found:
        assert send(found.port, body(FIRST)).body == raw
        assert send(found.port, body(TURN)).status == 507
        assert len(model.requests) == 1
        assert [error["where"] for error in found.records("error")] == ["injector"]
