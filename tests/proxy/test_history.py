"""What a body is taken apart into never depends on the request that it is compared with."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.protocols.anthropic import AnthropicMessages
from proxy.protocols.wire import ParsedRequest, WireError
from tests.proxy.build import TOOLS, assistant, body, call, dumps, result, text, user

WIRE = AnthropicMessages()


def parse(body: bytes, previous: ParsedRequest | None = None) -> ParsedRequest | str:
    try:
        return WIRE.parse_request(body, previous)
    except WireError:
        return "refused"


def facts(request: ParsedRequest | str) -> object:
    if isinstance(request, str):
        return request
    items = [
        (
            item,
            request.slice(item.at),
            [request.slice(seen.at) for seen in item.calls],
            [request.slice(seen.at) for seen in item.results],
        )
        for item in request.items
    ]
    return (
        request.base,
        items,
        request.tools,
        request.system,
        request.model,
        request.stream,
        request.has_tools,
    )


def check(first: bytes, second: bytes) -> ParsedRequest | str:
    """The second body after the first, compared with the second alone."""
    previous = parse(first)
    alone = parse(second)
    if isinstance(previous, str):
        return alone
    after = parse(second, previous)
    assert facts(after) == facts(alone)
    if isinstance(after, ParsedRequest):
        for mine, old in zip(after.items[: after.shared], previous.items, strict=False):
            assert after.slice(mine.at) == previous.slice(old.at)
    return after


# -- documents as spelled by somebody with strange habits --

BLANKS = st.sampled_from([b"", b"", b"", b" ", b"\n\t", b"\r\n  "])
STRINGS = st.sampled_from(
    [
        '"x"',
        '""',
        '"\\u0041\\/"',
        '"\\ud83d"',
        '"grüße"',
        '"messages\\":[{"',
        '"]}"',
        '"tool_use"',
        '"\\u0074ool_result"',
        '"a\\\\"',
    ]
)
NUMBERS = st.sampled_from(["0", "-0.0", "1e400", "123456789012345678901234567890", "1.10", "true", "null"])
PLAIN = st.one_of(STRINGS, NUMBERS).map(str.encode)
KEYS = st.sampled_from(
    [b'"role"', b'"content"', b'"type"', b'"cache_control"', b'"x,\\"content"', b'"\\u0063ontent"', b'"id"']
)


def joined(parts: list[bytes], open_: bytes, close: bytes) -> st.SearchStrategy[bytes]:
    return st.lists(BLANKS, min_size=2 * len(parts) + 2, max_size=2 * len(parts) + 2).map(
        lambda blanks: (
            open_
            + b",".join(blanks[2 * i] + part + blanks[2 * i + 1] for i, part in enumerate(parts))
            + blanks[-1]
            + close
        )
    )


def arrays(items: st.SearchStrategy[bytes], most: int = 4) -> st.SearchStrategy[bytes]:
    return st.lists(items, max_size=most).flatmap(lambda parts: joined(parts, b"[", b"]"))


def objects(keys: st.SearchStrategy[bytes], values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    pair = st.tuples(keys, BLANKS, BLANKS, values).map(lambda p: p[0] + p[1] + b":" + p[2] + p[3])
    return st.lists(pair, max_size=4).flatmap(lambda parts: joined(parts, b"{", b"}"))


ODD = st.recursive(PLAIN, lambda inner: st.one_of(arrays(inner), objects(KEYS, inner)), max_leaves=6)
BLOCKS = st.one_of(
    st.sampled_from(
        [
            dumps(block)
            for block in (
                call("t1", "Read", file_path="a.txt"),
                result("t1", "1\tx"),
                result("t1", [text("a"), text("b")], is_error=True),
                text("hello"),
                {"type": "tool_result", "tool_use_id": "t2"},
                {"type": "tool_use", "name": "Read", "input": {}},
                {"type": "tool_result", "tool_use_id": 5, "content": []},
            )
        ]
    ),
    ODD,
)
MESSAGES = st.one_of(
    st.sampled_from(
        [
            dumps(user("hi")),
            dumps(assistant(call("t1", "Read"))),
            dumps(user(result("t1", "x"))),
            dumps({"role": "user", "content": "hi", "more": {"content": "hi"}}),
            b'{"content":[{"type":"text","text":"x"}],"x,\\"content":[{"type":"text","text":"x"}]}',
        ]
    ),
    st.tuples(st.sampled_from([b'"user"', b'"assistant"', b'"system"']), arrays(BLOCKS)).map(
        lambda pair: b'{"role":' + pair[0] + b',"content":' + pair[1] + b"}"
    ),
    ODD,
)
LONG_TOOLS = dumps(TOOLS)
FIELDS = st.one_of(
    arrays(MESSAGES, 6).map(lambda value: (b'"messages"', value)),
    arrays(MESSAGES, 6).map(lambda value: (b'"messages"', value)),
    st.sampled_from([LONG_TOOLS, b"[]", b"[ ]", b"null", b"0", LONG_TOOLS[:-1] + b',{"name":"z"}]']).map(
        lambda value: (b'"tools"', value)
    ),
    st.just((b'"x"', dumps("]," + '"tools":' + LONG_TOOLS.decode() + dumps(user("hi")).decode()))),
    ODD.map(lambda value: (b'"system"', value)),
    ODD.map(lambda value: (b'"messages"', value)),
    PLAIN.map(lambda value: (b'"model"', value)),
    PLAIN.map(lambda value: (b'"stream"', value)),
    PLAIN.map(lambda value: (b'"\\u006dessages"', value)),
)
BODIES = st.lists(FIELDS, min_size=1, max_size=6).flatmap(
    lambda fields: joined([key + b":" + value for key, value in fields], b"{", b"}")
)


@st.composite
def torn(draw: st.DrawFn, source: bytes) -> bytes:
    """``source`` with something put in, taken out or repeated."""
    out = source
    for _ in range(draw(st.integers(1, 3))):
        a = draw(st.integers(0, len(out)))
        b = draw(st.integers(a, min(len(out), a + 40)))
        new = draw(st.sampled_from([b"", b",", b"]", b"[", b"}", b'"', b" ", b"\\", out[a:b] * 2, b"\xff"]))
        out = out[:a] + new + out[b:]
    return out


PAIRS = st.one_of(
    st.tuples(BODIES, BODIES),
    BODIES.flatmap(lambda one: st.tuples(st.just(one), torn(one))),
)


@settings(max_examples=300)
@given(PAIRS)
def test_the_last_request_changes_nothing_but_the_work(pair: tuple[bytes, bytes]) -> None:
    check(*pair)


@settings(max_examples=150)
@given(st.data())
def test_a_conversation_that_grows_is_torn_and_mended(data: st.DataObject) -> None:
    messages: list[dict[str, Any]] = [user("hi")]
    for i in range(4):
        messages += [assistant(call(f"t{i}", "Read")), user(result(f"t{i}", "y" * 50 * i))]
    cut = data.draw(st.integers(1, len(messages)))
    old = body(messages[:cut], tools=data.draw(st.sampled_from([TOOLS, [], None])))
    new = data.draw(torn(body(messages)))
    check(old, new)
    check(new, body(messages))


def grown(old: str, new: str) -> tuple[bytes, bytes]:
    item = dumps(user("hello " * 30)).decode()
    return old.replace("ITEM", item).encode(), new.replace("ITEM", item).encode()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param('{"messages":[ITEM]}', '{"messages":[ITEM,]}', id="a comma and no item"),
        pytest.param('{"messages":[ITEM]}', '{"messages":[ITEM ITEM]}', id="two items and no comma"),
        pytest.param('{"messages":[ITEM]}', '{"messages":[ITEM,,ITEM]}', id="two commas"),
        pytest.param('{"messages":[ITEM]}', '{"messages":[ITEM', id="cut after the shared part"),
        pytest.param('{"messages":[ITEM]}', '{"messages":[ITEM]},', id="something behind"),
        pytest.param('{"messages":[ITEM]}', '{"messages":[ITEM],"messages":[]}', id="messages again, empty"),
        pytest.param('{"messages":[ITEM]}', '{"messages":[],"messages":[ITEM]}', id="messages again, full"),
        pytest.param(
            '{"messages":[ITEM]}', '{"messages":[ITEM],"\\u006dessages":[ITEM,ITEM]}', id="again, escaped"
        ),
        pytest.param('{"messages":[ITEM]}', '{"x":{"messages":[ITEM]},"messages":[ITEM,1]}', id="inside"),
        pytest.param('{"messages":[ITEM]}', '{"x":{"messages":[ITEM]},"messages":[]}', id="inside only"),
        pytest.param('{"messages":[ITEM]}', '{"messages":ITEM}', id="no list"),
        pytest.param('{"messages":[ITEM]}', '{"messages":[ITEM ,\n ITEM ] }', id="blanks"),
        pytest.param('{ "messages" : [ ITEM ] }', '{ "messages" : [ ITEM , ITEM ] }', id="blanks in both"),
        pytest.param('{"messages":[ITEM]}', '{"messages":[ITEM,{"role":"user"}]}', id="no content"),
        pytest.param('{"messages":[ITEM]}', "[" * 10_000 + "]" * 10_000, id="deep"),
        pytest.param(
            '{"messages":[ITEM]}', '{"messages":[ITEM,' + "[" * 10_000 + "]" * 10_000 + "]}", id="deep item"
        ),
        pytest.param(
            '{"messages":[ITEM]}',
            '{"messages":[ITEM,{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":'
            + "[" * 10_000 + "]" * 10_000 + "}]}]}",
            id="deep result",
        ),
    ],
)  # fmt: skip
def test_what_only_looks_like_the_next_turn(old: str, new: str) -> None:
    check(*grown(old, new))


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("tools", [TOOLS, [], [TOOLS[0]]])
def test_the_next_turn_shares_all_that_was_there(tools: list[Any], before: bool) -> None:
    messages = [user("hi " * 50), assistant(call("t", "Read")), user(result("t", "x"))]
    first, second = (
        dumps({"tools": tools, "messages": m} if before else {"messages": m, "tools": tools})
        for m in (messages[:1], messages)
    )
    found = check(first, second)
    assert isinstance(found, ParsedRequest)
    assert found.shared == 1
    assert found.has_tools == bool(tools)


def test_tools_of_the_last_request_inside_a_string() -> None:
    inside = dumps('"tools":' + LONG_TOOLS.decode())
    old = b'{"messages":[' + dumps(user("a" * 200)) + b'],"tools":' + LONG_TOOLS + b"}"
    new = b'{"x":' + inside + b',"messages":[' + dumps(user("a" * 200)) + b"]}"
    found = check(old, new)
    assert isinstance(found, ParsedRequest)
    assert not found.has_tools


def test_tools_that_close_around_the_shared_part() -> None:
    """The list of tools is the old one once the shared items are cut out of it."""
    item = dumps(user("a" * 300))
    head = b'[{"pad":"' + b"p" * 1200 + b'","messages":['
    old = b'{"messages":[' + item + b'],"tools":' + head + b"]}]}"
    new = b'{"messages":[],"tools":' + head + item + b"]}]}"
    check(old, new)


@given(st.sampled_from(["null", "[]", "[ ]", "{}", '""', "[\n\n]", "0"]))
def test_no_tools_is_no_tools_however_it_is_spelled(tools: str) -> None:
    found = parse(b'{"messages":[],"tools":' + tools.encode() + b"}")
    assert isinstance(found, ParsedRequest)
    assert not found.has_tools


@example(b'{"messages":[{"role":"user","content":["x"]}]}')
@example(b'{"messages":[{"role":"user","content":[{"type":"text"}]}]}')
@example(b'{"messages":[{"role":"assistant","content":[{"type":"tool_use"}]}]}')
@example(b'{"messages":[{"role":"assistant","content":[1,{"type":"tool_use","id":null,"name":7}]}]}')
@settings(max_examples=150)
@given(BODIES)
def test_everything_that_can_be_asked_of_a_request_answers(raw: bytes) -> None:
    """Or refuses with an error that says why: never with another exception."""
    request = parse(raw)
    if isinstance(request, str):
        return
    asks: list[partial[Any]] = [partial(WIRE.opening, request)]
    for item in request.items:
        asks.append(partial(WIRE.essence, request.slice(item.at)))
        asks.append(partial(WIRE.texts, request, item))
        asks += [partial(WIRE.call_arguments, request, seen) for seen in item.calls]
        asks += [partial(WIRE.result_parts, request, seen) for seen in item.results]
    for ask in asks:
        with contextlib.suppress(WireError):
            ask()


@pytest.mark.parametrize("element", [b"3", b"null", b"[]", b"true", b"-1"])
def test_a_history_of_something_else_is_not_taken_apart(
    element: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body can be large, and its elements many: the first one tells that it is no history."""
    monkeypatch.setattr("proxy.protocols.history._lists", None)
    raw = b'{"messages": [ ' + b",".join([element] * 3) + b'],"tools":[{}]}'
    with pytest.raises(WireError, match="neither an object nor a text"):
        AnthropicMessages().parse_request(raw, None)
