"""Lines to the terminal: results to standard output, what is going on to standard error."""

from __future__ import annotations

import sys


def write(text: str) -> None:
    """Writes ``text`` and a line end to standard output."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()


def tell(line: str) -> None:
    """One line about what is going on, to standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class Progress:
    """Progress of long work: one line that is rewritten in a terminal, one line a step when piped."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()

    def step(self, done: int, of: int, what: str) -> None:
        if self._live:
            sys.stderr.write(f"\r\033[K[{done}/{of}] {what}")
            if done == of:
                sys.stderr.write("\n")
        else:
            sys.stderr.write(f"[{done}/{of}] {what}\n")
        sys.stderr.flush()

    def say(self, line: str) -> None:
        """A line that stays."""
        sys.stderr.write(f"\r\033[K{line}\n" if self._live else f"{line}\n")
        sys.stderr.flush()
