"""OpenAI Responses: what only this wire has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.protocols.openai_responses import OpenAIResponses
from proxy.protocols.wire import (
    KEEP,
    REMOVE,
    ParsedRequest,
    PartPlan,
    WireError,
    splice,
)
from tests.proxy.build import dumps

WIRE = OpenAIResponses()
TOOLS = [{"type": "function", "name": "exec_command"}]


def request_of(*items: dict[str, Any], **more: Any) -> ParsedRequest:
    return WIRE.parse_request(dumps({"model": "m", "input": list(items), "tools": TOOLS} | more), None)


def message(role: str, *texts: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


def call(call_id: str, name: str = "exec_command", arguments: str = "{}", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments} | more


def output(call_id: str, value: Any, kind: str = "function_call_output", **more: Any) -> dict[str, Any]:
    return {"type": kind, "call_id": call_id, "output": value} | more


def text(value: str) -> dict[str, Any]:
    return {"type": "input_text", "text": value}


def edited_item(
    request: ParsedRequest, number: int, plan: list[PartPlan], is_error: bool | None = None
) -> Any:
    (result,) = request.items[number].results
    parts = WIRE.result_parts(request, result)
    edited = json.loads(splice(request.body, WIRE.edit_result(request, result, parts, plan, is_error)))
    return edited["input"][number]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/responses", "generate"),
        ("/openai/v1/responses", "generate"),
        ("/v1/responses/compact", "generate"),
        ("/v1/responses/input_tokens", "count"),
        ("/v1/responses/resp_1", None),
        ("/v1/responses/resp_1/cancel", None),
        ("/v1/chat/completions", None),
    ],
)
def test_paths(path: str, kind: str | None) -> None:
    assert WIRE.kind_of(path) == kind


# -- requests --


def test_an_input_that_is_one_string() -> None:
    body = dumps({"model": "m", "input": 'fix "it"', "tools": TOOLS, "instructions": "Be brief."})
    request = WIRE.parse_request(body, None)
    (item,) = request.items
    assert (item.role, item.calls, item.results, request.has_tools) == ("user", (), (), True)
    assert WIRE.opening(request) == 'Be brief.\nfix "it"'
    (part,) = WIRE.texts(request, item)
    edited = json.loads(splice(body, [WIRE.edit_text(request, part, "stop")]))
    assert edited["input"] == "stop"
    as_message = {"role": "user", "content": 'fix "it"'}
    assert WIRE.essence(request.slice(item.at)) == WIRE.essence(dumps(as_message))
    # What comes after it is not compared with it.
    later = dumps({"model": "m", "input": [as_message, message("assistant", "ok")], "tools": TOOLS})
    assert len(WIRE.parse_request(later, request).items) == 2
    assert WIRE.parse_request(body, request).items == request.items
    with pytest.raises(WireError):
        WIRE.parse_request(
            b'{"model":"m","input":"a","b"}', WIRE.parse_request(b'{"model":"m","input":"a"}', None)
        )


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ({"previous_response_id": "resp_1"}, "resp_1"),
        ({"previous_response_id": None, "conversation": "conv_1"}, "conv_1"),
        ({"conversation": {"id": "conv_1"}}, "conv_1"),
        ({"previous_response_id": None}, None),
        ({}, None),
    ],
)
def test_what_the_endpoint_keeps(field: dict[str, Any], name: str | None) -> None:
    request = request_of(output("c1", "text"), **field)
    assert request.continues == name
    (result,) = request.items[0].results
    assert (result.call_id, result.answers) == ("c1", None)
    body = dumps({"model": "m", "input": "go"} | field)
    assert WIRE.parse_request(body, None).continues == name


def test_a_request_without_input() -> None:
    for field in ({"previous_response_id": "resp_1"}, {"conversation": "c"}, {"prompt": {"id": "p"}}):
        request = WIRE.parse_request(dumps({"model": "m", "tools": TOOLS} | field), None)
        assert (request.items, request.has_tools) == ((), True)
    for body in ({"model": "m", "tools": TOOLS}, {"type": "response.create", "response": {"input": []}}):
        with pytest.raises(WireError, match="input is not a list"):
            WIRE.parse_request(dumps(body), None)


def test_tools_in_the_first_item() -> None:
    """As Codex 0.171 sends them for its newer models: no tools but those, in namespaces."""
    added = {
        "type": "additional_tools",
        "role": "developer",
        "tools": [
            {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]},
            {"type": "namespace", "name": "clock", "tools": [{"type": "function", "name": "sleep"}]},
        ],
    }
    body = {"model": "m", "input": [added, message("user", "go")]}
    request = WIRE.parse_request(dumps(body), None)
    assert request.has_tools
    assert json.loads(request.tools) == added["tools"]
    assert WIRE.offered(request.tools) >= {"exec", "sleep"}
    body["input"] = [*body["input"], message("assistant", "ok"), message("user", "more")]
    assert WIRE.parse_request(dumps(body), request).tools == request.tools


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ([], False),
        ([{"type": "web_search"}], False),
        ([{"type": "web_search"}, {"type": "mcp", "server_label": "x"}], False),
        ([{"type": "web_search"}, {"type": "custom", "name": "x"}], True),
        ([{"type": "local_shell"}], True),
    ],
)
def test_tools_that_run_at_the_endpoint_are_none_of_the_harness(tools: Any, expected: bool) -> None:
    assert request_of(message("user", "go"), tools=tools).has_tools == expected
    alone = WIRE.parse_request(dumps({"input": "go", "tools": tools}), None)
    assert alone.has_tools == expected


def test_items_and_who_said_them() -> None:
    request = request_of(
        {"role": "developer", "content": "rules"},
        message("user", "go"),
        {"type": "reasoning", "summary": [], "encrypted_content": "x"},
        message("assistant", "well"),
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        call("c1", namespace="shell"),
        {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin"},
        {"type": "local_shell_call", "call_id": "c3", "action": {"type": "exec", "command": ["ls"]}},
        output("c1", "one"),
        output("c2", "two", "custom_tool_call_output"),
        output("c3", "three", "local_shell_call_output"),
        {"type": "item_reference", "id": "msg_1"},
        {"type": "compaction", "encrypted_content": "x"},
    )
    assert [item.role for item in request.items] == [
        "developer",
        "user",
        *["assistant"] * 6,
        *["tool"] * 3,
        "item_reference",
        "compaction",
    ]
    calls = [found for item in request.items for found in item.calls]
    assert [(found.call_id, found.tool) for found in calls] == [
        ("c1", "exec_command"),
        ("c2", "apply_patch"),
        ("c3", "local_shell"),
    ]
    assert [WIRE.call_arguments(request, found) for found in calls] == [
        b"{}",
        b"*** Begin",
        b'{"type":"exec","command":["ls"]}',
    ]
    results = [found for item in request.items for found in item.results]
    assert [WIRE.result_parts(request, found)[0].text for found in results] == ["one", "two", "three"]
    assert WIRE.opening(request) == "rules\ngo"


def test_a_local_shell_that_is_answered_by_the_id_of_its_item() -> None:
    old = {"type": "local_shell_call_output", "id": "c1", "output": '{"output":"x"}'}
    request = request_of(old)
    assert request.items[0].results[0].call_id == "c1"


def test_notes_that_are_added_to_a_result() -> None:
    """As Codex 0.171 sends what a script tells with ``notify``: more outputs of one call, with a name."""
    request = request_of(
        {"type": "custom_tool_call", "call_id": "c1", "name": "exec", "input": 'notify("n"); text("t")'},
        output(
            "c1",
            [text("Script completed\nWall time 0.0 seconds\nOutput:\n"), text("t")],
            "custom_tool_call_output",
        ),
        output("c1", "n", "custom_tool_call_output", name="exec"),
    )
    assert [[result.call_id for result in item.results] for item in request.items[1:]] == [["c1"], ["c1"]]
    assert edited_item(request, 1, ["NEW", REMOVE])["output"] == [text("NEW")]
    assert edited_item(request, 2, ["NEW"]) == output("c1", "NEW", "custom_tool_call_output", name="exec")
    (note,) = request.items[2].results
    edited = splice(request.body, WIRE.edit_result_tool(request, note, "other"))
    assert json.loads(edited)["input"][2]["name"] == "other"
    assert WIRE.edit_result_tool(request, request.items[1].results[0], "other") == []


@pytest.mark.parametrize(
    ("value", "plan", "expected"),
    [
        ("old", ["NEW"], "NEW"),
        ([text("old")], ["NEW"], [text("NEW")]),
        ([text("a"), {"type": "input_image", "image_url": "data:"}], ["NEW", KEEP],
         [text("NEW"), {"type": "input_image", "image_url": "data:"}]),
        ([{"type": "input_image", "image_url": "data:"}], ["NEW"], [text("NEW")]),
        ([text("old")], [""], ""),
        ([], ["NEW"], [text("NEW")]),
        (None, ["NEW"], "NEW"),
    ],
)  # fmt: skip
def test_the_output_of_a_call(value: Any, plan: list[PartPlan], expected: Any) -> None:
    request = request_of(call("c1"), output("c1", value, status="completed"))
    assert edited_item(request, 1, plan, True) == output("c1", expected, status="completed")


def test_the_chunks_of_a_shell() -> None:
    chunk = {"stdout": "out", "stderr": "err", "outcome": {"type": "exit", "exit_code": 0}}
    request = request_of(
        {"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]}},
        output("c1", [chunk, chunk], "shell_call_output"),
    )
    assert request.items[0].calls[0].tool == "shell"
    quiet = chunk | {"stderr": ""}
    assert edited_item(request, 1, ["NEW", REMOVE])["output"] == [
        quiet | {"stdout": "NEW"},
        quiet | {"stdout": ""},
    ]
    assert edited_item(request, 1, [KEEP, KEEP]) == output("c1", [chunk, chunk], "shell_call_output")


@pytest.mark.parametrize(
    ("status", "flag", "is_error", "expected"),
    [
        ("completed", None, True, "failed"),
        ("failed", True, False, "completed"),
        ("failed", True, None, "failed"),
        ("completed", None, None, "completed"),
        ("completed", None, False, "completed"),
    ],
)
def test_a_patch_has_a_status(status: str, flag: bool | None, is_error: bool | None, expected: str) -> None:
    item = output("c1", "old", "apply_patch_call_output", status=status)
    operation = {"type": "delete_file", "path": "a"}
    request = request_of({"type": "apply_patch_call", "call_id": "c1", "operation": operation}, item)
    assert request.items[1].results[0].is_error == flag
    assert edited_item(request, 1, ["NEW"], is_error) == item | {"output": "NEW", "status": expected}
    (seen,) = request.items[0].calls
    edits = WIRE.edit_call(request, seen, "apply_patch", b'{"type":"x"}')
    assert json.loads(splice(request.body, edits))["input"][0]["operation"] == {"type": "x"}


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (call("c1"), call("c1", id="fc_1", status="completed"), True),
        (call("c1"), call("c2"), False),
        (call("c1"), call("c1", arguments='{"a":1}'), False),
        (call("c1"), call("c1", namespace="x"), False),
        (message("user", "x"), {"role": "user", "content": "x"}, True),
        (message("assistant", "x"), {"role": "assistant", "content": "x"}, True),
        (message("assistant", "x"), message("user", "x"), False),
        (
            message("user", "x"),
            message("user", "x") | {"internal_chat_message_metadata_passthrough": {}},
            True,
        ),
        (
            {"role": "assistant", "content": [{"type": "output_text", "text": "x", "annotations": []}]},
            message("assistant", "x"),
            True,
        ),
        (output("c1", "x"), output("c1", "x", id="fco_1"), True),
        (output("c1", "x"), output("c1", "y"), False),
        ({"type": "item_reference", "id": "a"}, {"type": "item_reference", "id": "b"}, False),
    ],
)
def test_essence(one: Any, other: Any, alike: bool) -> None:
    assert (WIRE.essence(dumps(one)) == WIRE.essence(dumps(other))) == alike


def test_halves_of_surrogate_pairs_in_a_string() -> None:
    body = b'{"model":"m","input":"a\\ud83d","tools":[]}'
    request = WIRE.parse_request(body, None)
    assert len(request.body) == len(body)
    (part,) = WIRE.texts(request, request.items[0])
    assert splice(body, [WIRE.edit_text(request, part, "b")]) == b'{"model":"m","input":"b","tools":[]}'
