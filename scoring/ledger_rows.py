"""The first attempts as rows of a table, and which of them a number counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from scoring.runs import Run
from scoring.wording import number, printable

ROWS_SHOWN = 2000
_LINKS_SHOWN = 200


class Link(NamedTuple):
    """A first attempt in the table of ledger rows."""

    anchor: str
    text: str


class Group(NamedTuple):
    """Runs that a number counts in one way; ``more`` are not listed."""

    label: str
    links: tuple[Link, ...]
    more: int


class LedgerRow(NamedTuple):
    """A first attempt as the table of ledger rows shows it."""

    anchor: str
    cells: tuple[str, ...]
    outcome: str


LEDGER_COLUMNS = (
    *("run", "task", "seed", "repeat", "outcome", "ended", "passed", "says"),
    *("faults", "tokens", "wall s", "ledger line"),
)


class Rows:
    """The first attempts with their anchors; ``table`` is that of the table, for those it does not show."""

    def __init__(self, runs: Sequence[Run], anchor: str = "run", table: str = "ledger-rows") -> None:
        self._runs = runs
        self._table = table
        self._anchors = {id(run): f"{anchor}-{place}" for place, run in enumerate(runs[:ROWS_SHOWN], 1)}

    def groups(self, *wanted: tuple[str, Callable[[Run], bool]]) -> tuple[Group, ...]:
        """The runs that each of ``wanted`` counts, with a label; groups without a run are left out."""
        found = ((label, [run for run in self._runs if counts(run)]) for label, counts in wanted)
        return tuple(self._group(label, runs) for label, runs in found if runs)

    def _group(self, label: str, runs: Sequence[Run]) -> Group:
        links = tuple(
            Link(self._anchors.get(id(run), self._table), printable(_name(run)))
            for run in runs[:_LINKS_SHOWN]
        )
        return Group(f"{label} ({len(runs):,})", links, max(0, len(runs) - _LINKS_SHOWN))

    def table(self) -> tuple[LedgerRow, ...]:
        """The first ``ROWS_SHOWN`` of them."""
        return tuple(
            LedgerRow(self._anchors[id(run)], tuple(map(printable, _cells(run))), run.outcome)
            for run in self._runs[:ROWS_SHOWN]
        )


def _name(run: Run) -> str:
    return run.run_id or f"{run.task_id} seed {run.seed} repeat {run.repeat}"


def _cells(run: Run) -> Iterable[str]:
    return (
        run.run_id or "",
        run.task_id,
        str(run.seed),
        str(run.repeat),
        run.outcome.replace("_", " "),
        run.ended or "not known",
        {True: "yes", False: "no", None: "not known"}[run.passed],
        run.claimed or "not known",
        "not known" if run.faults_delivered is None else str(run.faults_delivered),
        number(run.tokens_used) if run.tokens_used is not None else "not known",
        "not known" if run.wall_s is None else f"{run.wall_s:,.2f}",
        run.where,
    )
