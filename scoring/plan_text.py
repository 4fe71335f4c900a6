"""A plan as text: rich tables for a terminal, and the same as plain text."""

from __future__ import annotations

import msgspec
from rich.console import RenderableType

from scoring.plan import Plan
from scoring.text import plain, rendered
from scoring.wording import Section, interval, share


def plan_text(found: Plan) -> str:
    """The plan as plain text without colours, ending with a newline."""
    return plain(plan_tables(found)) + "\n"


def plan_json(found: Plan) -> bytes:
    """The plan as one JSON object, ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"


def plan_tables(found: Plan) -> tuple[RenderableType, ...]:
    """The plan for ``rich.console.Console.print``."""
    sections = (_design(found), _kinds(found), _power(found), _needed(found))
    return tuple(part for section in sections if section.rows for part in rendered(section))


def _design(found: Plan) -> Section:
    mix = ", ".join(f"{family} {part:.0%}" for family, part in found.mix.items())
    rows = (
        ("profile", found.profile),
        ("runs of one arm", f"{found.runs}: {found.tasks} tasks × {found.repeats} seeds and repeats"),
        ("calls of a run", f"{found.calls} ({mix})"),
        ("faults per call", share(found.faults_per_call)),
        ("faults per run", f"{found.faults_per_run:.2f}"),
        ("exposed runs", f"{found.exposed_runs:.1f} of {found.runs} ({found.exposed_share:.1%})"),
    )
    note = (
        "Decided faults: some do not arrive, because the call fails by itself or there is nothing to change. "
        "Where calls are repeated, permanent faults come in clusters and fewer runs are exposed."
    )
    return Section("design", "Expected exposure", (), rows, note)


def _kinds(found: Plan) -> Section:
    rows = tuple(
        (kind.kind, f"{kind.faults:.1f}", "too few to say anything" if kind.too_few else "")
        for kind in found.kinds
    )
    return Section("kinds", "Expected faults by kind, all runs", ("kind", "faults", ""), rows)


def _power(found: Plan) -> Section:
    rows = tuple(
        (
            f"{one.pass_rate:g}",
            f"{one.correlation:g}",
            share(one.smallest_detectable),
            interval(one.interval),
        )
        for one in found.power
    )
    columns = ("pass rate", "correlation", "smallest difference", "interval of one arm")
    note = (
        "The smallest true difference of two arms under the same seeds that a paired t test finds with 80% "
        "power at 5%, and the 95% n_eff-Wilson interval of one arm. Correlation: between runs of one task."
    )
    return Section("power", "What this design can show", columns, rows, note, left=0)


def _needed(found: Plan) -> Section:
    rows = tuple((f"a difference of {size}", f"{tasks} tasks") for size, tasks in found.tasks_needed.items())
    note = f"With {found.repeats} runs a task and arm, at a pass rate of 0.8 and a correlation of 0.5."
    return Section("needed", "Tasks that would be needed", (), rows, note)
