"""A comparison as text: rich tables for a terminal, the same as plain text, and the two lines to paste."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from scoring.compare import Arm, Comparison
from scoring.contrast import Contrast
from scoring.sections_faults import contrast_rows
from scoring.text import plain, rendered
from scoring.wording import (
    Section,
    counted,
    interval,
    more_than,
    number,
    p_value,
    printable,
    share,
    signed,
)

_LISTED = 20
_TASKS_SHOWN = 500
_SHOWN_OF_A_TEXT = 100


def compare_lines(comparison: Comparison) -> tuple[str, str]:
    """The two lines that people paste: what was compared, and the primary contrast."""
    found = comparison.primary
    first = (
        f"tasks: {found.tasks} | pairs: {comparison.pairs} | A: {share(found.a)} | B: {share(found.b)} "
        f"| difference: {signed(found.difference)}"
    )
    if not comparison.interpretable:
        return first, "primary: NOT INTERPRETABLE: a control failed"
    if comparison.smoke:
        return first, "primary: a smoke run, too small to say which is better"
    shown = f"primary: {signed(found.difference)} {interval(found.interval)} (paired t), p {p_value(found.p)}"
    if found.smallest_detectable is not None:
        return first, f"{shown} — this design finds differences of {share(found.smallest_detectable)} or more"
    return first, f"{shown} — {found.note}" if found.note else shown


def compare_tables(comparison: Comparison) -> tuple[RenderableType, ...]:
    """Everything but the two lines, for ``rich.console.Console.print``."""
    return tuple(part for section in compare_sections(comparison) for part in rendered(section))


def compare_text(comparison: Comparison) -> str:
    """The whole comparison as plain text without colours, ending with the two lines and a newline."""
    return "\n".join((plain(compare_tables(comparison)), "", *compare_lines(comparison), ""))


def compare_sections(comparison: Comparison) -> tuple[Section, ...]:
    """Every table that the comparison has data for, most important first."""
    wanted = (
        _arms(comparison),
        Section(
            "primary",
            f"Primary contrast: {comparison.primary.name}",
            (),
            contrast_rows(comparison.primary, ("A", "B")),
            "B − A over the tasks that both have, each task's value being the mean over its seeds. It was "
            "named before any data was seen; read the others as hints.",
        ),
        _contrasts(
            "secondary",
            "Secondary contrasts",
            comparison.secondary,
            "p is corrected after Holm over these contrasts.",
        ),
        _contrasts(
            "exploratory",
            "Exploratory: pass rate of the runs that met a fault of this sort",
            comparison.exploratory,
            "Not corrected. Which runs meet a fault depends on what was done before it: a difference here is "
            "a question, not an answer.",
        ),
        _conditions(comparison),
        _tasks(comparison),
        _findings(comparison),
        _problems(comparison),
    )
    return tuple(section for section in wanted if section.rows)


def _arms(comparison: Comparison) -> Section:
    rows = tuple(
        (
            name,
            printable(_served(arm)),
            str(arm.runs),
            str(arm.tasks),
            share(arm.strict.value),
            counted(arm.strict.numerator, arm.strict.denominator),
            interval(arm.strict.wilson),
        )
        for name, arm in (("A", comparison.a), ("B", comparison.b))
    )
    columns = ("", "what", "runs", "tasks", "strict", "n", "95% n_eff-Wilson")
    return Section("arms", "Arms", columns, rows, left=2)


def _served(arm: Arm) -> str:
    names = {
        " ".join(filter(None, (origin.harness or "unknown harness", origin.harness_version)))
        for origin in arm.origins
    }
    return ", ".join(sorted(names)) or ", ".join(arm.sources)


def _contrasts(key: str, title: str, found: Sequence[Contrast], note: str) -> Section:
    holm = any(one.p_holm is not None for one in found)
    rows = tuple(_contrast(one, holm=holm) for one in found if one.tasks)
    columns = ("", "A", "B", "B − A", "95% paired t", "p (Holm)" if holm else "p", "tasks")
    return Section(key, title, columns, rows, note)


def _contrast(one: Contrast, *, holm: bool) -> tuple[str, ...]:
    digits = 3 if max(abs(one.a or 0.0), abs(one.b or 0.0)) <= 10 else 1
    return (
        printable(one.name),
        number(one.a, digits),
        number(one.b, digits),
        signed(one.difference, digits),
        interval(one.interval, digits),
        p_value(one.p_holm if holm else one.p),
        str(one.tasks),
    )


def _conditions(comparison: Comparison) -> Section:
    rows = tuple(
        (one.name, _short(printable(one.a or "not known")), "the same" if one.known else "not checked")
        for one in comparison.conditions
    )
    return Section("conditions", "Conditions that must be the same", ("", "A", "B"), rows, left=3)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_OF_A_TEXT else text[: _SHOWN_OF_A_TEXT - 1] + "…"


def _tasks(comparison: Comparison) -> Section:
    rows = tuple(
        (printable(row.task_id), str(row.seeds), share(row.a), share(row.b), signed(row.difference))
        for row in comparison.rows[:_TASKS_SHOWN]
    )
    note = more_than(len(comparison.rows), _TASKS_SHOWN)
    return Section("tasks", "Tasks", ("task", "seeds", "A", "B", "B − A"), rows, note)


def _findings(comparison: Comparison) -> Section:
    rows = tuple((f"exit code {one.exit}", printable(one.what)) for one in comparison.findings)
    return Section("findings", "Findings", (), rows)


def _problems(comparison: Comparison) -> Section:
    rows = tuple((printable(str(problem)),) for problem in comparison.problems[:_LISTED])
    return Section("problems", "Noticed", (), rows, more_than(len(comparison.problems), _LISTED))
