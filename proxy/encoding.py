"""Content codings of bodies: decode to read, encode again the same way. Pure functions of bytes."""

from __future__ import annotations

import sys
import zlib
from typing import Protocol

import brotli
from mitmproxy.net import encoding as _codings

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CODINGS = frozenset({"gzip", "deflate", "br", "zstd"})


class CodingError(ValueError):
    """A body that is not in the coding that its header names."""


def coding_of(header: str | None) -> str | None:
    """The coding that a Content-Encoding header names, or None for a plain body.

    Several stand in the order in which they were put on, ``x-gzip`` is ``gzip``:
    https://www.rfc-editor.org/rfc/rfc9110#section-8.4
    """
    names = [name.strip() for name in (header or "").lower().split(",")]
    known = ["gzip" if name == "x-gzip" else name for name in names if name not in {"", "identity"}]
    return ", ".join(known) or None


def decode(body: bytes, coding: str | None) -> bytes:
    """The plain body; raises ``CodingError`` for an unknown coding or a broken body."""
    for name in reversed(_layers(coding)):
        body = _decode(body, name)
    return body


def encode(body: bytes, coding: str | None, like: bytes) -> bytes:
    """``body`` in ``coding``, as ``like`` is: deflate can be with the header of zlib, or without."""
    came: list[tuple[str, bytes]] = []
    for name in reversed(_layers(coding)):
        came.append((name, like))
        like = _decode(like, name)
    for name, form in reversed(came):
        body = _encode(body, name, form)
    return body


def _layers(coding: str | None) -> list[str]:
    return [] if coding is None else coding.split(", ")


def _decode(body: bytes, coding: str) -> bytes:
    if coding not in CODINGS:
        raise CodingError(f"unknown content-encoding {coding!r}")
    try:
        plain = _codings.decode(body, coding)
    except ValueError as error:
        raise CodingError(f"the body is not {coding}: {error}") from None
    if not isinstance(plain, bytes):
        raise CodingError(f"the body is not {coding}")
    return plain


def _encode(body: bytes, coding: str, like: bytes) -> bytes:
    if coding == "deflate" and not _has_zlib_header(like):
        return zlib.compress(body, wbits=-zlib.MAX_WBITS)
    coded = _codings.encode(body, coding)
    if not isinstance(coded, bytes):
        raise CodingError(f"cannot encode a body as {coding}")
    return coded


def _has_zlib_header(body: bytes) -> bool:
    """https://www.rfc-editor.org/rfc/rfc1950#section-2.2"""
    return len(body) > 1 and body[0] & 0x0F == 8 and int.from_bytes(body[:2]) % 31 == 0


class StreamDecoder(Protocol):
    """Decodes a body that comes in pieces."""

    def __call__(self, chunk: bytes, /) -> bytes: ...


def _plain(chunk: bytes, /) -> bytes:
    return chunk


class _Deflate:
    """With the header of zlib, as the standard says, or without, as some servers send it."""

    def __init__(self) -> None:
        self._decoder: StreamDecoder | None = None

    def __call__(self, chunk: bytes, /) -> bytes:
        if self._decoder is None:
            if not chunk:
                return chunk
            has_header = chunk[0] & 0x0F == 8
            self._decoder = zlib.decompressobj(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS).decompress
        return self._decoder(chunk)


def stream_decoder(coding: str | None) -> StreamDecoder:
    """A decoder for a response that comes compressed although nobody asked; raises ``CodingError``."""
    match coding:
        case None:
            return _plain
        case "gzip":
            return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress
        case "deflate":
            return _Deflate()
        case "zstd":
            decompress: StreamDecoder = zstd.ZstdDecompressor().decompress
            return decompress
        case "br":
            process: StreamDecoder = brotli.Decompressor().process
            return process
        case _:
            raise CodingError(f"a response in content-encoding {coding!r} cannot be read while it streams")
