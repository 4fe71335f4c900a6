"""The scripted model in every protocol over real sockets: one script drives them all."""

from __future__ import annotations

import gzip
import json
from typing import Any

import aiohttp
import pytest

from harness.script import Misstep, scripted
from harness.scripted_model import ScriptedModel
from harness.turns import Conversation, ToolCall, Turn, Usage
from tests.harness.wire.clients import CLIENTS, Asked, Client

every_protocol = pytest.mark.parametrize("make", CLIENTS.values(), ids=CLIENTS.keys())
streamed_or_not = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
LONG = 'A text that needs a few deltas to be told, with ünï \U0001f600 and "quotes".'
SCRIPT = scripted(
    Turn("Looking.", (ToolCall("read", {"path": "{ws}/a"}), ToolCall("bash", {"command": "ls"}))),
    ToolCall("read", {"path": "b"}),
    LONG,
)


@every_protocol
@streamed_or_not
async def test_one_script_drives_every_protocol(make: type[Client], stream: bool) -> None:
    async with ScriptedModel(SCRIPT) as model:
        client = make(model.url + "/run/r1", stream=stream)
        client.add_user("go")
        first = await client.ask()
        for call in reversed(first.calls):
            client.add_result(call, f"result of {call.tool}")
        second = await client.ask()
        client.add_result(second.calls[0], "b!")
        client.add_user("and now?")
        third = await client.ask()
    assert first.text == "Looking."
    assert [(call.tool, json.loads(call.arguments)) for call in first.calls] == [
        ("read", {"path": "{ws}/a"}),
        ("bash", {"command": "ls"}),
    ]
    assert [(call.tool, json.loads(call.arguments)) for call in second.calls] == [("read", {"path": "b"})]
    assert (third.text, third.calls) == (LONG, ())
    assert len({call.call_id for call in (*first.calls, *second.calls)}) == 3
    assert [request.is_agent for request in model.received] == [True] * 3

    view = model.agent_requests[-1].conversation
    assert view is not None
    assert (view.model, view.opening, view.stream) == ("m-1", ("go",), stream)
    assert [tool.name for tool in view.tools] == ["read", "bash"]
    one, two = view.turns
    assert (one.text, two.text) == ("Looking.", "")
    assert [(call.tool, call.arguments) for call in one.calls] == [
        ("read", {"path": "{ws}/a"}),
        ("bash", {"command": "ls"}),
    ]
    assert [one.result_of(call) for call in one.calls] == list(reversed(one.results))
    assert [result.text for result in one.results] == ["result of bash", "result of read"]
    assert [result.text for result in two.results] == ["b!"]
    assert (one.said, two.said) == ((), ("and now?",))


@every_protocol
@streamed_or_not
async def test_usage_is_said_in_the_protocols_own_way(make: type[Client], stream: bool) -> None:
    async with ScriptedModel(scripted(Turn("Done.", usage=Usage(11, 22, 33, 44)))) as model:
        client = make(model.url, stream=stream)
        client.add_user("go")
        said = await client.ask()
    total = 11 + 33 + 44
    expected = {
        "chat": {"prompt_tokens": total, "completion_tokens": 22, "total_tokens": total + 22},
        "responses": {"input_tokens": total, "output_tokens": 22, "total_tokens": total + 22},
        "gemini": {"promptTokenCount": total, "candidatesTokenCount": 22, "totalTokenCount": total + 22},
    }
    name = next(name for name in expected if CLIENTS[name].path == make.path)
    assert said.usage.items() >= expected[name].items()
    flat = json.dumps(said.usage)
    assert '"cached_tokens": 33' in flat or '"cachedContentTokenCount": 33' in flat


@every_protocol
@streamed_or_not
async def test_stop_reasons(make: type[Client], stream: bool) -> None:
    async with ScriptedModel(scripted(ToolCall("read", {}), "Done.")) as model:
        client = make(model.url, stream=stream)
        client.add_user("go")
        first = await client.ask()
        client.add_result(first.calls[0], "x")
        second = await client.ask()
    expected = {
        "/v1/chat/completions": ("tool_calls", "stop"),
        "/v1/responses": ("completed", "completed"),
    }
    assert (first.stop, second.stop) == expected.get(make.path, ("STOP", "STOP"))


@every_protocol
@streamed_or_not
async def test_the_spelling_of_arguments_is_the_scripts(make: type[Client], stream: bool) -> None:
    odd = '{ "path":\t"a", "n": 1e2, "path": "b" }'
    async with (
        ScriptedModel(scripted(ToolCall("read", {}, None, odd))) as model,
        aiohttp.ClientSession() as http,
    ):
        client = make(model.url, stream=stream)
        client.add_user("go")
        (call,) = (await client.ask()).calls
        if "chat" in make.path or "responses" in make.path:
            assert call.arguments == odd
        del client.history[1:]
        path = client.stream_path if stream else client.path
        async with http.post(model.url + path, json=client.body()) as response:
            raw = await response.text()
        if "gemini" in make.__name__.lower():
            assert odd in raw


@every_protocol
async def test_the_same_request_gets_the_same_answer(make: type[Client]) -> None:
    script = scripted(Turn("x", (ToolCall("read", {}), ToolCall("read", {}, "mine"))))
    said = []
    async with ScriptedModel(script) as model:
        for stream in (False, False, True):
            client = make(model.url, stream=stream)
            client.add_user("go")
            said.append((await client.ask())[:2])
    assert said[0] == said[1] == said[2]
    assert said[0][1][1].call_id == "mine"


@every_protocol
async def test_side_requests_use_up_no_turn(make: type[Client]) -> None:
    async with ScriptedModel(SCRIPT) as model, aiohttp.ClientSession() as http:
        client = make(model.url, stream=False)
        client.add_user("go")
        title = client.body()
        del title["tools"]
        async with http.post(model.url + client.path, json=title) as response:
            assert client.whole(await response.json()).text == "Working on the task"
        assert (await client.ask()).text == "Looking."
    assert [request.is_agent for request in model.received] == [False, True]
    view = model.received[0].conversation
    assert view is not None
    assert view.side == "no_tools"


_WELL = "First, reason in your scratchpad. Then, generate the updated <state_snapshot>."
_CHECK = "Critically evaluate the <state_snapshot> you just generated. Did you omit any specific details?"
_SHAPED = "First, reason in your <analysis> block. Then, produce the <state_snapshot> XML."


@pytest.mark.parametrize(("name", "asking"), [("gemini", _WELL), ("gemini", _CHECK), ("chat", _SHAPED)])
@streamed_or_not
async def test_a_summary_says_how_far_the_script_is(name: str, asking: str, stream: bool) -> None:
    """As Gemini CLI asks for one, and whether it is whole, and as Qwen Code does with its tools on offer."""
    script = scripted(ToolCall("read", {"path": "a"}), ToolCall("read", {"path": "b"}), "Done.")
    async with ScriptedModel(script) as model:
        client = CLIENTS[name](model.url, stream=stream)
        client.add_user("go")
        client.add_result((await client.ask()).calls[0], "a!")
        client.add_user(asking)
        summary = await client.ask()
        later = CLIENTS[name](model.url, stream=stream)
        later.add_user(summary.text)
        after = await later.ask()
    assert summary.calls == ()
    assert summary.text.startswith("<state_snapshot>\n")
    assert summary.text.endswith("\n</state_snapshot>")
    assert [json.loads(call.arguments) for call in after.calls] == [{"path": "b"}]
    assert [request.is_agent for request in model.received] == [True, False, True]


@every_protocol
async def test_what_is_no_request_is_refused_in_the_protocols_shape(make: type[Client]) -> None:
    client = make("", stream=False)
    client.add_user("x")
    array = next(name for name in ("messages", "input", "contents") if name in client.body())
    odd = (b"{nope", b"[]", json.dumps({array: 3}).encode(), json.dumps({array: [7]}).encode())
    async with ScriptedModel(scripted("Done.")) as model, aiohttp.ClientSession() as http:
        for data in odd:
            async with http.post(model.url + make.path, data=data) as response:
                assert response.status == 400
                assert (await response.json())["error"]["message"]
    assert not model.agent_requests


@every_protocol
async def test_missteps(make: type[Client]) -> None:
    missteps = [Misstep(status=429), Misstep(status=402, body='{"own": 1}'), Misstep(cut_after_bytes=150)]
    async with (
        ScriptedModel(scripted(LONG), missteps=missteps) as model,
        aiohttp.ClientSession() as http,
    ):
        client = make(model.url, stream=True)
        client.add_user("go")
        async with http.post(model.url + client.stream_path, json=client.body()) as response:
            error = (await response.json())["error"]
            assert response.status == 429
            assert "RESOURCE_EXHAUSTED" in str(error) or "rate_limit_exceeded" in str(error)
        async with http.post(model.url + client.stream_path, json=client.body()) as response:
            assert (response.status, await response.json()) == (402, {"own": 1})
        with pytest.raises(aiohttp.ClientPayloadError):
            async with http.post(model.url + client.stream_path, json=client.body()) as response:
                await response.read()
        assert (await client.ask()).text == LONG


@every_protocol
async def test_compressed_requests_are_kept_as_they_came(make: type[Client]) -> None:
    async with ScriptedModel(scripted("Done.")) as model, aiohttp.ClientSession() as http:
        client = make(model.url, stream=False)
        client.add_user("go")
        packed = gzip.compress(json.dumps(client.body()).encode())
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        async with http.post(model.url + client.path, data=packed, headers=headers) as response:
            assert client.whole(await response.json()).text == "Done."
    (request,) = model.agent_requests
    assert request.body == packed


async def test_chat_says_its_usage_in_a_stream_only_when_asked() -> None:
    async with ScriptedModel(scripted("Done.")) as model, aiohttp.ClientSession() as http:
        client = CLIENTS["chat"](model.url, stream=True)
        client.add_user("go")
        body = client.body()
        del body["stream_options"]
        async with http.post(model.url + client.path, json=body) as response:
            raw = await response.text()
    assert "usage" not in raw
    assert raw.endswith("data: [DONE]\n\n")


async def test_chat_tells_the_system_text_from_the_rest() -> None:
    seen: list[Conversation] = []

    def policy(view: Conversation) -> Turn:
        seen.append(view)
        return Turn("Done.")

    async with ScriptedModel(policy) as model:
        client = CLIENTS["chat"](model.url, stream=False)
        client.history = [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        ]
        await client.ask()
    assert seen[0].system == "Be brief.\nBe kind."
    assert seen[0].opening == ("one\ntwo",)


async def test_gemini_calls_without_ids_are_known_by_their_place() -> None:
    turn = Turn(
        calls=(ToolCall("read", {"n": 1}, ""), ToolCall("bash", {}, ""), ToolCall("read", {"n": 2}, ""))
    )
    async with ScriptedModel(scripted(turn, "Done.")) as model:
        client = CLIENTS["gemini"](model.url, stream=True)
        client.add_user("go")
        said = await client.ask()
        assert [call.call_id for call in said.calls] == ["", "", ""]
        for number, tool in enumerate(("bash", "read", "read")):
            client.add_result(Asked("", tool, "{}"), f"{tool} {number}")
        await client.ask()
    view = model.agent_requests[-1].conversation
    assert view is not None
    (past,) = view.turns
    results = [past.result_of(call) for call in past.calls]
    assert [result.text for result in results if result] == ["read 1", "bash 0", "read 2"]


async def test_gemini_tells_an_error_by_its_name_and_counts_tokens() -> None:
    async with (
        ScriptedModel(scripted(ToolCall("read", {}), "Done.")) as model,
        aiohttp.ClientSession() as http,
    ):
        client = CLIENTS["gemini"](model.url, stream=False)
        client.add_user("go")
        (call,) = (await client.ask()).calls
        response: dict[str, Any] = {"name": "read", "id": call.call_id, "response": {"error": "no such file"}}
        client.history.append({"role": "user", "parts": [{"functionResponse": response}]})
        await client.ask()
        counting = {"contents": client.history}
        async with http.post(model.url + "/v1beta/models/m:countTokens", json=counting) as answer:
            assert (await answer.json())["totalTokens"] > 0
    view = model.agent_requests[-1].conversation
    assert view is not None
    (result,) = view.results
    assert (result.text, result.is_error) == ("no such file", True)
    assert [request.is_agent for request in model.received] == [True, True, False]
