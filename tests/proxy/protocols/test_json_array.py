"""A JSON array that is streamed: the same elements, whatever the chunks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.protocols.json_array import ArrayReader
from tests.proxy.test_history import BLANKS, KEYS, ODD, arrays, joined, objects

OBJECTS = st.one_of(objects(KEYS, ODD), arrays(ODD))


@settings(max_examples=200)
@given(
    parts=st.lists(OBJECTS, max_size=4),
    cuts=st.lists(st.integers(0, 10**6), max_size=10),
    data=st.data(),
    is_array=st.booleans(),
)
def test_the_elements_do_not_depend_on_the_chunks(
    parts: list[bytes], cuts: list[int], data: st.DataObject, is_array: bool
) -> None:
    if is_array:
        whole = data.draw(BLANKS) + data.draw(joined(parts, b"[", b"]")) + data.draw(BLANKS)
    else:
        parts = [data.draw(objects(KEYS, ODD))]
        whole = data.draw(BLANKS) + parts[0] + data.draw(BLANKS)
    reader = ArrayReader()
    places = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    found = [element for a, b in pairwise(places) for element in reader.feed(whole[a:b])]
    assert [element.data for element in found] == parts
    assert b"".join(element.raw for element in found) + reader.rest == whole
    assert all(element.raw.endswith(element.data) for element in found)


def test_elements_come_as_soon_as_they_are_whole() -> None:
    reader = ArrayReader()
    assert reader.feed(b'[{"a":"}\\"]"') == []
    assert [element.data for element in reader.feed(b'}, {"b')] == [b'{"a":"}\\"]"}']
    assert [element.raw for element in reader.feed(b'":1}\n]')] == [b', {"b":1}']
    assert reader.rest == b"\n]"
    assert reader.is_array


@pytest.mark.parametrize("odd", [b"", b"]", b"}}}", b"nothing", b"[1,2", b'["a'])
def test_what_is_no_list_of_objects_is_kept(odd: bytes) -> None:
    reader = ArrayReader()
    assert b"".join(element.raw for element in reader.feed(odd)) + reader.rest == odd
