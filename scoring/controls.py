"""Controls: what must come out if the bench works at all. A failed one takes the treatment's numbers away."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

from scoring.runs import Run


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """A positive control (no faults, tasks known to pass) or a negative one (killed before any work).

    ``value`` is strict over its first attempts and must be exactly ``expected``; null without a run.
    ``against``: the runs that came out otherwise.
    """

    kind: Literal["positive", "negative"]
    expected: float
    value: float | None
    passed: int
    runs: int
    holds: bool
    against: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        said = "has no run" if self.value is None else f"scored {self.value:.3f} ({self.passed}/{self.runs})"
        must = "1" if self.expected else "0"
        end = "as it must" if self.holds else f"where exactly {must} was needed"
        return f"the {self.kind} control {said}, {end}"


def positive_control(runs: Sequence[Run], known_to_pass: Collection[str] | None = None) -> Control:
    """Every run without faults of a task that is known to pass has to pass; null: all tasks are known to."""
    counted = [run for run in runs if known_to_pass is None or run.task_id in known_to_pass]
    return _control("positive", 1.0, counted, [run for run in counted if not run.is_pass])


def negative_control(runs: Sequence[Run]) -> Control:
    """No first attempt that was killed when it had just begun may pass."""
    return _control("negative", 0.0, runs, [run for run in runs if run.is_pass])


def _control(
    kind: Literal["positive", "negative"], expected: float, runs: Sequence[Run], against: Sequence[Run]
) -> Control:
    passed = sum(run.is_pass for run in runs)
    return Control(
        kind=kind,
        expected=expected,
        value=passed / len(runs) if runs else None,
        passed=passed,
        runs=len(runs),
        holds=bool(runs) and not against,
        against=tuple(run.run_id or run.where for run in against[:100]),
    )
