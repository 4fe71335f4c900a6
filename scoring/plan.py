"""What a design can show before it costs anything: expected exposure, and the smallest difference."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from scheduler.call import FAMILIES
from scheduler.faults import KINDS
from scheduler.profile import Profile
from scoring.intervals import Interval, t_quantile, wilson, z_quantile
from scoring.paired import POWER, detectable

# Fewer expected faults than this over all runs, and a kind's cell says nothing.
FEW = 5.0
# A coding agent's day as far as it has been looked at: mostly reading and running, some editing.
USUAL_MIX: dict[str, float] = {"read": 0.35, "shell": 0.35, "edit": 0.15, "search": 0.1, "write": 0.05}
PASS_RATES = (0.5, 0.8, 0.9)
CORRELATIONS = (0.0, 0.5)


class BadPlan(ValueError):
    """A design that cannot be; the message says what to change."""


class KindPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Expected faults of one kind over all runs; ``too_few`` to say anything about the kind alone."""

    kind: str
    faults: float
    too_few: bool


class Power(msgspec.Struct, frozen=True, kw_only=True):
    """What the design finds when ``pass_rate`` of the runs pass in the first arm and runs of one task are
    correlated by ``correlation``: the smallest difference between two arms, and one arm's interval."""

    pass_rate: float
    correlation: float
    smallest_detectable: float | None
    interval: Interval | None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A design and what to expect of it; docs/statistics.md has the formulas.

    ``faults_per_run`` are decided faults, the most that can be delivered: some are skipped on the way (a call
    that fails anyway, nothing to change). ``exposed_share``: runs with at least one. ``tasks_needed``: tasks
    for a difference of 0.05, 0.10, 0.20 at a pass rate of 0.8 and a correlation of 0.5.
    """

    profile: str
    calls: int
    tasks: int
    repeats: int
    runs: int
    mix: dict[str, float]
    faults_per_call: float
    faults_per_run: float
    exposed_share: float
    exposed_runs: float
    kinds: tuple[KindPlan, ...]
    power: tuple[Power, ...]
    tasks_needed: dict[str, int]


def plan(
    profile: Profile, *, calls: int, tasks: int, repeats: int, mix: Mapping[str, float] | None = None
) -> Plan:
    """The plan for ``tasks`` tasks of ``repeats`` runs (seeds × repeats) with ``calls`` tool calls each.

    ``mix``: the shares of the tool families among the calls, default ``USUAL_MIX``. Raises ``BadPlan``.
    """
    for name, value in (("calls", calls), ("tasks", tasks), ("repeats", repeats)):
        if value < 1:
            raise BadPlan(f"{name} is {value}: give at least 1")
    shares = _shares(USUAL_MIX if mix is None else mix)
    by_kind = dict.fromkeys(KINDS, 0.0)
    for family, part in shares.items():
        for kind, rate in kind_rates(profile, family).items():
            by_kind[kind] += part * rate
    per_call = math.fsum(by_kind.values())
    faults, exposed = faults_of_a_run(profile, per_call, calls)
    runs = tasks * repeats
    scale = runs * faults / per_call if per_call else 0.0
    return Plan(
        profile=profile.name,
        calls=calls,
        tasks=tasks,
        repeats=repeats,
        runs=runs,
        mix=shares,
        faults_per_call=per_call,
        faults_per_run=faults,
        exposed_share=exposed,
        exposed_runs=runs * exposed,
        kinds=tuple(
            KindPlan(kind=kind, faults=rate * scale, too_few=rate * scale < FEW)
            for kind, rate in by_kind.items()
            if rate
        ),
        power=tuple(_power(tasks, repeats, p, rho) for p in PASS_RATES for rho in CORRELATIONS),
        tasks_needed={
            f"{difference:.2f}": tasks_for(difference, repeats) for difference in (0.05, 0.10, 0.20)
        },
    )


def _shares(mix: Mapping[str, float]) -> dict[str, float]:
    for family, part in mix.items():
        if family not in FAMILIES:
            raise BadPlan(f"unknown tool family {family!r}: the families are {', '.join(FAMILIES)}")
        if not 0 <= part < math.inf:
            raise BadPlan(f"the share of {family} is {part}: give a number that is not negative")
    total = math.fsum(mix.values())
    if not total:
        raise BadPlan("the shares of the tool families add up to 0: give at least one that is above")
    return {family: part / total for family, part in mix.items()}


def kind_rates(profile: Profile, family: str) -> dict[str, float]:
    """Kind → the chance that a call of ``family`` gets it. The kind is drawn by weight once a fault fires."""
    weights = {kind: w for kind, w in profile.weights_of(family).items() if w > 0}
    total = math.fsum(weights.values())
    return {kind: profile.rate_of(family) * w / total for kind, w in weights.items()} if total else {}


def faults_of_a_run(profile: Profile, per_call: float, calls: int) -> tuple[float, float]:
    """(expected faults, chance of at least one) of a run with ``calls`` calls in one conversation.

    Every call is drawn by itself with the chance ``per_call``; ``skip_first``, ``max_faults`` and ``min_gap``
    hold faults back. Exact, by the chances of (faults so far, calls that the gap still takes). Force rules
    with a number up to ``calls`` add a fault each. Where calls are repeated, permanent faults come in
    clusters: the expected number stays, and fewer runs have one.
    """
    forced = sum(rule.nth is not None and rule.nth <= calls and rule.match is None for rule in profile.force)
    limit = profile.max_faults if profile.max_faults is not None else calls
    chances: dict[tuple[int, int], float] = {(0, 0): 1.0}
    for _ in range(max(0, calls - profile.skip_first)):
        after: dict[tuple[int, int], float] = {}
        for (faults, gap), chance in chances.items():
            fires = per_call if gap == 0 and faults < limit else 0.0
            for state, part in (
                ((faults + 1, profile.min_gap), fires),
                ((faults, max(0, gap - 1)), 1 - fires),
            ):
                if part:
                    after[state] = after.get(state, 0.0) + chance * part
        chances = after
    expected = math.fsum(faults * chance for (faults, _), chance in chances.items())
    nothing = math.fsum(chance for (faults, _), chance in chances.items() if not faults)
    return expected + forced, 1.0 if forced else 1.0 - nothing


def _power(tasks: int, repeats: int, pass_rate: float, correlation: float) -> Power:
    return Power(
        pass_rate=pass_rate,
        correlation=correlation,
        smallest_detectable=detectable(sd_of_difference(pass_rate, correlation, repeats), tasks),
        interval=_interval(tasks, repeats, pass_rate, correlation),
    )


def sd_of_difference(pass_rate: float, correlation: float, repeats: int) -> float:
    """Standard deviation over tasks of a paired difference of two means of ``repeats`` runs.

    Both arms share how hard a task is, so that part falls out: Var = 2·p(1 − p)(1 − ρ)/repeats. Where the
    arms differ more on some tasks than on others, it is larger.
    """
    return math.sqrt(2 * pass_rate * (1 - pass_rate) * (1 - correlation) / repeats)


def _interval(tasks: int, repeats: int, pass_rate: float, correlation: float) -> Interval | None:
    """The n_eff-Wilson interval of one arm to be expected: n_eff = runs / (1 + (repeats − 1)·ρ)."""
    if tasks < 2:
        return None
    n_eff = tasks * repeats / (1 + (repeats - 1) * correlation)
    return wilson(pass_rate, n_eff * (z_quantile() / t_quantile(tasks - 1)) ** 2)


def tasks_for(difference: float, repeats: int, pass_rate: float = 0.8, correlation: float = 0.5) -> int:
    """The fewest tasks (at least 2) for which ``detectable`` is at most ``difference``, with 80 % power."""
    sd = sd_of_difference(pass_rate, correlation, repeats)
    tasks = 2
    while (detectable(sd, tasks, power=POWER) or math.inf) > difference:
        tasks += 1
    return tasks
