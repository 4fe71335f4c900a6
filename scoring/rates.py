"""The scores: small functions over a ``Tally``, registered by name, each with its formula and source.

A new number is one more function here. Each gives a ``Ratio`` (or a ``Gap`` between two) of counts that add
up over tasks, so that the same function serves one task, all tasks, and 10,000 resamples at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from scoring.intervals import (
    Bootstrap,
    Floats,
    Interval,
    Statistic,
    cluster_bootstrap,
    neff_wilson,
)


class Tally(NamedTuple):
    """Counts of first attempts. Every field has the same shape: (tasks,), (resamples,) or a single number.

    ``passed`` counts runs that passed, are complete and valid; ``known`` those whose end state is known;
    ``judged`` those that can be told to have passed or not; ``logged`` those with a decision log.
    ``interrupted`` counts cut runs of folders with a resume pass, ``recovered`` those of them whose last
    attempt passed; ``resumed`` are attempts of the resumed log, which are no first attempts.
    """

    runs: Floats
    known: Floats
    judged: Floats
    complete: Floats
    passed: Floats
    quota_cut: Floats
    restart_cut: Floats
    error: Floats
    logged: Floats
    exposed: Floats
    resumed: Floats
    resumed_passed: Floats
    interrupted: Floats
    recovered: Floats


class Ratio(NamedTuple):
    """A proportion of counts; without a value where the denominator is zero."""

    numerator: Floats
    denominator: Floats


class Gap(NamedTuple):
    """The first proportion minus the second."""

    upper: Ratio
    lower: Ratio


Needs = Literal["known", "judged", "logged", "resumed", "interrupted"]


class Metric(NamedTuple):
    """A registered score: ``needs`` names the count that must not be zero for it to mean anything."""

    name: str
    needs: Needs
    compute: Callable[[Tally], Ratio | Gap]


METRICS: dict[str, Metric] = {}


def metric[F: Callable[[Tally], Ratio | Gap]](needs: Needs) -> Callable[[F], F]:
    """Registers a score under its function's name."""

    def register(compute: F) -> F:
        METRICS[compute.__name__] = Metric(compute.__name__, needs, compute)
        return compute

    return register


@metric("judged")
def strict(t: Tally) -> Ratio:
    """Passed and complete / all first attempts. Cut, failed, invalid and unjudged runs count as failures.

    Intention to treat: every run that was begun stays in the denominator (CONSORT 2010, item 16).
    """
    return Ratio(t.passed, t.runs)


@metric("judged")
def observed(t: Tally) -> Ratio:
    """Passed / complete: what is seen when the interrupted runs are left out. Survivors only, so biased."""
    return Ratio(t.passed, t.complete)


@metric("known")
def completion_rate(t: Tally) -> Ratio:
    """Complete / all. strict = observed × completion_rate."""
    return Ratio(t.complete, t.runs)


@metric("known")
def truncation_rate(t: Tally) -> Ratio:
    """(quota_cut + restart_cut) / all."""
    return Ratio(t.quota_cut + t.restart_cut, t.runs)


@metric("known")
def error_rate(t: Tally) -> Ratio:
    """Ended in error (timeout, crash, anything unclassified) / all."""
    return Ratio(t.error, t.runs)


@metric("judged")
def truncation_exposure(t: Tally) -> Gap:
    """observed − strict: how much the score gains by leaving out the runs that were not completed."""
    return Gap(observed(t), strict(t))


@metric("logged")
def exposure(t: Tally) -> Ratio:
    """Runs with at least one delivered fault / runs with a decision log."""
    return Ratio(t.exposed, t.logged)


@metric("resumed")
def recovery_ratio(t: Tally) -> Ratio:
    """Resumed attempts that passed / resumed attempts: from the resumed log, never folded into strict."""
    return Ratio(t.resumed_passed, t.resumed)


@metric("interrupted")
def rsr(t: Tally) -> Ratio:
    """Interrupted runs whose last attempt passed / interrupted runs: the resume success rate."""
    return Ratio(t.recovered, t.interrupted)


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """One score. ``wilson`` is the n_eff-Wilson interval (shown first), ``bootstrap`` the percentile one.

    ``n_eff`` is how many independent runs the tasks are worth, ``n_used`` that after the (z/t)² correction;
    ``dropped`` is the share of resamples without a value. Null: undefined, or fewer than two tasks.
    """

    value: float | None
    numerator: int | None = None
    denominator: int | None = None
    wilson: Interval | None = None
    n_eff: float | None = None
    n_used: float | None = None
    bootstrap: Interval | None = None
    dropped: float | None = None


def value_of(part: Ratio | Gap) -> Floats:
    """Values elementwise; nan where there is none."""
    if isinstance(part, Gap):
        return value_of(part.upper) - value_of(part.lower)
    values: Floats = np.full(np.shape(part.denominator), np.nan)
    np.divide(part.numerator, part.denominator, out=values, where=part.denominator != 0)
    return values


def estimate_all(tally: Tally) -> dict[str, Estimate]:
    """Every registered score of a tally of shape (tasks,), with both intervals."""
    totals = Tally(*np.stack(tally).sum(axis=1))
    wanted = {name: m.compute(tally) for name, m in METRICS.items() if getattr(totals, m.needs) > 0}
    points = {name: _point(part) for name, part in wanted.items()}
    drawn = bootstrap_parts({name: wanted[name] for name, point in points.items() if point.value is not None})
    return {name: _with(points.get(name, Estimate(value=None)), drawn.get(name)) for name in METRICS}


def estimate_one(by_task: Ratio) -> Estimate:
    """A proportion that is no registered score, from its counts per task, with both intervals."""
    point = _point(by_task)
    return _with(point, bootstrap_parts({"it": by_task})["it"] if point.value is not None else None)


def bootstrap_parts(by_task: Mapping[str, Ratio | Gap]) -> dict[str, Bootstrap | None]:
    """The cluster bootstrap of scores from their counts per task, of shape (tasks,); null below two tasks.

    Only the sums that the scores are made of are resampled, each once: the fewer columns, the more tasks are
    equal, and equal tasks are drawn together.
    """
    columns: dict[bytes, Floats] = {}
    places: dict[str, list[int]] = {}
    for name, part in by_task.items():
        for column in _columns_of(part):
            columns.setdefault(column.tobytes(), column)
        kept = list(columns)
        places[name] = [kept.index(column.tobytes()) for column in _columns_of(part)]
    stacked = np.column_stack(list(columns.values())) if columns else np.empty((0, 0))
    if len(stacked) < 2:
        return dict.fromkeys(by_task)
    return {**cluster_bootstrap(stacked, {name: _statistic(at) for name, at in places.items()})}


def _columns_of(part: Ratio | Gap) -> tuple[Floats, ...]:
    return (*part.upper, *part.lower) if isinstance(part, Gap) else part


def _statistic(places: Sequence[int]) -> Statistic:
    """The value of a ratio of two column sums, or of the gap between two such ratios."""

    def value(sums: Floats) -> Floats:
        upper = value_of(Ratio(sums[:, places[0]], sums[:, places[1]]))
        if len(places) == 2:
            return upper
        return upper - value_of(Ratio(sums[:, places[2]], sums[:, places[3]]))

    return value


def _with(estimate: Estimate, drawn: Bootstrap | None) -> Estimate:
    if drawn is None:
        return estimate
    return msgspec.structs.replace(estimate, bootstrap=drawn.interval, dropped=drawn.dropped)


def _summed(part: Ratio | Gap) -> Ratio | Gap:
    if isinstance(part, Gap):
        return Gap(*(Ratio(*np.stack(ratio).sum(axis=1)) for ratio in part))
    return Ratio(*np.stack(part).sum(axis=1))


def _point(by_task: Ratio | Gap) -> Estimate:
    total = _summed(by_task)
    value = float(value_of(total))
    if np.isnan(value):
        return Estimate(value=None)
    if isinstance(total, Gap) or isinstance(by_task, Gap):
        return Estimate(value=value)
    wilson = neff_wilson(by_task.numerator, by_task.denominator)
    return Estimate(
        value=value,
        numerator=int(total.numerator),
        denominator=int(total.denominator),
        wilson=wilson.interval if wilson else None,
        n_eff=wilson.n_eff if wilson else None,
        n_used=wilson.n_used if wilson else None,
    )


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """The one number to quote. ``basis`` says which score it is, ``reason`` why that one."""

    value: float | None
    basis: Literal["strict", "observed"] | None
    reason: str


def headline(
    *,
    strict: float | None,
    observed: float | None,
    truncation_rate: float | None,
    error_rate: float | None,
    unjudged_rate: float,
    threshold: float,
    failed_controls: Sequence[str] = (),
) -> Headline:
    """strict if truncation, errors or unjudged runs are above the threshold (a share), else observed.

    Where a control failed, the reason says so: the number must not be quoted without it.
    """
    found = _headline(strict, observed, truncation_rate, error_rate, unjudged_rate, threshold)
    if not failed_controls:
        return found
    names = _spoken([f"the {kind} control" for kind in failed_controls])
    return msgspec.structs.replace(found, reason=f"{found.reason}; NOT INTERPRETABLE: {names} failed")


def _headline(
    strict: float | None,
    observed: float | None,
    truncation_rate: float | None,
    error_rate: float | None,
    unjudged_rate: float,
    threshold: float,
) -> Headline:
    if strict is None:
        return Headline(value=None, basis=None, reason="no run could be judged")
    shares = (("truncation", truncation_rate), ("errors", error_rate), ("unjudged runs", unjudged_rate))
    above = [name for name, share in shares if share is not None and share > threshold]
    percent = f"the {100 * threshold:g}% threshold"
    if above:
        return Headline(value=strict, basis="strict", reason=f"{_spoken(above)} above {percent}")
    if observed is None:
        return Headline(value=None, basis="observed", reason="no run was complete")
    return Headline(value=observed, basis="observed", reason=f"truncation and errors within {percent}")


def _spoken(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
