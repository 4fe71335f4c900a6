"""The nearest valid word, for errors that help."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(what: str, word: str, valid: Iterable[str]) -> str:
    """``unknown kind 'emty': did you mean 'empty'?``, or the list of valid words when none is near."""
    words = sorted(valid)
    near = get_close_matches(word, words, n=1, cutoff=0.5)
    if near:
        return f"unknown {what} {word!r}: did you mean {near[0]!r}?"
    return f"unknown {what} {word!r}: valid are {', '.join(words)}"
