"""What the command shows: tables in a terminal, plain lines when piped."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from proxy.terminal import tell, write

if TYPE_CHECKING:
    from harness.doctor import Finding
    from scoring.verify import Verification


class OnError(StrEnum):
    """What happens to a request that the injector failed on."""

    forward = "forward"
    block = "block"


def _show(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table in a terminal; tab-separated lines when piped."""
    if not sys.stdout.isatty():
        write("\n".join("\t".join(row) for row in [headings, *rows]))
        return
    # Only here: serving, which starts with this module, shows no table.
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    Console(highlight=False).print(table)


def show_profiles() -> None:
    from configs import load_profile, profile_names
    from scheduler.call import FAMILIES
    from scheduler.faults import KINDS

    rows = []
    for name in profile_names():
        profile = load_profile(name)
        rows.append([name, f"{profile.rate:.0%}", profile.description])
    _show(["profile", "rate per call", "what it is"], sorted(rows, key=lambda row: "-" in row[0]))
    write("")
    _show(
        ["kind", *FAMILIES, "timing"],
        [
            [kind.name, *("x" if family in kind.families else "-" for family in FAMILIES), kind.timing]
            for kind in KINDS.values()
        ],
    )


def show_harnesses() -> None:
    from harness.doctor import known_harnesses

    _show(
        ["harness", "name", "installed", "pinned", "injection"],
        [
            [known.name, known.title, known.installed or "no", known.pinned or "-", known.state]
            for known in known_harnesses()
        ],
    )


def show_findings(findings: Sequence[Finding]) -> None:
    for finding in findings:
        mark = "FAIL" if finding.failed else ("note" if finding.note else "ok")
        write(f"{mark:<5}{finding.what}")


def show_verification(result: Verification) -> None:
    for problem in result.problems:
        tell(str(problem))
    for difference in result.differences:
        write(str(difference))
    if result.damaged:
        write(f"{result.damaged} records could not be read")
    if result.ok:
        write(f"{result.decisions} decisions of {result.runs} runs recomputed: no difference")
    else:
        write(f"{result.decisions} decisions of {result.runs} runs recomputed: this log does not hold")
