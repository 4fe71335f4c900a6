"""Server-sent events: the same events however the bytes are cut, and every byte accounted for."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from proxy.protocols.sse import SseReader

LINES = st.sampled_from(
    [
        b"data: a",
        b"data:b",
        b"data",
        b"data:",
        b"data:  two blanks",
        "data: grüße 🙂".encode(),
        b": a comment",
        b":",
        b"event: ping",
        b"id: 7",
        b"retry: 10",
        b"unknown",
        b"data : no field",
        b" data: no field",
        b"",
        b"",
        b"",
        "\ufeffdata: only the stream may start with a mark".encode(),
        b'data: {"type":"content_block_delta","delta":{"text":"\xc3\xa9"}}',
        b"\xff\xfe",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
STREAMS = st.builds(
    lambda mark, lines, rest: mark + b"".join(line + end for line, end in lines) + rest,
    st.sampled_from([b"", "\ufeff".encode()]),
    st.lists(st.tuples(LINES, ENDS), max_size=24),
    st.sampled_from([b"", b"data: torn", b"\r", b"data: x\r"]),
)
CUTS = st.lists(st.integers(0, 2000), max_size=30)


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[a:b] for a, b in pairwise(places)]


def read(chunks: list[bytes]) -> tuple[list[bytes], bytes]:
    """The data of the events that have any, and all raw bytes."""
    reader = SseReader()
    events = [event for chunk in chunks for event in reader.feed(chunk)] + reader.close()
    return [event.data for event in events if event.data], b"".join(event.raw for event in events)


def expected(stream: bytes) -> list[bytes]:
    """The event stream interpretation of the HTML standard, line by line."""
    stream = stream.removeprefix("\ufeff".encode())
    lines, at = [], 0
    while at < len(stream):
        ends = [i for i in (stream.find(b"\n", at), stream.find(b"\r", at)) if i >= 0]
        if not ends:
            break  # a line without its end is discarded
        end = min(ends)
        lines.append(stream[at:end])
        at = end + (2 if stream[end : end + 2] == b"\r\n" else 1)
    events, data = [], b""
    for line in lines:
        if not line:
            if data:
                events.append(data.removesuffix(b"\n"))
            data = b""
        elif not line.startswith(b":"):
            name, _, value = line.partition(b":")
            if name == b"data":
                data += value.removeprefix(b" ") + b"\n"
    return [event for event in events if event]


@given(STREAMS, CUTS)
@example(b"data: a\r\n\r\ndata: b\r\n\r\n", [1, 8, 9, 10])
@example(b"data: a\r\r\ndata: b\n\n", [9])
@example("\ufeffdata: a\n\n\ufeffdata: b\n\n".encode(), [])
def test_any_cut_gives_the_events_of_the_standard(stream: bytes, cuts: list[int]) -> None:
    data, raw = read(pieces(stream, cuts))
    assert data == expected(stream)
    assert raw == stream


@given(STREAMS)
def test_byte_by_byte_is_the_same_as_all_at_once(stream: bytes) -> None:
    assert read([stream[i : i + 1] for i in range(len(stream))]) == read([stream])


@given(st.binary(max_size=200), CUTS)
def test_any_bytes_come_out_as_they_went_in(stream: bytes, cuts: list[int]) -> None:
    data, raw = read(pieces(stream, cuts))
    assert raw == stream
    assert data == expected(stream)


def test_an_event_is_given_as_soon_as_it_is_whole() -> None:
    reader = SseReader()
    assert reader.feed(b"data: a\n") == []
    assert [event.data for event in reader.feed(b"\n")] == [b"a"]
    assert [event.data for event in reader.feed(b"data: b\r\n\r\n")] == [b"b"]
    assert reader.rest == b""


def test_a_long_event_in_small_pieces_is_read_once() -> None:
    text = b"x" * 300_000
    data, raw = read(pieces(b"data: " + text + b"\n\n", list(range(0, 300_000, 997))))
    assert data == [text]
    assert len(raw) == len(text) + 8
