"""Anthropic Messages: what an item is, and edits that touch only what they must."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.protocols.anthropic import AnthropicMessages
from proxy.protocols.text import without_lone_surrogates
from proxy.protocols.wire import KEEP, REMOVE, Edit, PartPlan, splice
from proxy.rewriting import own_output, plan_text
from scheduler.dialect import Dialect, parse_dialect
from tests.proxy.build import assistant, body, call, dumps, image, result, text, user

WIRE = AnthropicMessages()
MARK = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
REMINDER = "\n\n<system-reminder>\n12 tokens left\n</system-reminder>"
DIALECT = parse_dialect(
    {
        "name": "t",
        "title": "T",
        "appended": [
            {"open": "<system-reminder>", "pattern": r"<system-reminder>[\s\S]*</system-reminder>\s*"}
        ],
    },
    "t",
)
NO_APPENDIX = Dialect(name="n", title="N")

ANY_TEXT = st.text(st.one_of(st.characters(), st.sampled_from('"\\\n\t\u2028\ud83d\udc7e🙂')), max_size=20)


# -- essence --


def same(one: Any, other: Any) -> bool:
    return WIRE.essence(dumps(one)) == WIRE.essence(dumps(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (user("hi"), user(text("hi"))),
        (user("hi"), user(text("hi", **MARK))),
        (user(result("a", "x")), user(result("a", "x", **MARK))),
        (user(result("a", "x")), user(result("a", [text("x")]))),
        (user(result("a", "x")), user(result("a", [text("x", **MARK)]))),
        (user(result("a", [image(), text("x")])), user(result("a", [image() | MARK, text("x")], **MARK))),
        ({"role": "user", "content": "x"}, {"content": "x", "role": "user"}),
    ],
)
def test_what_changes_from_turn_to_turn_is_no_difference(one: Any, other: Any) -> None:
    assert same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (user("hi"), user("hi ")),
        (user("hi"), assistant("hi")),
        (user("ab"), user(text("a"), text("b"))),
        (user(text("a"), text("b")), user(text("b"), text("a"))),
        (user(result("a", "x")), user(result("b", "x"))),
        (user(result("a", "x")), user(result("a", "x", is_error=True))),
        (user(result("a", "x")), user(result("a", "x", is_error=False))),
        (user(result("a", "")), user(result("a", []))),
        (user(result("a", "x")), user(text("x"))),
        (assistant(call("a", "Read", p=1)), assistant(call("a", "Read", p=2))),
        (assistant(call("a", "Read")), assistant(call("a", "Write"))),
        (user(text("a", citations=[1])), user(text("a", citations=[2]))),
        (user(text("a", title="x")), user(text("a"))),
        (user("a"), user("a") | {"name": "somebody"}),
        (user(result("a", [image()])), user(result("a", [image() | {"source": {"data": "BBBB"}}]))),
        (user({"type": "document", "source": {"type": "text"}}), user({"type": "document"})),
        (assistant({"type": "text", "text": "x"}), assistant({"type": "thinking", "thinking": "x"})),
        (assistant({"type": "x", "id": "a", "name": "b"}), assistant({"type": "x", "id": "b", "name": "a"})),
    ],
)
def test_everything_else_is(one: Any, other: Any) -> None:
    assert not same(one, other)


# Items are cut out of what was parsed, where no half of a surrogate pair is left.
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=9)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON, JSON)
def test_any_two_unlike_contents_are_unlike(one: Any, other: Any) -> None:
    left, right = ({"role": "user", "content": [{"type": "x", "input": v}]} for v in (one, other))
    assert same(left, right) == (json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True))


# -- edits --


def spell(value: Any, draw: st.DrawFn, ascii_only: bool) -> str:
    """JSON text of ``value`` with blanks and key order as drawn."""
    blank = st.sampled_from(["", "", "", " ", "\n\t"])

    def one(item: Any) -> str:
        if isinstance(item, dict):
            keys = draw(st.permutations(list(item)))
            parts = [
                f"{draw(blank)}{json.dumps(k)}{draw(blank)}:{draw(blank)}{one(item[k])}{draw(blank)}"
                for k in keys
            ]
            return "{" + ",".join(parts) + "}"
        if isinstance(item, list):
            return "[" + ",".join(f"{draw(blank)}{one(i)}{draw(blank)}" for i in item) + draw(blank) + "]"
        return json.dumps(item, ensure_ascii=ascii_only) if isinstance(item, str) else json.dumps(item)

    return one(value)


TEXT_BLOCKS = st.builds(
    lambda value, more: text(value) | more, ANY_TEXT, st.sampled_from([{}, MARK, {"citations": [1.0]}])
)
CONTENTS = st.one_of(
    ANY_TEXT,
    st.lists(st.one_of(TEXT_BLOCKS, st.just(image()), st.just({"type": "tool_reference"})), max_size=4),
    st.sampled_from([None, 7, {"type": "text"}]),
    st.just("missing"),
)
FLAGS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {"is_error": True}, {"is_error": False}, {"is_error": None}]
)
EXTRAS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, MARK, {"unknown": {"content": "x", "is_error": 1}}, {'x"content': "y"}]
)


@st.composite
def faulty(draw: st.DrawFn) -> tuple[bytes, dict[str, Any]]:
    """A body with one tool_result of some shape, oddly spelled, and the block."""
    block = result("t1", draw(CONTENTS)) | draw(FLAGS) | draw(EXTRAS)
    if block["content"] == "missing":
        del block["content"]
    messages = [user("hi"), assistant(call("t1", "Read")), user(text("before"), block, text("behind"))]
    spelled = spell({"messages": messages, "tools": [{}]}, draw, draw(st.booleans()))
    return spelled.encode("utf-8", "surrogatepass"), block


def expected(block: dict[str, Any], plan: list[PartPlan], is_error: bool | None) -> dict[str, Any]:
    new = dict(block)
    content = block.get("content")
    if "content" not in block or isinstance(content, str):
        if isinstance(plan[0], str):
            new["content"] = plan[0]
    else:
        blocks = content if isinstance(content, list) else []
        out = []
        for i, entry in enumerate(plan):
            old = blocks[i] if i < len(blocks) else None
            if entry is KEEP:
                out.append(old)
            elif isinstance(entry, str) and entry:
                is_text = isinstance(old, dict) and old.get("type") == "text"
                out.append(old | {"text": entry} if is_text and old else text(entry))
        new["content"] = out
    if is_error is not None and bool(block.get("is_error") is True) != is_error:
        new["is_error"] = is_error
    return new


def loads(raw: bytes) -> Any:
    return json.loads(raw.decode("utf-8", "surrogatepass"))


def raw_fields(raw: bytes) -> dict[str, bytes]:
    plain = without_lone_surrogates(raw)
    return {k: bytes(v) for k, v in msgspec.json.decode(plain, type=dict[str, msgspec.Raw]).items()}


@settings(max_examples=200)
@given(faulty(), st.data(), st.sampled_from([None, True, False]))
def test_an_edit_says_what_was_planned_and_touches_nothing_else(
    drawn: tuple[bytes, dict[str, Any]], data: st.DataObject, is_error: bool | None
) -> None:
    raw, block = drawn
    request = WIRE.parse_request(raw, None)
    (seen,) = request.items[2].results
    parts = WIRE.result_parts(request, seen)
    entry: st.SearchStrategy[PartPlan] = ANY_TEXT
    if isinstance(block.get("content"), list):
        entry = st.one_of(ANY_TEXT, st.just(KEEP), st.just(REMOVE))
        plan = [data.draw(entry) for _ in parts] + ([data.draw(ANY_TEXT)] if not parts else [])
    else:
        plan = [data.draw(st.one_of(ANY_TEXT, st.just(KEEP)) if parts else ANY_TEXT)]
    edited = splice(raw, WIRE.edit_result(request, seen, parts, plan, is_error))

    whole = loads(raw)
    whole["messages"][2]["content"][1] = expected(block, plan, is_error)
    assert loads(edited) == whole
    start, end = request.base + seen.at.start, request.base + seen.at.end
    assert edited[:start] == raw[:start]
    assert edited[len(edited) - (len(raw) - end) :] == raw[end:]
    before, after = raw_fields(raw[start:end]), raw_fields(edited[start : len(edited) - (len(raw) - end)])
    for name in before.keys() - {"content", "is_error"}:
        assert after[name] == before[name]
    if all(entry is KEEP for entry in plan) and is_error is None:
        assert edited == raw


@settings(max_examples=150)
@given(
    faulty(),
    st.sampled_from(["", "payload", "a\nb\ud83d", "x" * 50]),
    st.booleans(),
    st.sampled_from([None, True]),
    st.booleans(),
)
def test_rewriting_twice_is_rewriting_once(
    drawn: tuple[bytes, dict[str, Any]],
    payload: str,
    keep_images: bool,
    is_error: bool | None,
    reminders: bool,
) -> None:
    dialect = DIALECT if reminders else NO_APPENDIX

    def once(raw: bytes) -> bytes:
        request = WIRE.parse_request(raw, None)
        (seen,) = request.items[2].results
        parts = WIRE.result_parts(request, seen)
        plan = plan_text(own_output(dialect, parts), parts, payload, keep_images=keep_images)
        return splice(raw, WIRE.edit_result(request, seen, parts, plan, is_error))

    first = once(drawn[0])
    assert once(first) == first


@pytest.mark.parametrize(
    ("content", "keep_images", "expected_content"),
    [
        ("old", False, "NEW"),
        ("old" + REMINDER, False, "NEW" + REMINDER),
        ("old" + REMINDER + REMINDER, False, "NEW" + REMINDER + REMINDER),
        ([text("old" + REMINDER, **MARK)], False, [text("NEW" + REMINDER, **MARK)]),
        ([text("old\n"), text(REMINDER.strip())], False, [text("NEW"), text(REMINDER.strip())]),
        ([text("a"), text("b" + REMINDER)], False, [text("NEW"), text(REMINDER)]),
        ([image()], False, [text("NEW")]),
        ([image()], True, [image(), text("NEW")]),
        ([image(), text("old")], False, [text("NEW")]),
        ([image(), text("old")], True, [image(), text("NEW")]),
        ([image(), text(REMINDER.strip())], False, [text("NEW"), text(REMINDER.strip())]),
        ([], False, [text("NEW")]),
        (None, False, [text("NEW")]),
        # A file that is empty is told of in a reminder: that is the result, nothing was appended to it.
        (REMINDER.strip(), False, "NEW" + REMINDER.strip()),
    ],
)
def test_the_payload_takes_the_place_of_the_tools_own_text(
    content: Any, keep_images: bool, expected_content: Any
) -> None:
    raw = body([assistant(call("t", "Read")), user(result("t", content))])
    request = WIRE.parse_request(raw, None)
    (seen,) = request.items[1].results
    parts = WIRE.result_parts(request, seen)
    plan = plan_text(own_output(DIALECT, parts), parts, "NEW", keep_images=keep_images)
    edited = loads(splice(raw, WIRE.edit_result(request, seen, parts, plan, None)))
    assert edited["messages"][1]["content"][0]["content"] == expected_content


def test_no_edit_gives_the_same_object() -> None:
    raw = body([user("x")])
    assert splice(raw, []) is raw


@given(st.binary(min_size=1, max_size=60), st.data())
def test_a_splice_touches_its_spans_alone(raw: bytes, data: st.DataObject) -> None:
    places = sorted(data.draw(st.lists(st.integers(0, len(raw)), min_size=2, max_size=8)))
    spans = list(zip(places[::2], places[1::2], strict=False))
    edits = [Edit(start, end, data.draw(st.binary(max_size=5))) for start, end in spans]
    expected_bytes, at = b"", 0
    for start, end, new in edits:
        expected_bytes += raw[at:start] + new
        at = end
    assert splice(raw, edits) == expected_bytes + raw[at:]
    if len({edit.start for edit in edits}) == len(edits):
        assert splice(raw, data.draw(st.permutations(edits))) == expected_bytes + raw[at:]


def test_overlapping_edits_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap"):
        splice(b"abcdef", [Edit(0, 3, b""), Edit(2, 4, b"")])


def test_the_right_one_of_two_equal_contents_is_edited() -> None:
    """A key that ends in the same letters, behind an escaped quote, has the same value."""
    block = dumps([result("t", "old")])
    raw = b'{"messages":[{"role":"user","content":' + block + b',"x\\"content":' + block + b"}]}"
    request = WIRE.parse_request(raw, None)
    (seen,) = request.items[0].results
    edits = WIRE.edit_result(request, seen, WIRE.result_parts(request, seen), ["new"], None)
    message = loads(splice(raw, edits))["messages"][0]
    assert message["content"][0]["content"] == "new"
    assert message['x"content'][0]["content"] == "old"


def test_a_type_that_is_spelled_with_escapes_is_still_a_result() -> None:
    raw = body([user(result("t", "x"))]).replace(b'"tool_result"', b'"\\u0074ool\\u005fresult"')
    assert [seen.call_id for seen in WIRE.parse_request(raw, None).items[0].results] == ["t"]


@pytest.mark.parametrize("half", ["\\ud83d", "\\uDC7E", "x\\ud83dx\\ud83d\\udc7e", "\\\\\\ud83d"])
def test_half_a_surrogate_pair_hides_nothing(half: str) -> None:
    """JavaScript sends one when it cuts a text in the middle of an emoji."""
    marked = body([user("HALF"), assistant(call("t", "Read")), user(result("t", "HALF"), text("END"))])
    raw = marked.replace(b"HALF", half.encode())
    request = WIRE.parse_request(raw, None)
    (seen,) = request.items[2].results
    edits = WIRE.edit_result(request, seen, WIRE.result_parts(request, seen), ["new"], None)
    before, _, behind = marked.rpartition(b"HALF")
    assert splice(raw, edits) == before.replace(b"HALF", half.encode()) + b"new" + behind
    longer = body([*json.loads(raw)["messages"], assistant("x")])
    assert WIRE.parse_request(longer, request).items[2].results[0].call_id == "t"


def test_calls_and_results_without_an_id() -> None:
    messages = [
        assistant({"type": "tool_use", "name": "Read", "input": {}}),
        user({"type": "tool_result", "content": "x"}),
    ]
    request = WIRE.parse_request(body(messages), None)
    assert [seen.call_id for seen in request.items[0].calls] == [""]
    assert [seen.call_id for seen in request.items[1].results] == [""]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/messages", "generate"),
        ("/anthropic/v1/messages", "generate"),
        ("/v1/messages/count_tokens", "count"),
        ("/v1/messages/batches", None),
        ("/v1/threads/abc/messages", None),
        ("/v1/chat/completions", None),
        ("/", None),
    ],
)
def test_which_paths_are_this_protocol(path: str, kind: str | None) -> None:
    assert WIRE.kind_of(path) == kind
