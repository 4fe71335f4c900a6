"""wrong_data: other data of the same shape."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.alter import MAX_CHANGES, alter
from scheduler.uniform import PayloadStream

SEEDS = range(30)


def altered(body: str, seed: int = 7) -> str:
    return alter(body, PayloadStream(("content", "default", "main", "Read", "d", "0"), seed))


def changed_lines(body: str, seed: int) -> list[tuple[str, str]]:
    pairs = zip(body.split("\n"), altered(body, seed).split("\n"), strict=True)
    return [(before, after) for before, after in pairs if before != after]


_texts = st.text(
    st.sampled_from("abcdeXYZ_019 .,:;=<>!()[]{}\"'\\/|-+*#@\t\r\n" + "éßñЖ中あ٣²😀\u2028\x85"), max_size=120
)


@given(_texts, st.integers(0, 2**64 - 1))
def test_the_line_count_stays_and_something_changes(body: str, seed: int) -> None:
    got = altered(body, seed)
    assert got.count("\n") == body.count("\n")
    if any(char.isalnum() for char in body):
        assert got != body
    else:
        assert got == body
    got.encode("utf-8")


@given(_texts, st.integers(0, 2**32))
def test_the_same_seed_alters_alike(body: str, seed: int) -> None:
    assert altered(body, seed) == altered(body, seed)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), st.integers(0, 2**32))
def test_any_unicode(body: str, seed: int) -> None:
    got = altered(body, seed)
    assert got.count("\n") == body.count("\n")
    assert (got != body) is any(char.isalnum() for char in body)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


@given(_json, st.sampled_from([None, 1, 2, "\t"]), st.booleans(), st.integers(0, 2**32))
def test_json_stays_json(value: Any, indent: Any, ascii_only: bool, seed: int) -> None:
    body = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    json.loads(altered(body, seed))


PYTHON = '''"""Retries with a growing pause."""

import time

MAX_RETRIES = 3
BASE_DELAY = 0.5
VERBOSE = True


def backoff(attempt, base=BASE_DELAY):
    """The pause before an attempt, in seconds."""
    if attempt <= 0:
        return 0
    return min(base * 2 ** attempt, 30.0)


def retry(call, attempts=MAX_RETRIES):
    last_error = None
    for attempt in range(attempts):
        try:
            return call()
        except OSError as error:
            last_error = error
            time.sleep(backoff(attempt))
    raise last_error
'''


@pytest.mark.parametrize("seed", SEEDS)
def test_code_stays_code(seed: int) -> None:
    got = altered(PYTHON, seed)
    assert got != PYTHON
    # A statement can land where its names mean nothing, but what is left still parses.
    ast.parse(got)
    assert 1 <= len(changed_lines(PYTHON, seed)) <= 2 * MAX_CHANGES


PYTEST = """\
============================= test session starts ==============================
platform linux -- Python 3.13.1, pytest-8.3.4, pluggy-1.5.0
rootdir: /tmp/ws
collected 5 items

tests/test_average.py ...F.                                              [100%]

=================================== FAILURES ===================================
_________________________________ test_average _________________________________

    def test_average():
>       assert average([1, 2, 3]) == 2
E       assert 3.0 == 2

tests/test_average.py:12: AssertionError
=========================== short test summary info ============================
FAILED tests/test_average.py::test_average - assert 3.0 == 2
========================= 1 failed, 4 passed in 0.03s ==========================
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_test_report_keeps_its_rules_and_its_sum_line(seed: int) -> None:
    got = altered(PYTEST, seed)
    assert re.search(r"^=+ \d+ failed, \d+ passed in \d\.\d\ds =+$", got, re.MULTILINE)
    assert [len(line) for line in got.split("\n") if line.startswith("===")].count(80) >= 3
    assert "!=====" not in got


LISTING = """\
total 48
drwxr-xr-x  5 ada ada  4096 Nov 29 21:16 .
drwxr-xr-x 12 ada ada  4096 Nov 28 09:03 ..
-rw-r--r--  1 ada ada  1082 Nov 29 21:11 LICENSE
-rw-r--r--  1 ada ada 14116 Nov 29 21:45 alter.py
-rw-r--r--  1 ada ada   568 Dec  1 08:00 nearest.py
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_listing_stays_a_listing(seed: int) -> None:
    entry = re.compile(r"[-d][-rwx]{9} +\d+ \w+ \w+ +\d+ (?:Nov|Dec) +(\d+) ([01]\d|2[0-3]):[0-5]\d [\w.]+")
    lines = altered(LISTING, seed).split("\n")
    entries = [line for line in lines if line and not re.fullmatch(r"\w+ \d+", line)]
    assert len(entries) == 5
    for line in entries:
        found = entry.fullmatch(line)
        assert found is not None, line
        assert 1 <= int(found[1]) <= 29


GREP = """\
src/app/models.py:12:class Account(Base):
src/app/models.py:40:    def balance(self) -> int:
src/app/views.py:7:from app.models import Account
tests/test_models.py:3:from app.models import Account, Transfer
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_matches_stay_matches(seed: int) -> None:
    for line in altered(GREP, seed).splitlines():
        assert re.match(r"\w+(?:/\w+)+\.py:\d+:", line), line


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ("2024-05-03", r"(?:19|20)\d\d-(?:0[1-9]|1[0-2])-[0-3]\d"),
        ("12:34:56", r"[0-5]\d:[0-5]\d:[0-5]\d"),
        ("v1.2.3", r"v\d+\.\d+\.\d+"),
        ("127.0.0.1", r"\d+\.\d+\.\d+\.\d+"),
        ("port = 8080", r"port = \d{4}"),
        ("timeout: 30s", r"timeout: \d\ds"),
        ("0.05", r"0\.\d\d"),
        ("007", r"0\d\d"),
        ("100", r"\d{3}"),
        ("999", r"\d{3}"),
        ("-5", r"-\d"),
        ("95%", r"\d\d%"),
        ("debug: true", r"debug: false"),
        ("if a == b:", r"if a != b:|if as == b:|.*"),
        ("C:\\new\\table", r"[A-Za-z]s?:\\new\\table|C:\\.*"),
    ],
)
@pytest.mark.parametrize("seed", range(8))
def test_a_value_stays_a_value_of_its_kind(body: str, shape: str, seed: int) -> None:
    got = altered(body, seed)
    assert got != body
    assert re.fullmatch(shape, got), got


def test_passed_and_failed_are_not_confused_when_both_are_counted() -> None:
    for seed in SEEDS:
        assert re.fullmatch(r"\d passed, \d failed", altered("3 passed, 1 failed", seed))


def test_words_of_a_sentence_are_no_flags() -> None:
    for seed in SEEDS:
        assert not re.search(r"\b(?:off|no) the way\b", altered("they are on the way and up again", seed))


def test_an_escape_is_left_alone() -> None:
    body = json.dumps({"text": "a\nreturn\ttable\u00e9\u2028"})
    for seed in SEEDS:
        json.loads(altered(body, seed))


def test_names_come_from_the_text_itself() -> None:
    before = set(re.findall(r"\w+", PYTHON))
    for seed in SEEDS:
        for _, after in changed_lines(PYTHON, seed):
            new = {word for word in re.findall(r"[A-Za-z_]\w*", after) if word not in before}
            assert new <= {"False", "max", "or", "first_error"} or all(
                word.endswith("s") or word[:-1] in before or word + "s" in before for word in new
            ), after


@pytest.mark.parametrize(
    "body",
    [
        "row of data 12345\n" * 300_000,
        "x" * 5_000_000,
        "1" * 5_000_000,
        "1." * 2_500_000,
        "word " * 1_000_000,
        '{"a": [' + ", ".join(["1"] * 1_500_000) + "]}",
        "\\" * 5_000_000 + "a",
        " " * 5_000_000 + "a",
    ],
    ids=["rows", "letters", "digits", "dotted", "words", "json", "backslashes", "blanks"],
)
def test_five_megabytes(body: str) -> None:
    got = altered(body)
    assert got != body
    assert got.count("\n") == body.count("\n")
