"""The draw: which call fails, and how. A function of seed, profile and call, and of nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from scheduler.call import Call, Identity, Key, call_key
from scheduler.profile import ForceRule, Profile
from scheduler.uniform import SEED_LIMIT, PayloadStream, u

__all__ = [
    "SEED_LIMIT",
    "Draw",
    "Limit",
    "PayloadStream",
    "Persistence",
    "Standing",
    "draw",
    "forced_by",
    "rule_fits",
    "u",
]

Persistence = Literal["transient", "permanent"]
Limit = Literal["no_fit", "skip_first", "max_faults", "min_gap"]


class Standing(NamedTuple):
    """Where a call stands in its conversation, for the limits of a profile that count.

    ``calls_before`` and ``faults_before`` count the calls before it and the faults that were not held back;
    ``calls_since_fault`` is how many calls stand between the last such fault and this one (None: there was
    none); ``rule_hits[i]`` of how many calls before it force rule ``i`` spoke.
    """

    calls_before: int = 0
    faults_before: int = 0
    calls_since_fault: int | None = None
    rule_hits: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Draw:
    """What the schedule says of one call.

    ``key`` is the one that everything was drawn from (for a permanent call, the key without its count).
    A draw under its rate fires only when the profile has a kind for it. ``limited`` says what keeps a fault
    that fired from being applied: a limit of the profile, or ``no_fit`` when a rule forces a kind that cannot
    be done to this call. A forced fault is transient and stands above the limits. Where the
    profile looks at where a call stands, ``standing`` and ``rules`` (which force rules speak of this call)
    are kept, so that the draw can be checked from the log alone.
    """

    key: Key
    u: float
    rate: float
    fired: bool
    kind: str | None
    persistence: Persistence
    forced: bool = False
    limited: Limit | None = None
    standing: Standing | None = None
    rules: tuple[bool, ...] = ()


def draw(
    seed: int,
    profile: Profile,
    task_id: str,
    role: str,
    call: Call,
    fitting: Iterable[str],
    standing: Standing = Standing(),  # noqa: B008 - immutable
) -> Draw:
    """Draws ``call``. ``fitting``: the kinds that can be done to this call here (no gap, family fits).

    Raises ``ValueError`` when ``seed`` is not in [0, 2**64).
    """
    rules = tuple(rule_fits(rule, call) for rule in profile.force)
    return draw_as_ruled(seed, profile, task_id, role, call, fitting, standing, rules)


def draw_as_ruled(
    seed: int,
    profile: Profile,
    task_id: str,
    role: str,
    call: Call,
    fitting: Iterable[str],
    standing: Standing,
    rules: tuple[bool, ...],
) -> Draw:
    """As ``draw``, when it is known which force rules speak of the call, as a log keeps it."""
    key = call_key(profile.identity, task_id, role, call)
    persistence = _persistence(seed, profile, key)
    base = key[:-1] if persistence == "permanent" and profile.identity == "content" else key
    rate = profile.rate_of(call.family)
    kept = standing if profile.counts else None

    rule = forced_by(profile, rules, standing.rule_hits)
    if rule is not None:
        return Draw(
            key,
            u(b"fire", key, seed),
            rate,
            fired=True,
            kind=rule.kind,
            persistence="transient",
            forced=True,
            limited=None if rule.kind in fitting else "no_fit",
            standing=kept,
            rules=rules,
        )

    chance = u(b"fire", base, seed)
    weights = profile.weights_of(call.family)
    kind = None
    if chance < rate:
        kind = _kind(seed, base, {name: weights[name] for name in fitting if weights.get(name, 0) > 0})
    return Draw(
        base,
        chance,
        rate,
        fired=kind is not None,
        kind=kind,
        persistence=persistence,
        limited=_limited(profile, standing) if kind is not None else None,
        standing=kept,
        rules=rules,
    )


def _persistence(seed: int, profile: Profile, key: Key) -> Persistence:
    identity: Identity = profile.identity
    weights = profile.persistence
    total = weights.permanent + weights.transient
    label_key = key[:-1] if identity == "content" else key
    return "permanent" if u(b"persist", label_key, seed) < weights.permanent / total else "transient"


def _kind(seed: int, key: Key, weights: Mapping[str, float]) -> str | None:
    """An exponential race: the smallest Exp(weight) wins, so each kind wins in proportion to its weight and
    taking one away moves only the calls that it had won. Ties (never seen) go to the first by name."""
    if not weights:
        return None
    return min(
        sorted(weights),
        key=lambda kind: -math.log(1.0 - u(b"kind", (*key, kind), seed)) / weights[kind],
    )


def _limited(profile: Profile, standing: Standing) -> Limit | None:
    if standing.calls_before < profile.skip_first:
        return "skip_first"
    if profile.max_faults is not None and standing.faults_before >= profile.max_faults:
        return "max_faults"
    since = standing.calls_since_fault
    if since is not None and since < profile.min_gap:
        return "min_gap"
    return None


def rule_fits(rule: ForceRule, call: Call) -> bool:
    """Whether ``rule`` speaks of this call, its count aside."""
    if rule.family is not None and rule.family != call.family:
        return False
    if rule.tool is not None and rule.tool != call.tool:
        return False
    return rule.matches(call.canonical.decode("utf-8", "replace"))


def forced_by(profile: Profile, fits: tuple[bool, ...], rule_hits: tuple[int, ...]) -> ForceRule | None:
    """The first rule that forces a fault on this call.

    ``fits[i]``: whether rule ``i`` speaks of it; ``rule_hits[i]``: of how many earlier calls of the
    conversation it spoke.
    """
    for index, rule in enumerate(profile.force):
        if fits[index] and rule.nth in (None, rule_hits[index] + 1 if rule_hits else 1):
            return rule
    return None
