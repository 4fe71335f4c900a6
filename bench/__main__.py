"""``python -m bench``: what the proxy costs."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from bench.client import BenchError
from bench.effort import FULL, SMOKE
from bench.figures import Figure
from bench.machine import machine_facts
from bench.run import MEASURES, keep, run, show


def _say_with_time(line: str, began: float) -> None:
    sys.stderr.write(f"[{time.monotonic() - began:5.0f} s] {line}\n")
    sys.stderr.flush()


def main(
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Small sizes: whether the bench works, not what it says.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help=f"One of {', '.join(MEASURES)}; repeatable.")
    ] = None,
    others: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the commands agentbreak and agentgauntlet are, to compare."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write all figures as JSON.")
    ] = None,
) -> None:
    """Measure what the proxy costs, as ratios taken in one run: both sides of each by turns."""
    for name in only or ():
        if name not in MEASURES:
            raise typer.BadParameter(f"no measure {name!r}: there are {', '.join(MEASURES)}")
    began = time.monotonic()
    facts = machine_facts()
    effort = SMOKE if smoke else FULL
    figures: list[Figure] = []
    failed: str | None = None
    # However it ends, the programs that were started are stopped, and what was measured is shown.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for figure in run(effort, only or list(MEASURES), lambda line: _say_with_time(line, began), others):
            figures.append(figure)
    except BenchError as error:
        failed = str(error)
    except KeyboardInterrupt:
        failed = "stopped"
    show(figures, facts)
    if smoke:
        sys.stdout.write("a smoke run: too few measurements to compare with the targets\n")
    if json is not None:
        keep(figures, facts, json)
    if failed is not None:
        sys.stderr.write(f"bench: {failed}\n")
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
