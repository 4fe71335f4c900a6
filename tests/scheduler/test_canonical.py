"""Canonical arguments: RFC 8785 by its own examples, directories made abstract, fields dropped."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from scheduler.call import Places, call_digest, canonical_arguments


def canonical(arguments: str, **more: Any) -> str:
    return canonical_arguments(arguments.encode("utf-8"), **more).decode("utf-8")


def test_rfc_8785_section_3_2_2() -> None:
    given_text = r"""{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }"""
    assert canonical(given_text) == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        r'"string":"€$\u000f\nA' + "'" + r'B\"\\\\\"/"}'
    )


def test_rfc_8785_section_3_2_3_sorts_by_utf_16() -> None:
    given_text = r"""{"\u20ac": "Euro Sign", "\r": "Carriage Return",
      "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One",
      "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control",
      "\u00f6": "Latin Small Letter O With Diaeresis"}"""
    assert list(json.loads(canonical(given_text)).values()) == [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ]


@pytest.mark.parametrize(
    ("bits", "printed"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555554", "333333333.33333325"),
        ("41b3de4355555555", "333333333.3333333"),
        ("41b3de4355555556", "333333333.3333334"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_rfc_8785_appendix_b(bits: str, printed: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical(f"[{number!r}]") == f"[{printed}]"


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(_json.filter(lambda value: isinstance(value, dict)))
def test_spacing_key_order_and_escapes_do_not_matter(value: Any) -> None:
    plain = canonical(json.dumps(value, ensure_ascii=False))
    backwards = dict(reversed(list(value.items())))
    assert canonical(json.dumps(backwards, indent=3, ensure_ascii=True)) == plain
    assert canonical(plain) == plain


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ('{"a":1}', '{ "a" : 1.0 }'),
        ('{"a":10000}', '{"a":1e4}'),
        ('{"a":"\\u00e5/"}', '{"a":"å\\/"}'),
        ('{"b":1,"a":{"d":1,"c":2}}', '{"a":{"c":2,"d":1},"b":1}'),
    ],
)
def test_what_a_harness_spells_otherwise_is_the_same(one: str, two: str) -> None:
    assert canonical(one) == canonical(two)


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "",
        '{"path":"a.txt"',
        '{"a":1,"a":2}',
        '{"a":{"b":1,"b":2}}',
        '{"n":9007199254740993}',
        '{"n":1e400}',
        '{"n":NaN}',
        r'{"a":"\ud800"}',
        "[" * 150 + "]" * 150,
        "[" * 100_000,
    ],
)
def test_what_is_no_canonical_json_enters_as_its_text(text: str) -> None:
    assert canonical(text) == json.dumps(text)


def test_bytes_that_are_no_utf_8_stay_apart() -> None:
    broken = [b'{"a":"\xff"}', b'{"a":"\xfe"}', b'{"a":"\xed\xa0\x80"}', b"\xff\xfe{\x00}\x00"]
    found = {canonical_arguments(arguments) for arguments in broken}
    assert len(found) == len(broken)
    assert all(one.isascii() and one.startswith(b'"') for one in found)


def test_nesting_up_to_the_limit_is_json() -> None:
    deep = "[" * 90 + "1.0" + "]" * 90
    assert canonical(deep) == deep.replace("1.0", "1")


PLACES = Places("/tmp/run/ws", ("/tmp", "/var/tmp"), "/home/ada")


@pytest.mark.parametrize(
    ("text", "abstract"),
    [
        ("/tmp/run/ws/a.py", "{ws}/a.py"),
        ("/tmp/run/ws", "{ws}"),
        ("/tmp/run/ws2/a.py", "{tmp}/run/ws2/a.py"),
        ("/tmp/run/ws.bak", "{tmp}/run/ws.bak"),
        ("cd /tmp/run/ws && ls /home/ada/.cache /var/tmp/x", "cd {ws} && ls {home}/.cache {tmp}/x"),
        ('grep -r "x" /tmp/run/ws.', 'grep -r "x" {ws}.'),
        ("--root=/tmp/run/ws", "--root={ws}"),
        ("file:///tmp/run/ws/a", "file://{ws}/a"),
        ("/opt/tmp/x /home/adam /srv/home/ada", "/opt/tmp/x /home/adam /srv/home/ada"),
        ("nothing here", "nothing here"),
    ],
)
def test_the_machines_own_directories_become_names(text: str, abstract: str) -> None:
    assert PLACES.abstract(text) == abstract
    nested = json.dumps({"edits": [{"path": text}, [text]], text: 1})
    assert canonical(nested, places=PLACES) == canonical(
        json.dumps({"edits": [{"path": abstract}, [abstract]], abstract: 1})
    )


def test_directories_in_what_is_no_json_become_names_too() -> None:
    assert canonical("*** Update File: /tmp/run/ws/a.py", places=PLACES) == '"*** Update File: {ws}/a.py"'


def test_keys_that_become_one_enter_as_text() -> None:
    both = '{"/tmp/a":1,"/var/tmp/a":2}'
    assert canonical(both, places=PLACES) == json.dumps(PLACES.abstract(both))


def test_no_places_change_nothing() -> None:
    assert Places().abstract("/tmp/x") == "/tmp/x"
    assert Places(workspace="/").abstract("/a/b") == "/a/b"


def test_volatile_fields_and_added_defaults_do_not_identify_a_call() -> None:
    plain = canonical('{"command":"ls"}')
    drop: dict[str, Any] = {"volatile": frozenset({"timeout", "description"}), "defaults": {"all": False}}
    assert canonical('{"command":"ls","timeout":5000,"description":"List"}', **drop) == plain
    assert canonical('{"all":false,"command":"ls"}', **drop) == plain
    assert canonical('{"all":true,"command":"ls"}', **drop) != plain
    assert canonical('{"all":0,"command":"ls"}', **drop) != plain
    assert (
        canonical('{"command":"ls","deep":{"timeout":1}}', **drop) == '{"command":"ls","deep":{"timeout":1}}'
    )


def test_a_default_number_is_the_same_however_it_is_spelled() -> None:
    assert canonical('{"limit":1.0}', defaults={"limit": 1}) == "{}"


def test_the_digest_is_sha_256() -> None:
    assert call_digest(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.text(), st.integers(-(2**53) + 1, 2**53 - 1)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)),
    max_leaves=12,
)


@given(VALUES)
def test_the_same_as_a_serialiser_made_for_it(value: Any) -> None:
    assert canonical_arguments(json.dumps(value).encode()) == rfc8785.dumps(value)
