"""What two arms must have in common before they may be compared: the machine, the tasks, the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from ledger.problems import ReadingError
from ledger.reading_stated import Manifest
from scoring.gather import Gathered

Said = Callable[[Manifest], str | None]
_NOTHING = "nothing"


class EnvelopesDiffer(ReadingError):
    """Two arms, or the folders of one arm, were made under different conditions: they are not compared."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One condition in both arms, as text; null: not known there. ``known`` in both, it was checked."""

    name: str
    a: str | None
    b: str | None

    @property
    def known(self) -> bool:
        """Whether both arms say something."""
        return self.a is not None and self.b is not None


def conditions(a: Gathered, b: Gathered) -> tuple[Condition, ...]:
    """Every condition of both arms. Raises ``EnvelopesDiffer`` with all that disagree."""
    found = (
        _stated("container digest", a, b, lambda m: m.container_digest),
        _stated("CPU count", a, b, lambda m: None if m.cpus is None else f"{m.cpus:g}"),
        _tasks(a, b),
        _stated("token budget", a, b, _budget),
        _stated("threshold", a, b, lambda m: None if m.threshold is None else f"{m.threshold:g}"),
        _profile(a, b),
        _stated("checkpoints", a, b, lambda m: None if m.checkpoints is None else ", ".join(m.checkpoints)),
        *_capabilities(a, b),
    )
    differing = [one for one in found if one.known and one.a != one.b]
    if differing:
        each = "; ".join(f"{one.name}: A {_short(one.a)}, B {_short(one.b)}" for one in differing)
        hint = ""
        if any(one.name == "profile" for one in differing):
            hint = ". For the effect of faults give the folder with faults and the one under off to score"
        raise EnvelopesDiffer(
            f"A and B were made under different conditions and cannot be compared ({each}){hint}"
        )
    return found


def _budget(manifest: Manifest) -> str | None:
    if manifest.token_budget is None:
        return "none" if manifest.frozen else None
    return str(manifest.token_budget)


def kill_plans(a: Gathered, b: Gathered) -> str | None:
    """What to say where the arms were not killed alike; it may be the very thing that is compared."""
    plans = [", ".join(sorted({m.plan or "off" for m in arm.manifests.values()})) for arm in (a, b)]
    if not all(plans) or plans[0] == plans[1]:
        return None
    return f"kill plan: A {plans[0]}, B {plans[1]}: killed runs count as failures"


def _short(text: str | None, most: int = 80) -> str:
    said = text or ""
    return said if len(said) <= most else said[: most - 1] + "…"


def _stated(name: str, a: Gathered, b: Gathered, of: Said) -> Condition:
    return Condition(name=name, a=_of_manifests(name, a, of), b=_of_manifests(name, b, of))


def _of_manifests(name: str, arm: Gathered, of: Said) -> str | None:
    return _one(name, (said for m in arm.manifests.values() if (said := of(m)) is not None))


def _one(name: str, said: Iterable[str]) -> str | None:
    words = sorted(set(said))
    if len(words) > 1:
        each = ", ".join(map(_short, words))
        raise EnvelopesDiffer(f"the folders of one arm disagree on the {name} ({each}): give them apart")
    return words[0] if words else None


def _tasks(a: Gathered, b: Gathered) -> Condition:
    """The task sets that the manifests state; the tasks that were run, where one of them states none."""
    sides = [_of_manifests("task set", arm, _task_set) for arm in (a, b)]
    if None in sides:
        sides = [", ".join(dict.fromkeys(run.task_id for run in arm.runs)) for arm in (a, b)]
    return Condition(name="task set", a=sides[0], b=sides[1])


def _task_set(manifest: Manifest) -> str | None:
    if manifest.taskset_sha is None and manifest.tasks is None:
        return None
    names = ", ".join(manifest.tasks or ())
    return names if manifest.taskset_sha is None else f"{manifest.taskset_sha} {names}".strip()


def _profile(a: Gathered, b: Gathered) -> Condition:
    """By digest where both arms have decision logs, else by name."""
    digests = [_one("profile", _digests(arm)) for arm in (a, b)]
    if None not in digests:
        return Condition(name="profile", a=digests[0], b=digests[1])
    names = [_one("profile", _names(arm)) for arm in (a, b)]
    return Condition(name="profile", a=names[0], b=names[1])


def _capabilities(a: Gathered, b: Gathered) -> Iterator[Condition]:
    """What was left out of the draws for the sake of another harness, when either arm left anything out."""
    sides = [_one("capabilities", _left_out(arm)) for arm in (a, b)]
    if any(side not in (None, _NOTHING) for side in sides):
        yield Condition(name="capabilities", a=sides[0], b=sides[1])


def _left_out(arm: Gathered) -> Sequence[str]:
    return [trace.left_out or _NOTHING for trace in arm.folded.runs.values() if trace.profile]


def _digests(arm: Gathered) -> Sequence[str]:
    return [f"{trace.profile} {trace.profile_sha256}" for trace in arm.folded.runs.values() if trace.profile]


def _names(arm: Gathered) -> Sequence[str]:
    found = [run.profile for run in arm.runs if run.profile]
    return found or [m.profile for m in arm.manifests.values() if m.profile]
