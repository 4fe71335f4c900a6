"""Content codings: a body that is changed goes on in the coding that it came in, down to its form."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.encoding import CodingError, coding_of, decode, encode, stream_decoder, zstd


def _without_header(body: bytes) -> bytes:
    return zlib.compress(body, wbits=-zlib.MAX_WBITS)


def _inflated(body: bytes) -> bytes:
    return zlib.decompress(body, wbits=-zlib.MAX_WBITS)


# Name in the header, how a client puts it on, how a strict server takes it off.
FORMS: list[tuple[str, Callable[[bytes], bytes], Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress, gzip.decompress),
    ("x-gzip", gzip.compress, gzip.decompress),
    ("GZip", gzip.compress, gzip.decompress),
    ("deflate", zlib.compress, zlib.decompress),
    ("deflate", _without_header, _inflated),
    ("br", brotli.compress, brotli.decompress),
    ("zstd", zstd.compress, zstd.decompress),
    ("identity", bytes, bytes),
]


@given(st.lists(st.sampled_from(FORMS), max_size=3), st.binary(max_size=60), st.binary(max_size=60))
def test_a_body_leaves_in_the_coding_and_form_that_it_came_in(
    forms: list[tuple[str, Callable[[bytes], bytes], Callable[[bytes], bytes]]], came: bytes, edited: bytes
) -> None:
    header = ", ".join(name for name, _, _ in forms)
    coded = came
    for _, put_on, _ in forms:
        coded = put_on(coded)
    coding = coding_of(header)
    assert decode(coded, coding) == came
    left = encode(edited, coding, coded)
    for _, _, take_off in reversed(forms):
        left = take_off(left)
    assert left == edited


@pytest.mark.parametrize("header", ["made-up", "gzip, made-up", "made-up, gzip"])
def test_an_unknown_coding_is_named(header: str) -> None:
    with pytest.raises(CodingError, match=r"unknown content-encoding .made-up.|the body is not gzip"):
        decode(b"{}", coding_of(header))


@pytest.mark.parametrize("put_on", [zlib.compress, _without_header])
def test_a_stream_may_begin_with_nothing(put_on: Callable[[bytes], bytes]) -> None:
    read = stream_decoder("deflate")
    coded = put_on(b"data: 1\n\n")
    assert read(b"") + read(coded[:1]) + read(coded[1:]) == b"data: 1\n\n"
