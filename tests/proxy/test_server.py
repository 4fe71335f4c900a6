"""The proxy over real sockets: without a fault it is not there."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import brotli
import pytest

from harness.script import Misstep, Script, scripted
from harness.scripted_model import ThreadedScriptedModel
from harness.turns import ToolCall
from tests.proxy.build import assistant, body, call, result, text, user
from tests.proxy.stage import only, profile
from tests.proxy.wires import CLAUDE, MESSAGES, Proxy, RawModel, Request, document, proxy, send

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SECRETS = {
    "x-api-key": "sk-ant-SECRET-one",
    "Authorization": "Bearer SECRET-two",
    "Cookie": "session=SECRET-three",
    "x-goog-api-key": "SECRET-four",
    "Proxy-Authorization": "Basic SECRET-five",
}
TURN = [user("hi"), assistant(call("t1", "Read", file_path="a.txt")), user(result("t1", "1\tline one"))]


@pytest.fixture
def model() -> Iterator[ThreadedScriptedModel]:
    with ThreadedScriptedModel(Script()) as found:
        yield found


@pytest.fixture
def off(tmp_path: Path, model: ThreadedScriptedModel) -> Iterator[Proxy]:
    with proxy(tmp_path, model.url, profile(name="off")) as found:
        yield found


ODD = {
    "spacing": b' {\n "messages" : [ {"role" :"user","content":"x"} ] ,\t"tools":[{}] } \n',
    "duplicate keys": b'{"messages":[],"messages":[{"role":"user","content":"x"}],"model":"a","model":"b"}',
    "huge integers": b'{"max_tokens":123456789012345678901234567890,"f":1.10,"g":1E+2,"messages":[]}',
    "escapes": b'{"messages":[{"role":"user","content":"\\u0041\\/\\ud83d\\ude42 \xf0\x9f\x99\x82"}]}',
    "half a pair": b'{"messages":[{"role":"user","content":"\\ud83d"}]}',
    "no JSON": b"{not json",
    "nothing": b"",
    "wrong types": b'{"messages":"x","tools":7}',
    "messages of wrong types": b'{"messages":[1,null,"x",{"role":[]},{"content":{}}],"tools":[{}]}',
    "a list": b"[1,2]",
    "bytes": bytes(range(256)),
    "deep": b"[" * 10_000 + b"]" * 10_000,
    "deep inside": b'{"messages":[{"role":"user","content":' + b"[" * 10_000 + b"]" * 10_000 + b"}]}",
    "invalid UTF-8": b'{"messages":[{"role":"user","content":"\xff\xfe"}],"tools":[{}]}',
    "a turn": body(TURN),
}
CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstd.compress,
}


@pytest.mark.parametrize("name", ODD)
def test_a_body_leaves_as_it_came(off: Proxy, model: ThreadedScriptedModel, name: str) -> None:
    send(off.port, ODD[name])
    (seen,) = model.received
    assert seen.body == ODD[name]


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("name", ["a turn", "no JSON", "spacing"])
def test_a_compressed_body_leaves_as_it_came(
    off: Proxy, model: ThreadedScriptedModel, coding: str, name: str
) -> None:
    raw = CODINGS[coding](ODD[name])
    send(off.port, raw, headers={"Content-Encoding": coding})
    (seen,) = model.received
    assert seen.body == raw
    assert seen.header("content-encoding") == coding


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "made-up", "gzip, br"])
def test_a_body_in_a_broken_or_unknown_coding_leaves_as_it_came(
    off: Proxy, model: ThreadedScriptedModel, coding: str
) -> None:
    send(off.port, b"\x1f\x8bnot really", headers={"Content-Encoding": coding})
    assert model.received[0].body == b"\x1f\x8bnot really"
    (error,) = off.records("error")
    assert error["where"] == "request"


def test_an_upload_in_chunks(off: Proxy, model: ThreadedScriptedModel) -> None:
    raw = body(TURN)
    send(off.port, chunks=[raw[:10], raw[10:11], raw[11:]], headers={"Transfer-Encoding": "chunked"})
    assert model.received[0].body == raw


def test_a_body_of_20_megabytes(off: Proxy, model: ThreadedScriptedModel) -> None:
    raw = body([user(text("x" * 1000)) for _ in range(20_000)])
    assert len(raw) > 20_000_000
    assert send(off.port, raw).status == 200
    assert model.received[0].body == raw
    (request,) = off.records("request")
    assert request["bytes_in"] == request["bytes_out"] == len(raw)


def test_headers_and_queries_pass(off: Proxy, model: ThreadedScriptedModel) -> None:
    path = "/v1/messages?beta=true&x=%2F%20a&key=SECRET"
    odd = {"X-Odd-CASE": "a  b", "X-Empty": "", "anthropic-beta": "one,two", "Accept-Encoding": "gzip, br"}
    send(off.port, body(TURN), path=path, headers=odd | SECRETS)
    (seen,) = model.received
    assert seen.path == path
    sent = {name: value for name, value in seen.headers if name.lower() not in {"host", "content-length"}}
    assert sent == CLAUDE | {k: v for k, v in odd.items() if k != "Accept-Encoding"} | SECRETS
    assert seen.header("host") == model.url.removeprefix("http://")


def test_no_secret_is_written_anywhere(tmp_path: Path) -> None:
    with (
        ThreadedScriptedModel(scripted(ToolCall("Read", {"file_path": "a.txt"}))) as model,
        proxy(tmp_path, model.url, only("empty")) as found,
    ):
        path = "/run/some-run/v1/messages?key=SECRET-six&token=SECRET-seven"
        send(found.port, body(TURN[:1]), path=path, headers=SECRETS)
        send(found.port, body(TURN), path=path, headers=SECRETS)
        send(found.port, b"{", path=path, headers=SECRETS)
        send(found.port, body(TURN), path="/v1/unknown?key=SECRET-six", headers=SECRETS)
        send(found.port, body(TURN), path=path, headers=SECRETS | {"Content-Encoding": "gzip"})
        send(found.port, method="GET", path="/v1/models?key=SECRET-six", headers=SECRETS)
        assert {record["path"] for record in found.records("request")} == {
            "/v1/messages", "/v1/unknown", "/v1/models",
        }  # fmt: skip
        assert any(seen.header("x-api-key") == "sk-ant-SECRET-one" for seen in model.received)
        told = "\n".join(found.told)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {"decisions.jsonl", "memory.db"} <= {file.name for file in files}
    assert "SECRET" not in told
    for file in files:
        assert b"SECRET" not in file.read_bytes(), file
        assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("status", [200, 201, 204, 301, 400, 401, 402, 404, 413, 429, 500, 503, 529])
def test_a_response_passes_as_it_is(tmp_path: Path, status: int) -> None:
    said = b"" if status == 204 else b'{"type":"error","error":{"type":"x","message":"y"}, "odd":1.10}'
    raw = document(said, b"%d Odd Words" % status, b"Retry-After: 7\r\nX-Odd: a  b\r\nx-odd: c\r\n")
    with (
        RawModel(lambda connection, _: connection.sendall(raw)) as model,
        proxy(tmp_path, model.url, only("empty")) as found,
    ):
        reply = send(found.port, body(TURN))
        assert reply.status == status
        assert reply.body == said
        assert reply.headers["retry-after"] == "7"
        # None of these is an answer of the model, whatever its status.
        assert not found.records("delivery")
        assert found.records("request")[0]["status"] == status


def test_unknown_paths_pass_untouched(off: Proxy, model: ThreadedScriptedModel) -> None:
    for method, path in (("GET", "/v1/models"), ("HEAD", "/api/hello"), ("DELETE", "/x/y?z"), ("PUT", "/p")):
        sent = b"anything" if method == "PUT" else None
        send(off.port, sent, method=method, path=path)
        seen = model.received[-1]
        assert (seen.method, seen.path, seen.body) == (method, path, sent or b"")
    send(off.port, b'{"events":[1]}', path="/telemetry")
    assert model.received[-1].body == b'{"events":[1]}'
    assert not off.log.read_bytes()


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/v1/new-protocol", {"tools": [{"name": "x"}]}),
        ("/v1/new-protocol", {"messages": []}),
        ("/v9/respond", {"input": "x"}),
        ("/v9/respond", {"contents": [{}]}),
    ],
)
def test_an_agents_request_that_nobody_understands_is_no_clean_run(
    off: Proxy, model: ThreadedScriptedModel, path: str, sent: dict[str, Any]
) -> None:
    raw = json.dumps(sent).encode()
    send(off.port, raw, path=path)
    assert model.received[0].body == raw
    assert [record["event"] for record in off.records()] == ["start", "error", "request"]
    assert path in off.records("error")[0]["reason"]


@pytest.mark.parametrize("run", ["a b", "a%2Fb", "x" * 129, "", "é"])
def test_a_run_id_that_is_none(off: Proxy, model: ThreadedScriptedModel, run: str) -> None:
    path = "/run/" + run.replace(" ", "%20").replace("é", "%C3%A9") + MESSAGES
    reply = send(off.port, body(TURN), path=path)
    assert reply.status == 400
    assert reply.json["type"] == "error"
    assert "run_id" in reply.json["error"]["message"]
    assert not model.received


def test_runs_are_told_apart_by_their_path(tmp_path: Path) -> None:
    with (
        ThreadedScriptedModel(scripted(ToolCall("Read", {"file_path": "a.txt"}))) as model,
        proxy(tmp_path, model.url, profile(name="off")) as found,
    ):
        for run in ("one", "two.2_~-"):
            assert send(found.port, body(TURN[:1]), path=f"/run/{run}{MESSAGES}").status == 200
        assert {seen.path for seen in model.received} == {MESSAGES}
        starts = found.records("start")
        assert [(s["run_id"], s["task_id"]) for s in starts] == [("one", "one"), ("two.2_~-", "two.2_~-")]


def test_odd_bytes_in_a_path(off: Proxy, model: ThreadedScriptedModel) -> None:
    import socket

    raw = body(TURN)
    head = b"POST /\xff\xfe/v1/messages?\xff HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % len(raw)
    with socket.create_connection(("127.0.0.1", off.port), timeout=30) as connection:
        connection.sendall(head + b"Connection: close\r\nx-api-key: k\r\n\r\n" + raw)
        assert connection.recv(65536).startswith(b"HTTP/1.")
    assert len(off.records("request")) == 1


def test_missteps_of_the_endpoint_pass(off: Proxy, model: ThreadedScriptedModel) -> None:
    model.misbehave(Misstep(status=529, headers=(("x-should-retry", "true"),)))
    reply = send(off.port, body(TURN, stream=False))
    assert (reply.status, reply.headers["x-should-retry"]) == (529, "true")
    assert reply.json["type"] == "error"


def test_a_compressed_response_that_nobody_asked_for(tmp_path: Path) -> None:
    message = {"type": "message", "content": [], "stop_reason": "end_turn", "usage": {"input_tokens": 3}}
    plain = json.dumps(message).encode()
    answers = iter(CODINGS.items())

    def answer(connection: Any, _: Request) -> None:
        coding, encode = next(answers)
        raw = encode(plain)
        connection.sendall(document(raw, headers=b"Content-Encoding: %s\r\n" % coding.encode()))

    with RawModel(answer) as model, proxy(tmp_path, model.url, profile(name="off")) as found:
        for coding, encode in CODINGS.items():
            assert send(found.port, body(TURN[:1])).body == encode(plain), coding
        assert [record["input_tokens"] for record in found.records("request")] == [3] * len(CODINGS)
        assert not found.records("error")
