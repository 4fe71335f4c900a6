"""A log keeps which kinds fit which tools, so that it can be checked without the harness's dialect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import configs
from ledger.records import Decision, Start
from scheduler.call import Call, call_digest
from scheduler.faults import KINDS
from scheduler.fitting import fitting_by, fitting_kinds, gaps_of
from scheduler.profile import Profile
from scheduler.schedule import draw
from scoring.verify import verify_log

TS = "2026-01-01T00:00:00Z"
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("Bash", {"command": "make"}),
    ("Bash", {"command": "rg x"}),
    ("Read", {}),
    ("READ", {}),
    ("TodoWrite", {}),
    ("Monitor", {"command": "x"}),
    ("mcp__a__b", {}),
    ("heard_of_by_nobody", {}),
]


def started(profile: Profile, gaps: dict[str, list[str]]) -> Start:
    return Start(
        ts=TS,
        run_id="r",
        version="1",
        seed=7,
        profile=profile.resolved() | {"gaps": gaps},
        profile_sha256="",
        identity=profile.identity,
        harness="claude-code",
        harness_version="2.1.289",
        pid=1,
        boot_id="",
        started=TS,
        task_id="t",
        repeat=0,
        attempt=1,
    )


def decided(profile: Profile, tool: str, arguments: dict[str, Any], n: int, known: list[str]) -> Decision:
    """A decision as the dialect itself has it, without the table."""
    dialect = configs.dialect("claude-code")
    family = dialect.family(tool, arguments)
    call = Call(tool, family, call_digest(b"%d" % n), b"", 0, n)
    drawn = draw(7, profile, "t", "main", call, fitting_kinds(dialect, tool, family, known))
    kind = KINDS[drawn.kind] if drawn.kind is not None else None
    return Decision(
        ts=TS,
        run_id="r",
        conversation="c0",
        role="main",
        call_id=f"{tool}{n}",
        nth=0,
        tool=tool,
        family=family,
        occurrence=0,
        ordinal=n,
        call_digest=call.digest,
        u=drawn.u,
        rate=drawn.rate,
        fired=drawn.fired,
        kind=drawn.kind,
        timing=kind.timing if kind is not None else None,
        mode=None,
        persistence=drawn.persistence,
        forced=drawn.forced,
        wire_name=None,
        original_sha256=None,
        original_bytes=None,
        payload_sha256=None,
        payload_bytes=None,
        latency_us=1.0,
        skipped=None,
    )


@pytest.mark.parametrize("known", [{}, {"Bash": ["empty", "timeout"]}])
def test_what_does_not_fit_stands_in_the_log(tmp_path: Path, known: dict[str, list[str]]) -> None:
    profile = configs.load_profile("severe")
    gaps = gaps_of(configs.dialect("claude-code"), profile, known)
    decisions = [
        decided(profile, tool, arguments, n, known.get(tool, []))
        for tool, arguments in CALLS
        for n in range(150)
    ]
    assert {"before", "after"} <= {decision.timing for decision in decisions}
    for decision in decisions:
        assert decision.kind is None or decision.kind in fitting_by(gaps, decision.tool, decision.family)

    def found(table: dict[str, list[str]]) -> set[str]:
        path = tmp_path / "decisions.jsonl"
        records = [started(profile, table), *decisions]
        path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
        result = verify_log(path)
        assert result.decisions == len(decisions)
        return {difference.field for difference in result.differences}

    assert found(gaps) == set()
    assert "kind" in found({})
