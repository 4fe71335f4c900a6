"""The one source of chance: numbers that depend on a label, a key and a seed, and on nothing else."""

from __future__ import annotations

import hashlib

from scheduler.call import Key

SEED_LIMIT = 1 << 64


def u(label: bytes, key: Key, seed: int) -> float:
    """A number in [0, 1) that depends on ``label`` (at most 16 ASCII bytes), ``key`` and ``seed`` alone.

    Keyed BLAKE2b (RFC 7693) over the length-prefixed UTF-8 parts of the key, the label as its
    personalisation; the top 53 bits of the first 8 bytes become a double.

    Raises ``ValueError`` when ``seed`` is not in [0, 2**64).
    """
    if not 0 <= seed < SEED_LIMIT:
        raise ValueError(f"a seed is a whole number from 0 to 2^64 - 1, not {seed}")
    message = bytearray()
    for text in key:
        part = text.encode("utf-8", "surrogatepass")
        message += len(part).to_bytes(4, "big")
        message += part
    digest = hashlib.blake2b(message, key=seed.to_bytes(8, "big"), person=label, digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53


class PayloadStream:
    """The numbers that shape one payload: ``next()`` gives u("payload", key + (i,)) for i = 0, 1, …"""

    __slots__ = ("_i", "_key", "_seed")

    def __init__(self, key: Key, seed: int) -> None:
        self._key = key
        self._seed = seed
        self._i = 0

    def next(self) -> float:
        """The next number in [0, 1)."""
        value = u(b"payload", (*self._key, str(self._i)), self._seed)
        self._i += 1
        return value

    def below(self, n: int) -> int:
        """A whole number in [0, n)."""
        return min(int(self.next() * n), n - 1)
