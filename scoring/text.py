"""The score as text: rich tables for a terminal, the same as plain text, and the two lines to paste."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scoring.score import Score
from scoring.sections import all_sections
from scoring.wording import Section, share

_WIDTH = 120


def score_lines(score: Score) -> tuple[str, str]:
    """The two lines that people paste: the rates, and the headline with its reason."""
    rates = (
        f"runs: {score.runs} | truncation_rate: {share(score.truncation_rate)} "
        f"| strict: {share(score.strict)} | observed: {share(score.observed)}"
    )
    head = score.headline
    basis = "" if head.basis is None else f" ({head.basis})"
    return rates, f"headline: {share(head.value)}{basis} — {head.reason}"


def score_tables(score: Score) -> tuple[RenderableType, ...]:
    """Everything but the two lines, for ``rich.console.Console.print``."""
    return tuple(part for section in all_sections(score) for part in rendered(section))


def score_text(score: Score) -> str:
    """The whole score as plain text without colours, ending with the two lines and a newline."""
    return "\n".join((plain(score_tables(score)), "", *score_lines(score), ""))


def plain(parts: Sequence[RenderableType]) -> str:
    """What rich would show, as text without colours and without a newline at its end."""
    out = io.StringIO()
    console = Console(file=out, width=_WIDTH, color_system=None, force_terminal=False, highlight=False)
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).rstrip()


def rendered(section: Section) -> Sequence[RenderableType]:
    """A section as a title, a table and its note."""
    table = Table(
        box=None,
        show_header=bool(section.columns),
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for index, column in enumerate(section.columns or ("",) * len(section.rows[0])):
        # Cells of log text stand left and may fold; counts and intervals stand right.
        counted = bool(section.columns) and index >= section.left
        table.add_column(Text(column), justify="right" if counted else "left", overflow="fold")
    for row in section.rows:
        table.add_row(*map(Text, row))
    parts: list[RenderableType] = [Text(section.title, style="bold"), table]
    if section.note:
        parts.append(Text(section.note, style="dim"))
    return [Padding(part, (0, 0, 1 if part is parts[-1] else 0, 0)) for part in parts]
