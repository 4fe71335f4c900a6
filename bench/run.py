"""One run of the bench: which measures there are, and how their figures are shown and kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from bench.added import measure_added
from bench.effort import Effort
from bench.figures import Figure, shown
from bench.floor import measure_floor
from bench.growth import measure_growth
from bench.memory import measure_memory
from bench.others import measure_others
from bench.share import measure_share
from bench.startup import measure_startup
from bench.streams import measure_streams
from bench.withholding import measure_withholding

Say = Callable[[str], None]

MEASURES: Mapping[str, Callable[[Effort, Say], list[Figure]]] = {
    "floor": measure_floor,
    "startup": measure_startup,
    "share": measure_share,
    "growth": measure_growth,
    "added": measure_added,
    "streams": measure_streams,
    "withholding": measure_withholding,
    "memory": measure_memory,
}


def run(effort: Effort, names: Collection[str], say: Say, others: Path | None = None) -> Iterator[Figure]:
    """The figures of the measures called ``names``, in the order in which they are listed above; then those
    of other proxies whose commands are in the folder ``others``."""
    for name, measure in MEASURES.items():
        if name in names:
            yield from measure(effort, say)
    if others is not None:
        yield from measure_others(others, effort, say)


def table(figures: Sequence[Figure], facts: Mapping[str, str]) -> Table:
    """Target beside median, quartiles, and what the two sides of each ratio were."""
    out = Table(title=" · ".join(f"{name} {fact}" for name, fact in facts.items()), title_style="")
    for heading in ("measure", "case", "what"):
        out.add_column(heading)
    for heading in ("target", "median", "quartiles", "met"):
        out.add_column(heading, justify="right", no_wrap=True)
    out.add_column("figures behind it")
    for figure in figures:
        value = figure.value
        out.add_row(
            figure.measure,
            figure.case,
            figure.what,
            "-" if figure.target is None else f"≤ {shown(figure.target, figure.unit)}",
            shown(value.median, figure.unit),
            f"{shown(value.low, figure.unit)} to {shown(value.high, figure.unit)}" if value.n > 1 else "-",
            {True: "yes", False: "NO", None: "-"}[figure.met],
            figure.absolute,
        )
    return out


def show(figures: Sequence[Figure], facts: Mapping[str, str]) -> None:
    """The table, on standard output."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200
    console.print(table(figures, facts))


def keep(figures: Sequence[Figure], facts: Mapping[str, str], path: Path) -> None:
    """Writes everything as JSON."""
    document = {
        "machine": facts,
        "figures": [
            asdict(figure) | {"value": figure.value._asdict(), "met": figure.met} for figure in figures
        ],
    }
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
