"""The fault kinds. Each is one small file that registers itself; this file only lists them."""

from scheduler.faults.registry import KINDS, Kind, Rewrite, Scene, Skip, Withheld

# Importing a kind registers it.
from scheduler.faults import (  # isort: skip
    empty,
    locked,
    not_found,
    permission_denied,
    phantom_success,
    post_effect_error,
    slow,
    stale,
    timeout,
    timeout_after_effect,
    truncated,
    wrong_data,
)

__all__ = [
    "KINDS",
    "Kind",
    "Rewrite",
    "Scene",
    "Skip",
    "Withheld",
    "empty",
    "locked",
    "not_found",
    "permission_denied",
    "phantom_success",
    "post_effect_error",
    "slow",
    "stale",
    "timeout",
    "timeout_after_effect",
    "truncated",
    "wrong_data",
]
