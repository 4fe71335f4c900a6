"""The draw computed a second time, from its published formula alone: struct, hashlib, fractions, decimal.

Nothing of the scheduler is used here. ``python -m tests.scheduler.by_hand`` writes the golden file.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).with_name("golden.json")


def number(label: str, parts: Sequence[str], seed: int) -> Fraction:
    """The top 53 bits of a keyed, personalised BLAKE2b over the length-prefixed parts, over 2**53."""
    state = hashlib.blake2b(key=struct.pack(">Q", seed), person=label.encode("ascii"), digest_size=8)
    for part in parts:
        raw = part.encode("utf-8")
        state.update(struct.pack(">I", len(raw)))
        state.update(raw)
    (bits,) = struct.unpack(">Q", state.digest())
    return Fraction(bits >> 11, 1 << 53)


def race(parts: Sequence[str], weights: Mapping[str, float], seed: int) -> str | None:
    """The kind with the smallest -ln(1 - u) / weight, in fifty digits."""
    best: tuple[Decimal, str] | None = None
    with localcontext() as context:
        context.prec = 50
        for kind, weight in weights.items():
            if weight == 0:
                continue
            left = 1 - number("kind", [*parts, kind], seed)
            time = -(Decimal(left.numerator) / Decimal(left.denominator)).ln() / Decimal(weight)
            if best is None or time < best[0]:
                best = (time, kind)
    return None if best is None else best[1]


def drawn(case: Mapping[str, Any], profile: Mapping[str, Any]) -> dict[str, Any]:
    """key, u, fired, kind and persistence of one call."""
    seed, family = case["seed"], case["family"]
    digest = hashlib.sha256(case["canonical"].encode("utf-8")).hexdigest()
    is_content = profile["identity"] == "content"
    if is_content:
        key = ["content", case["task_id"], case["role"], case["tool"], digest, str(case["occurrence"])]
    else:
        key = ["ordinal", case["task_id"], case["role"], family, str(case["ordinal"])]
    short = key[:-1] if is_content else key
    permanent, transient = (Fraction(profile["persistence"][name]) for name in ("permanent", "transient"))
    stays = number("persist", short, seed) < permanent / (permanent + transient)
    used = short if stays else key
    u = number("fire", used, seed)
    weights = {
        kind: weight
        for kind, weight in profile["weights"].get(family, {}).items()
        if kind not in profile["missing"]
    }
    fired = u < Fraction(profile["rates"].get(family, profile["rate"])) and any(weights.values())
    return {
        "key": key,
        "u": float(u),
        "fired": fired,
        "kind": race(used, weights, seed) if fired else None,
        "persistence": "permanent" if stays else "transient",
        "payload": [float(number("payload", [*used, str(i)], seed)) for i in range(3)],
    }


_SEEDS = (0, 1, 7, 2**32, 2**63 + 5, 2**64 - 1)
_CALLS = (
    ("Read", "read", '{"file_path":"{ws}/a.txt"}'),
    ("Write", "write", '{"content":"naïve ☃ \\n","file_path":"{ws}/b.txt"}'),
    ("Edit", "edit", '{"file_path":"{ws}/a.txt","new_string":"1","old_string":"one"}'),
    ("Bash", "shell", '{"command":"pytest -q"}'),
    ("Bash", "search", '{"command":"rg -n TODO src"}'),
    ("LS", "list", '{"path":"{ws}"}'),
    ("WebFetch", "fetch", '{"url":"https://example.org/"}'),
    ("Agent", "task", "{}"),
    ("mcp__tickets__create", "other", '"not {json"'),
)
_WEIGHTS = {
    "read": {"empty": 2, "truncated": 3, "wrong_data": 3, "stale": 1, "post_effect_error": 3},
    "write": {"empty": 1, "post_effect_error": 3},
    "edit": {"post_effect_error": 1},
    "shell": {"empty": 0.5, "truncated": 1.25, "post_effect_error": 2, "timeout_after_effect": 1, "slow": 0},
    "search": {"truncated": 1, "wrong_data": 1, "stale": 1},
    "list": {"empty": 1, "stale": 1},
    "fetch": {"timeout_after_effect": 3, "wrong_data": 1},
    "other": {"slow": 1, "empty": 1, "post_effect_error": 1},
}
# With kinds that keep the call from running.
_WITHHELD = {
    "read": {
        "empty": 2,
        "wrong_data": 1.5,
        "permission_denied": 2,
        "not_found": 2,
        "locked": 1,
        "timeout": 1,
    },
    "write": {"post_effect_error": 3, "permission_denied": 0.5, "phantom_success": 1},
    "edit": {"phantom_success": 1, "locked": 0.25, "timeout": 0.25},
    "shell": {"truncated": 3, "permission_denied": 1, "not_found": 1, "timeout": 2, "phantom_success": 1},
    "search": {"not_found": 1, "timeout": 1},
    "list": {"permission_denied": 1},
    "fetch": {"timeout_after_effect": 3, "timeout": 3},
    "task": {"permission_denied": 0.5, "timeout": 1},
    "other": {"locked": 1, "not_found": 1, "post_effect_error": 2},
}
PROFILES: dict[str, dict[str, Any]] = {
    "tenth": {
        "rate": 0.1,
        "rates": {},
        "identity": "content",
        "persistence": {"transient": 3, "permanent": 1},
    },
    "half": {
        "rate": 0.5,
        "rates": {"write": 0.9, "edit": 0},
        "identity": "content",
        "persistence": {"transient": 1, "permanent": 1},
    },
    "always": {
        "rate": 1,
        "rates": {},
        "identity": "ordinal",
        "persistence": {"transient": 2, "permanent": 1},
    },
    "withheld": {
        "rate": 0.6,
        "rates": {"task": 1},
        "identity": "content",
        "persistence": {"transient": 3, "permanent": 1},
        "weights": _WITHHELD,
    },
    # The same, on a tool that has no words for some of them.
    "speechless": {
        "rate": 0.6,
        "rates": {"task": 1},
        "identity": "content",
        "persistence": {"transient": 3, "permanent": 1},
        "weights": _WITHHELD,
        "missing": ["permission_denied", "locked", "timeout"],
    },
}


def cases() -> Iterator[dict[str, Any]]:
    """Every seed, profile and call, at two places in two tasks."""
    for seed in _SEEDS:
        for profile in PROFILES:
            for tool, family, canonical in _CALLS:
                for place, (task, role) in enumerate((("default", "main"), ("fix/ünï", "sub"))):
                    yield {
                        "seed": seed,
                        "profile": profile,
                        "task_id": task,
                        "role": role,
                        "tool": tool,
                        "family": family,
                        "canonical": canonical,
                        "occurrence": place * 11,
                        "ordinal": 3 + place,
                    }


def golden() -> dict[str, Any]:
    """The content of the golden file."""
    profiles = {
        name: {"name": name, "weights": _WEIGHTS, "missing": []} | data for name, data in PROFILES.items()
    }
    return {
        "profiles": profiles,
        "cases": [case | {"drawn": drawn(case, profiles[case["profile"]])} for case in cases()],
    }


if __name__ == "__main__":
    data = golden()
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in data["cases"])
    head = json.dumps(data["profiles"], indent=1)
    GOLDEN.write_text(f'{{"profiles": {head},\n"cases": [\n{lines}\n]}}\n', encoding="utf-8")
