"""Capability files: what is refused, and what a gap does to the draw."""

from __future__ import annotations

import json
from typing import Any

import pytest

import configs
from scheduler.capability import CapabilityError, capability_name, is_file_name, parse_capability
from scheduler.fitting import family_gaps, fitting_by, gaps_of
from scheduler.schedule import draw
from tests.scheduler.calls import call, profile

SHA = "a" * 64


def data(**more: Any) -> dict[str, Any]:
    return {
        "harness": "pi",
        "version": "1.0.3",
        "date": "2026-01-31",
        "tools": ["read", "bash", "edit", "write"],
        "tools_sha256": SHA,
        "stand_ins": {"search": "bash"},
        "cells": [
            {"tool": "read", "family": "read", "kind": "empty", "result": "pass", "evidence": [SHA]},
            {"tool": "read", "family": "read", "kind": "stale", "result": "gap", "reason": "why", "runs": 3},
            {"tool": "bash", "family": "search", "kind": "locked", "result": "gap", "reason": "why"},
            {"tool": "bash", "family": "shell", "kind": "locked", "result": "pass"},
        ],
    } | more  # fmt: skip


def cell(**more: Any) -> list[dict[str, Any]]:
    return [{"tool": "read", "family": "read", "kind": "empty", "result": "pass"} | more]


def test_the_gaps_of_each_tool() -> None:
    found = parse_capability(data(), "x")
    assert found.gaps() == {"read": ["stale"], "bash": ["locked"]}
    assert found.name == "pi@1.0.3"
    assert parse_capability(json.loads(json.dumps(found.data())), "again") == found


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"cels": []}, "unknown key 'cels': did you mean 'cells'?"),
        ({"cells": cell(kind="emty")}, "cells.0.kind: unknown kind 'emty': did you mean 'empty'?"),
        ({"cells": cell(family="raed")}, "cells.0.family: unknown family 'raed': did you mean 'read'?"),
        ({"cells": cell(tool="raed")}, "unknown tool 'raed': did you mean 'read'?"),
        ({"stand_ins": {"search": "bahs"}}, "unknown tool 'bahs': did you mean 'bash'?"),
        ({"cells": cell(result="gap")}, "cells.0: a gap says its reason"),
        ({"cells": cell(result="fail")}, "cells.0.result: Input should be 'pass' or 'gap'"),
        ({"cells": cell() * 2}, "two cells for empty on read as read"),
        ({"cells": cell(evidence=["x"])}, "cells.0.evidence.0:"),
        ({"cells": cell(latency_us=-1)}, "cells.0.latency_us:"),
        ({"tools_sha256": "x"}, "tools_sha256:"),
        ({"not_probed": {"read": "why"}}, "there are cells about read, which is said not to be probed"),
        ({"date": "soon"}, "date:"),
    ],
)
def test_a_mistake_is_named(more: dict[str, Any], message: str) -> None:
    with pytest.raises(CapabilityError) as caught:
        parse_capability(data(**more), "pi.yaml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("pi.yaml: ")


def test_a_name_from_the_wire_names_a_file_and_nothing_else() -> None:
    assert is_file_name(capability_name("claude-code", "2.1.289"))
    assert is_file_name(capability_name("pi", "1.0.3-beta+2"))
    for version in ("", "../1", "1/2", ".hidden", "1 2", "1\n", "1@2", "é"):
        assert not is_file_name(capability_name("pi", version)), version
        assert configs.load_capability("pi", version) is None


def test_a_version_without_a_file_has_no_capability() -> None:
    assert configs.load_capability("pi", "0.0.0") is None
    assert configs.load_capability("no-such-harness", "1.0.0") is None


def test_every_shipped_file_can_be_read_and_knows_its_harness() -> None:
    for name in configs.capability_names():
        harness, _, version = name.rpartition("@")
        found = configs.load_capability(harness, version)
        assert found is not None
        assert found.name == name
        assert harness in configs.dialects()


def test_a_gap_moves_only_the_calls_that_had_it() -> None:
    both = profile(rate=1, weights={"read": {"stale": 1, "locked": 1, "empty": 1}})
    gaps = parse_capability(data(), "x").gaps()
    table = gaps_of(configs.dialect("pi"), both, gaps)
    moved = 0
    for n in range(200):
        asked = call("read", n, tool="read")
        with_it = draw(7, both, "t", "main", asked, fitting_by({}, "read", "read")).kind
        without = draw(7, both, "t", "main", asked, fitting_by(table, "read", "read")).kind
        assert without == with_it if with_it != "stale" else without in {"locked", "empty"}
        moved += with_it == "stale"
    assert 30 < moved < 110


def test_two_harnesses_can_leave_out_the_same() -> None:
    """By family, since their tools have other names."""
    pi, claude = configs.dialect("pi"), configs.dialect("claude-code")
    drawing = configs.load_profile("moderate")
    pi_1 = parse_capability(data(), "x")
    claude_1 = parse_capability(
        data(
            harness="claude-code", version="1", tools=["Read", "Bash"], stand_ins={},
            cells=[{"tool": "Read", "family": "read", "kind": "timeout", "result": "gap", "reason": "why"}],
        ),
        "x",
    )  # fmt: skip
    shared: dict[str, set[str]] = {}
    for dialect, capability in ((pi, pi_1), (claude, claude_1)):
        for family, kinds in family_gaps(dialect, capability).items():
            shared.setdefault(family, set()).update(kinds)
    assert shared["read"] == {"stale", "timeout"}
    tables = [gaps_of(d, drawing, c.gaps(), shared) for d, c in ((pi, pi_1), (claude, claude_1))]
    for family, tools in (
        ("read", ("read", "Read")),
        ("shell", ("bash", "Bash")),
        ("search", ("bash", "Bash")),
    ):
        fits = [
            {k for k in fitting_by(table, tool, family) if drawing.weights_of(family).get(k)}
            for table, tool in zip(tables, tools, strict=True)
        ]
        assert fits[0] == fits[1], family
        assert not fits[0] & shared.get(family, set())
    assert "timeout" in fitting_by(tables[0], "edit", "edit")


@pytest.mark.parametrize("name", configs.capability_names())
def test_what_was_shown_was_shown_with_the_words_of_today(name: str) -> None:
    """A dialect or a probe that has changed since is shown anew: `make conformance`, then its file."""
    harness, _, version = name.rpartition("@")
    capability = configs.load_capability(harness, version)
    assert capability is not None
    assert capability.asked_sha256 == configs.asked_digest(harness)
