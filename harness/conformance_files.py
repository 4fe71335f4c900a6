"""What a conformance run leaves behind: the capability file, and on request the evidence beside it."""

from __future__ import annotations

import datetime
import io
from pathlib import Path

import msgspec
from ruamel.yaml import YAML

from configs import asked_digest, dialect
from harness.conformance_runner import CellResult, Findings
from harness.conformance_table import retry_of
from scheduler.capability import Capability, Cell, parse_capability
from scheduler.dialect import Dialect

_MOST_CHARS = 300


def capability_of(findings: Findings, date: datetime.date) -> Capability:
    """The findings as the schedule reads them: what failed is a gap, too. CapabilityError when they do not
    fit, which would be a fault of the suite."""
    # A tool whose cells were all left out was on no list that was seen.
    tools = dict.fromkeys((*findings.tools, *(result.cell.tool for result in findings.results)))
    return parse_capability(
        {
            "harness": findings.harness,
            "version": findings.version,
            "date": date,
            "tools": tuple(tools),
            "tools_sha256": findings.tools_digest,
            "asked_sha256": asked_digest(findings.harness),
            "stand_ins": dict(findings.stands_in),
            "not_probed": dict(findings.not_probed),
            "cells": tuple(_cell(result, dialect(findings.harness)) for result in findings.results),
        },
        "the findings",
    )


def _cell(result: CellResult, words: Dialect) -> Cell:
    cell = result.cell
    reason = cell.gap
    if result.status == "fail":
        reason = f"failed: {'; '.join(result.wrong)}"
    added = next((seen.shown[0].appended.strip() for seen in result.evidence if seen.shown), "")
    return Cell(
        tool=cell.tool,
        family=cell.family,
        kind=cell.kind,
        result="pass" if result.status == "pass" else "gap",
        reason=reason,
        runs=len(result.evidence),
        evidence=tuple(seen.digest for seen in result.evidence),
        latency_us=result.latency_us,
        added=added[:_MOST_CHARS] or None,
        retry=retry_of(result, words),
        resume=result.resume,
        crash=result.crash,
    )


def write_capability(capability: Capability, folder: Path) -> Path:
    """Writes ``<harness>@<version>.yaml``; OSError when that is not possible."""
    yaml = YAML()
    yaml.width = 110
    text = io.StringIO()
    text.write(f"# Written by `chaosproxy conformance {capability.harness}`.\n")
    yaml.dump(capability.data(), text)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{capability.name}.yaml"
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


def write_evidence(findings: Findings, folder: Path) -> Path:
    """One JSON file per cell and repeat, whose SHA-256 stands in the capability file; OSError as above."""
    place = folder / f"{findings.harness}@{findings.version}.evidence"
    for result in findings.results:
        for seen in result.evidence:
            path = place / result.cell.name / f"{seen.repeat}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(msgspec.json.encode(seen))
    return place
