"""The Responses API of the scripted model where the endpoint keeps the history, and over a WebSocket."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from harness.script import Misstep, scripted
from harness.scripted_model import ScriptedModel
from harness.turns import ToolCall, Turn
from tests.harness.wire.clients import CLIENTS, ResponsesClient

READ: dict[str, Any] = {"type": "function", "name": "read", "parameters": {"properties": {"path": {}}}}


def request(*items: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m-1", "input": list(items), "tools": [READ]} | more


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def output(call: Any, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call["call_id"], "output": text}


async def post(http: aiohttp.ClientSession, model: ScriptedModel, body: Any, status: int = 200) -> Any:
    async with http.post(model.url + "/v1/responses", json=body) as response:
        assert response.status == status, await response.text()
        return await response.json()


async def test_an_answer_is_gone_on_from_by_its_id() -> None:
    async with (
        ScriptedModel(scripted(Turn("Looking.", (ToolCall("read", {"path": "a"}),)), "Done.")) as model,
        aiohttp.ClientSession() as http,
    ):
        first = await post(http, model, request(user("go")))
        call = first["output"][1]
        only_new = request(output(call, "text"), previous_response_id=first["id"])
        second = await post(http, model, only_new)
        again = await post(http, model, only_new)
        error = await post(http, model, request(previous_response_id="resp_x"), status=400)
    assert second["output"][0]["content"][0]["text"] == "Done."
    assert again == second
    assert "no answer" in error["error"]["message"]
    view = model.agent_requests[1].conversation
    assert view is not None
    assert view.opening == ("go",)
    (past,) = view.turns
    assert (past.text, [c.tool for c in past.calls], [r.text for r in past.results]) == (
        "Looking.",
        ["read"],
        ["text"],
    )
    # The witness keeps the bytes that came, and what it knew besides.
    assert json.loads(model.agent_requests[1].body) == only_new
    assert len(model.agent_requests[1].before or ()) == 3
    assert [found.is_agent for found in model.received] == [True, True, True, False]


async def test_an_input_of_one_string_and_instructions() -> None:
    async with ScriptedModel(scripted("Done.")) as model, aiohttp.ClientSession() as http:
        await post(http, model, {"model": "m", "input": "go", "instructions": "Be brief.", "tools": [READ]})
    view = model.agent_requests[0].conversation
    assert view is not None
    assert (view.system, view.opening, view.tools[0].parameters) == ("Be brief.", ("go",), ("path",))


async def test_tools_that_take_raw_text_and_tools_in_namespaces() -> None:
    added = {
        "type": "additional_tools",
        "tools": [
            {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]},
            {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn"}]},
        ],
    }
    turn = Turn(
        calls=(
            ToolCall("exec", {}, None, 'text("a")'),
            ToolCall("spawn", {"n": 1}),
            ToolCall("local_shell", {}),
        )
    )
    async with ScriptedModel(scripted(turn)) as model, aiohttp.ClientSession() as http:
        body = {"model": "m", "input": [added, user("go")]}
        answer = await post(http, model, body)
        streamed = ResponsesClient(model.url, stream=True)
        streamed.history = [added, user("go")]
        said = await streamed.ask()
    custom, function, shell = answer["output"]
    assert (custom["type"], custom["name"], custom["input"]) == ("custom_tool_call", "exec", 'text("a")')
    assert (function["type"], function["name"], function["namespace"]) == ("function_call", "spawn", "agents")
    assert shell["type"] == "local_shell_call"
    assert said.calls[0].arguments == 'text("a")'
    assert [request.is_agent for request in model.received] == [True, True]


@pytest.mark.parametrize(
    "asking",
    [
        {"type": "compaction_trigger"},
        user("You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary."),
    ],
)
async def test_a_compaction_is_told_how_far_the_script_is(asking: dict[str, Any]) -> None:
    script = scripted(ToolCall("read", {"path": "a"}), ToolCall("read", {"path": "b"}), "Done.")
    async with ScriptedModel(script) as model, aiohttp.ClientSession() as http:
        first = await post(http, model, request(user("go")))
        call = first["output"][0]
        summary = await post(http, model, request(user("go"), call, output(call, "x"), asking))
        (item,) = summary["output"]
        kept = item if item["type"] == "compaction" else user(item["content"][0]["text"])
        later = await post(http, model, request(user("go"), kept))
    assert (item["type"] == "compaction") == (
        asking["type"] == "compaction_trigger" if "type" in asking else False
    )
    assert json.loads(later["output"][0]["arguments"]) == {"path": "b"}
    assert [found.is_agent for found in model.received] == [True, False, True]


async def test_counting_tokens() -> None:
    async with ScriptedModel(scripted("Done.")) as model, aiohttp.ClientSession() as http:
        async with http.post(model.url + "/v1/responses/input_tokens", json=request(user("go"))) as response:
            assert (await response.json())["input_tokens"] > 0
        assert (await post(http, model, request(user("go"))))["output"]
    assert [found.is_agent for found in model.received] == [False, True]


# -- the socket --


async def answer_on(socket: aiohttp.ClientWebSocketResponse) -> list[Any]:
    """The events of one answer."""
    found = []
    async for message in socket:
        found.append(json.loads(message.data))
        if found[-1]["type"] in ("response.completed", "error"):
            return found
    raise AssertionError(f"the socket was closed after {found}")


def create(*items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "response.create"} | request(*items, **more)


async def test_answers_on_a_socket_are_those_of_http() -> None:
    turn = Turn("Looking at it.", (ToolCall("read", {"path": "a"}),))
    async with ScriptedModel(scripted(turn, "Done.")) as model, aiohttp.ClientSession() as http:
        over_http = CLIENTS["responses"](model.url, stream=True)
        over_http.add_user("go")
        expected = await over_http.ask()
        async with http.ws_connect(model.url + "/run/r/v1/responses") as socket:
            await socket.send_json(create(over_http.history[0]))
            first = await answer_on(socket)
            said = over_http.streamed(first)
            call = first[-1]["response"]["output"][1]
            await socket.send_json(
                create(output(call, "x"), previous_response_id=first[-1]["response"]["id"])
            )
            second = await answer_on(socket)
    assert said[:2] == expected[:2]
    assert over_http.streamed(second).text == "Done."
    handshake, *messages = model.received[1:]
    assert (handshake.method, handshake.is_agent) == ("GET", False)
    assert [(found.method, found.is_agent, found.route) for found in messages] == [
        ("WEBSOCKET", True, "/run/r/v1/responses")
    ] * 2
    view = messages[1].conversation
    assert view is not None
    assert [result.text for result in view.results] == ["x"]


async def test_a_warm_up_gives_an_id_to_go_on_from() -> None:
    async with (
        ScriptedModel(scripted("Done.")) as model,
        aiohttp.ClientSession() as http,
        http.ws_connect(model.url + "/v1/responses") as socket,
    ):
        await socket.send_json(create({"role": "developer", "content": "rules"}, generate=False))
        warm = (await answer_on(socket))[-1]["response"]
        await socket.send_json(create(user("go"), previous_response_id=warm["id"]))
        answer = (await answer_on(socket))[-1]["response"]
        await socket.send_json(create(previous_response_id="resp_unknown"))
        (error,) = await answer_on(socket)
    assert warm["output"] == []
    assert answer["output"][0]["content"][0]["text"] == "Done."
    assert error["status"] == 400
    assert [found.is_agent for found in model.received] == [False, False, True, False]
    view = model.agent_requests[0].conversation
    assert view is not None
    assert view.opening == ("rules", "go")


async def test_missteps_on_a_socket() -> None:
    missteps = [Misstep(status=429), Misstep(raw=b'{"type":"error","odd":1}'), Misstep(cut_after_bytes=900)]
    async with (
        ScriptedModel(scripted("Done. " * 50), missteps=missteps) as model,
        aiohttp.ClientSession() as http,
    ):
        async with http.ws_connect(model.url + "/v1/responses") as socket:
            await socket.send_json(create(user("go")))
            (error,) = await answer_on(socket)
            await socket.send_json(create(user("go")))
            (odd,) = await answer_on(socket)
            await socket.send_json(create(user("go")))
            with pytest.raises(AssertionError, match="closed"):
                await answer_on(socket)
        async with http.ws_connect(model.url + "/v1/responses") as socket:
            await socket.send_str("{nope")
            (unreadable,) = await answer_on(socket)
            await socket.send_json({"type": "something.else"})
            await socket.send_json(create(user("go")))
            answer = await answer_on(socket)
    assert (error["type"], error["status"], error["error"]["code"]) == ("error", 429, "rate_limit_exceeded")
    assert odd == {"type": "error", "odd": 1}
    assert unreadable["status"] == 400
    assert answer[-1]["response"]["output"][0]["content"][0]["text"] == "Done. " * 50


async def test_a_plain_get_of_the_path_is_no_socket() -> None:
    async with ScriptedModel(scripted("Done.")) as model, aiohttp.ClientSession() as http:
        async with http.get(model.url + "/v1/responses") as response:
            assert response.status == 404
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await http.ws_connect(model.url + "/v1/chat/completions")
