"""The scripted model over real sockets: what it answers, what it keeps, how it misbehaves."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import brotli
import pytest

from harness.script import Branch, Misstep, Script, ScriptError, load_script, scripted
from harness.scripted_model import ScriptedModel, ThreadedScriptedModel
from harness.turns import Conversation, ToolCall, Turn, Usage

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

READ = {"name": "read", "input_schema": {"type": "object", "properties": {"path": {}, "limit": {}}}}


def body(*messages: dict[str, Any], stream: bool = False, **more: Any) -> dict[str, Any]:
    return {"model": "m-1", "stream": stream, "tools": [READ], "messages": list(messages)} | more


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content} | more


async def post(model: ScriptedModel, request: dict[str, Any], path: str = "/v1/messages") -> Any:
    async with aiohttp.ClientSession() as client, client.post(model.url + path, json=request) as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def stream(model: ScriptedModel, request: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The events of a streamed answer, split by the rules of server-sent events."""
    async with (
        aiohttp.ClientSession() as client,
        client.post(model.url + "/v1/messages", json=request) as response,
    ):
        assert response.headers["content-type"] == "text/event-stream"
        return list(events((await response.read()).decode()))


def events(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for block in text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        parsed = json.loads(data.removeprefix("data: "))
        assert parsed["type"] == name.removeprefix("event: ")
        yield parsed["type"], parsed


def rebuilt(stream_events: list[tuple[str, dict[str, Any]]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Content blocks put together from their deltas as a client does, and the raw argument texts."""
    blocks: list[dict[str, Any]] = []
    spelled: list[str] = []
    for name, data in stream_events:
        if name == "content_block_start":
            blocks.append(dict(data["content_block"]))
            spelled.append("")
        elif name == "content_block_delta" and data["delta"]["type"] == "text_delta":
            blocks[data["index"]]["text"] += data["delta"]["text"]
        elif name == "content_block_delta":
            spelled[data["index"]] += data["delta"]["partial_json"]
    return blocks, spelled


async def test_json_answer_has_text_then_calls_and_a_matching_stop_reason() -> None:
    async with ScriptedModel(
        scripted(Turn("Looking.", (ToolCall("read", {"path": "a"}),)), "Done.")
    ) as model:
        first = await post(model, body(user("go")))
        call = first["content"][1]
        second = await post(
            model, body(user("go"), assistant(*first["content"]), user([result(call["id"], "x")]))
        )
    assert first["content"][0] == {"type": "text", "text": "Looking."}
    assert (call["type"], call["name"], call["input"]) == ("tool_use", "read", {"path": "a"})
    assert first["stop_reason"] == "tool_use"
    assert second["content"] == [{"type": "text", "text": "Done."}]
    assert second["stop_reason"] == "end_turn"
    assert first["model"] == "m-1"


async def test_streamed_answer_says_the_same_in_many_small_events() -> None:
    arguments = {"path": "a" * 60, "limit": 3, "text": "ünï \U0001f600"}
    turn = Turn(
        "A text that needs a few deltas to be told.", (ToolCall("read", arguments),), Usage(11, 22, 33, 44)
    )
    async with ScriptedModel(scripted(turn)) as model:
        seen = await stream(model, body(user("go"), stream=True))
        whole = await post(model, body(user("go")))
    names = [name for name, _ in seen]
    assert names[0] == "message_start"
    assert names[-2:] == ["message_delta", "message_stop"]
    assert "ping" in names
    assert names.count("content_block_delta") > 10
    blocks, spelled = rebuilt(seen)
    assert blocks[0] == whole["content"][0]
    assert json.loads(spelled[1]) == arguments
    assert blocks[1]["id"] == whole["content"][1]["id"]
    usage = dict(seen)["message_delta"]["usage"]
    assert usage == whole["usage"]
    assert usage == {
        "input_tokens": 11,
        "output_tokens": 22,
        "cache_read_input_tokens": 33,
        "cache_creation_input_tokens": 44,
    }
    started = seen[0][1]["message"]
    assert started["usage"]["input_tokens"] == 11
    assert started["stop_reason"] is None
    assert dict(seen)["message_delta"]["delta"]["stop_reason"] == "tool_use"


async def test_raw_arguments_are_sent_as_they_are_spelled() -> None:
    odd = '{ "path":\t"a", "n": 1e2, "path": "b" }'
    async with ScriptedModel(scripted(ToolCall("read", {}, None, odd))) as model:
        _, spelled = rebuilt(await stream(model, body(user("go"), stream=True)))
        async with (
            aiohttp.ClientSession() as client,
            client.post(model.url + "/v1/messages", json=body(user("go"))) as response,
        ):
            text = await response.text()
    assert spelled == [odd]
    assert odd in text
    assert json.loads(text)["content"][0]["input"] == {"path": "b", "n": 100.0}


async def test_keeps_every_request_byte_for_byte() -> None:
    odd = b'{"model" : "m", "messages":[{"role":"user","content":"\\u00e5"}] , "n": 12345678901234567890123}'
    packed = gzip.compress(odd)
    async with ScriptedModel(scripted("Done.")) as model, aiohttp.ClientSession() as client:
        await client.post(
            model.url + "/run/r1/v1/messages?beta=true", data=odd, headers={"X-Mixed-Case": "Yes"}
        )
        await client.post(model.url + "/v1/messages", data=packed, headers={"content-encoding": "gzip"})
        await client.post(model.url + "/v1/messages", data=b"{nope")
        statuses = [(await client.request(m, model.url + "/api/hello")).status for m in ("HEAD", "GET")]
    first, second, third, head, get = model.received
    assert first.body == odd
    assert first.path == "/run/r1/v1/messages?beta=true"
    assert first.route == "/run/r1/v1/messages"
    assert ("X-Mixed-Case", "Yes") in first.headers
    assert second.body == packed
    assert second.plain_body == odd
    assert second.json == first.json
    assert third.body == b"{nope"
    assert (head.method, get.method, statuses) == ("HEAD", "GET", [200, 404])
    assert [request.is_agent for request in model.received] == [False] * 5


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("br", brotli.compress),
        ("zstd", zstd.compress),
        ("identity", bytes),
    ],
)
async def test_reads_compressed_requests_and_keeps_them_compressed(
    encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    plain = json.dumps(body(user("go"))).encode()
    async with ScriptedModel(scripted("Done.")) as model, aiohttp.ClientSession() as client:
        headers = {"content-encoding": encoding}
        good = await client.post(model.url + "/v1/messages", data=pack(plain), headers=headers)
        assert good.status == 200
        if encoding != "identity":
            assert (await client.post(model.url + "/v1/messages", data=b"no", headers=headers)).status == 400
    assert model.received[0].body == pack(plain)
    assert model.received[0].plain_body == plain


async def test_a_body_that_is_no_request_is_refused_in_the_protocols_shape() -> None:
    async with ScriptedModel(scripted("Done.")) as model, aiohttp.ClientSession() as client:
        for data in (b"{nope", b"[]", b'{"messages": 3}', b'{"messages": [7]}'):
            response = await client.post(model.url + "/v1/messages", data=data)
            assert response.status == 400
            assert (await response.json())["error"]["type"] == "invalid_request_error"


async def test_side_requests_use_up_no_turn() -> None:
    compaction = user(
        [result("x", "y"), {"type": "text", "text": "CRITICAL: Respond with TEXT ONLY. Do NOT…"}]
    )
    late = {"role": "system", "content": "<total_tokens>5 tokens left</total_tokens>"}
    async with ScriptedModel(scripted(ToolCall("read"))) as model:
        counted = await post(model, body(user("go")), "/v1/messages/count_tokens")
        titled = await post(model, body(user("go"), tools=[]))
        compacted = await post(model, body(user("go"), compaction, late))
        first = await post(model, body(user("go")))
    assert counted["input_tokens"] > 0
    assert titled["content"][0]["type"] == "text"
    assert titled["stop_reason"] == compacted["stop_reason"] == "end_turn"
    assert first["content"][0]["name"] == "read"
    sides = [request.conversation.side for request in model.received if request.conversation is not None]
    assert sides == ["count_tokens", "no_tools", "compaction", None]
    assert len(model.agent_requests) == 1


async def test_each_conversation_walks_its_own_list() -> None:
    sub = Branch("look at b", (Turn(calls=(ToolCall("read", {"path": "b"}),)), Turn("Sub done.")))
    script = Script((Turn(calls=(ToolCall("read", {"path": "a"}),)), Turn("Main done.")), (sub,))
    async with ScriptedModel(script) as model:
        main_1 = await post(model, body(user("fix it")))
        sub_1 = await post(model, body(user("please look at b")))
        sub_2 = await post(model, body(user("please look at b"), assistant(*sub_1["content"]), user("x")))
        main_2 = await post(model, body(user("fix it"), assistant(*main_1["content"]), user("x")))
        used_up = await post(
            model,
            body(
                user("fix it"),
                assistant(*main_1["content"]),
                user("x"),
                assistant(*main_2["content"]),
                user("on"),
            ),
        )
    assert main_1["content"][0]["input"] == {"path": "a"}
    assert sub_1["content"][0]["input"] == {"path": "b"}
    assert main_2["content"][0]["text"] == "Main done."
    assert sub_2["content"][0]["text"] == "Sub done."
    assert used_up["stop_reason"] == "end_turn"


async def test_a_list_goes_on_where_it_was_after_dropped_and_added_answers() -> None:
    script = scripted(*(ToolCall("read", {"path": str(n)}) for n in range(5)))
    async with ScriptedModel(script) as model:
        messages = [user("go")]
        for _ in range(3):
            answer = await post(model, body(*messages))
            messages += [assistant(*answer["content"]), user([result(answer["content"][0]["id"], "x")])]
        dropped = await post(model, body(user("summary of it"), *messages[-2:]))
        added = await post(
            model, body(*messages, assistant({"type": "text", "text": "Not mine."}), user("on"))
        )
        summary = await post(model, body(*messages[:-1], user("CRITICAL: Respond with TEXT ONLY.")))
        after = await post(model, body(user(f"Summary:\n{summary['content'][0]['text']}\nGo on.")))
    assert [a["content"][0]["input"]["path"] for a in (dropped, added, after)] == ["3", "3", "3"]


async def test_call_ids_are_new_in_a_conversation_and_the_same_for_the_same_request() -> None:
    two = Turn(calls=(ToolCall("read"), ToolCall("read"), ToolCall("read", {}, "mine")))
    async with ScriptedModel(scripted(two, two)) as model:
        first = await post(model, body(user("go")))
        again = await post(model, body(user("go")))
        second = await post(model, body(user("go"), assistant(*first["content"]), user("x")))
    ids = [block["id"] for block in first["content"] + second["content"]]
    assert first == again
    assert ids.count("mine") == 2
    assert len(set(ids)) == 5


async def test_a_policy_sees_the_conversation_as_it_was_sent() -> None:
    seen: list[Conversation] = []

    def policy(view: Conversation) -> Turn:
        seen.append(view)
        return Turn("Done.")

    system = [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]
    call = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}}
    other = {"type": "tool_use", "id": "c2", "name": "read", "input": {"path": "b"}}
    blocks = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    reply = user([result("c2", blocks), result("c1", "no", is_error=True), {"type": "text", "text": "note"}])
    async with ScriptedModel(policy) as model:
        await post(
            model,
            body(user("fix"), assistant({"type": "text", "text": "ok"}, call, other), reply, system=system),
        )
    (view,) = seen
    assert view.system == "Be brief.\nBe kind."
    assert view.opening == ("fix",)
    assert view.user_texts == ("fix", "note")
    assert [(tool.name, tool.parameters) for tool in view.tools] == [("read", ("path", "limit"))]
    (past,) = view.turns
    assert past.text == "ok"
    assert [(c.tool, c.arguments, c.call_id) for c in past.calls] == [
        ("read", {"path": "a"}, "c1"),
        ("read", {"path": "b"}, "c2"),
    ]
    assert [(r.call_id, r.text, r.is_error) for r in past.results] == [
        ("c2", "one\ntwo", None),
        ("c1", "no", True),
    ]
    assert past.result_of(past.calls[0]) == past.results[1]
    assert model.agent_requests[0].conversation == view


async def test_fails_the_next_requests_then_recovers() -> None:
    async with ScriptedModel(scripted("Done.")) as model, aiohttp.ClientSession() as client:
        model.misbehave(Misstep(times=2, status=529, headers=(("retry-after", "1"),)))
        model.misbehave(Misstep(status=402, body='{"own": "body"}'))
        answers = [await client.post(model.url + "/v1/messages", json=body(user("go"))) for _ in range(4)]
        texts = [await answer.json() for answer in answers]
    assert [answer.status for answer in answers] == [529, 529, 402, 200]
    assert answers[0].headers["retry-after"] == "1"
    assert texts[0]["error"]["type"] == "overloaded_error"
    assert texts[2] == {"own": "body"}
    assert len(model.agent_requests) == 4


async def test_missteps_spare_side_requests() -> None:
    async with ScriptedModel(scripted("Done."), missteps=[Misstep(status=500)]) as model:
        await post(model, body(user("go")), "/v1/messages/count_tokens")
        async with aiohttp.ClientSession() as client:
            assert (await client.post(model.url + "/v1/messages", json=body(user("go")))).status == 500


@pytest.mark.parametrize("cut", ["drop", "end"])
async def test_cuts_a_stream_after_so_many_bytes(cut: Any) -> None:
    turn = Turn("x" * 500)
    async with ScriptedModel(scripted(turn)) as model, aiohttp.ClientSession() as client:
        whole = await (
            await client.post(model.url + "/v1/messages", json=body(user("go"), stream=True))
        ).content.read()
        model.misbehave(Misstep(cut_after_bytes=300, cut=cut))
        response = await client.post(model.url + "/v1/messages", json=body(user("go"), stream=True))
        got = b""
        try:
            async for piece in response.content.iter_any():
                got += piece
            complete = True
        except aiohttp.ClientPayloadError:
            complete = False
    assert got == whole[: len(got)]
    assert len(got) <= 300
    assert complete == (cut == "end")
    if complete:
        assert len(got) == 300


async def test_odd_raw_answers_are_given_byte_for_byte() -> None:
    odd = b"event: nonsense\r\ndata: \xff\xfe\r\n\r\n"
    misstep = Misstep(raw=odd, content_type="text/event-stream", status=200)
    async with (
        ScriptedModel(scripted("Done."), missteps=[misstep]) as model,
        aiohttp.ClientSession() as client,
    ):
        response = await client.post(model.url + "/v1/messages", json=body(user("go"), stream=True))
        assert await response.read() == odd


def test_events_arrive_as_separate_chunks_of_the_transfer() -> None:
    with ThreadedScriptedModel(scripted(Turn("word " * 40)), chunk_delay_s=0.001) as model:
        host, port = model.url.removeprefix("http://").split(":")
        payload = json.dumps(body(user("go"), stream=True)).encode()
        lines = (
            "POST /v1/messages HTTP/1.1",
            "Host: x",
            f"Content-Length: {len(payload)}",
            "Connection: close",
        )
        head = "\r\n".join((*lines, "", ""))
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + payload)
            raw = b""
            while piece := connection.recv(65536):
                raw += piece
    sizes = _chunk_sizes(raw.partition(b"\r\n\r\n")[2])
    assert len(sizes) > 10
    assert max(sizes) < 600


def _chunk_sizes(transfer: bytes) -> list[int]:
    sizes = []
    while True:
        line, _, rest = transfer.partition(b"\r\n")
        size = int(line, 16)
        if size == 0:
            return sizes
        sizes.append(size)
        transfer = rest[size + 2 :]


def test_threaded_model_serves_code_without_an_event_loop() -> None:
    with ThreadedScriptedModel(scripted("Done.")) as model:
        host, port = model.url.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        connection.request("POST", "/v1/messages", json.dumps(body(user("go"))))
        assert json.loads(connection.getresponse().read())["content"][0]["text"] == "Done."
        connection.close()
        assert [request.is_agent for request in model.received] == [True]
        taken = int(port)
        with pytest.raises(OSError, match=str(taken)), ThreadedScriptedModel(scripted(), port=taken):
            pass


def test_a_script_file_says_all_that_a_script_can(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        """
turns:
  - text: Looking.
    calls:
      - {tool: Read, arguments: {file_path: "{ws}/a.txt", n: 3, deep: ["{ws}"]}}
      - {tool: Bash, raw_arguments: '{ "command": "ls" }', call_id: mine}
    usage: {input_tokens: 5, output_tokens: 6}
  - text: Done.
branches:
  - when: sub
    turns: [{text: Sub.}]
end_text: Over.
side_text: Short
missteps:
  - {status: 529, times: 2, headers: {retry-after: "1"}}
  - {raw: "x", cut_after_bytes: 0, cut: end, delay_s: 0.5}
chunk_delay_s: 0.25
"""
    )
    script = load_script(path).in_workspace(Path("/w"))
    assert script == Script(
        turns=(
            Turn(
                "Looking.",
                (
                    ToolCall("Read", {"file_path": "/w/a.txt", "n": 3, "deep": ["/w"]}),
                    ToolCall("Bash", {}, "mine", '{ "command": "ls" }'),
                ),
                Usage(5, 6),
            ),
            Turn("Done."),
        ),
        branches=(Branch("sub", (Turn("Sub."),)),),
        end_text="Over.",
        side_text="Short",
        missteps=(
            Misstep(times=2, status=529, headers=(("retry-after", "1"),)),
            Misstep(raw=b"x", cut_after_bytes=0, cut="end", delay_s=0.5),
        ),
        chunk_delay_s=0.25,
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("turns: [{txt: hi}]", "turns.0.txt"),
        ("turns: [{calls: [{arguments: {}}]}]", "turns.0.calls.0.tool"),
        ("turns: [{calls: [{tool: x, arguments: {day: 2026-01-01}}]}]", "turns.0.calls.0.arguments"),
        ("missteps: [{status: 9}]", "missteps.0.status"),
        ("turns: [", "s.yaml"),
        ("- 3", "the file"),
    ],
)
def test_a_script_file_that_does_not_fit_is_named(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(ScriptError, match=r"s\.yaml") as caught:
        load_script(path)
    assert named in str(caught.value)
    with pytest.raises(ScriptError, match=r"none\.yaml"):
        load_script(tmp_path / "none.yaml")
