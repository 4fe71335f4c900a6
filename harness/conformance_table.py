"""The findings as a table that lists every cell; its last line says how many pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.conformance_evidence import Retry, sha256_of
from harness.conformance_runner import CellResult, Findings
from scheduler.dialect import Dialect, points_back

_HEADINGS = ("tool", "kind", "timing", "result", "µs", "same call again", "after a kill", "after a crash")


def table_text(findings: Findings, dialect: Dialect) -> str:
    """Every cell, then why some fail or are gaps, then ``N of M cells pass``."""
    starts = f"{findings.repeat} start{'s' if findings.repeat > 1 else ''} each"
    lines = [f"{findings.harness} {findings.version}, {starts}", ""]
    lines += _aligned([_HEADINGS, *(_row(result, dialect) for result in findings.results)])
    notes = list(_notes(findings))
    if notes:
        lines += ["", *notes]
    lines += ["", f"{findings.passed} of {len(findings.results)} cells pass"]
    return "\n".join(lines)


def _row(result: CellResult, dialect: Dialect) -> tuple[str, ...]:
    cell = result.cell
    return (
        cell.title,
        cell.kind,
        cell.timing,
        "FAIL" if result.status == "fail" else result.status,
        "-" if result.latency_us is None else f"{result.latency_us:.0f}",
        retry_of(result, dialect) or "-",
        (result.resume or "-").partition(":")[0],
        (result.crash or "-").partition(":")[0],
    )


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _notes(findings: Findings) -> Iterator[str]:
    for result in findings.results:
        name = f"{result.cell.title} {result.cell.kind}"
        if result.cell.gap is not None:
            yield f"gap: {name}: {result.cell.gap}"
        yield from (f"FAIL: {name}: {sentence}" for sentence in result.wrong)
        more = sum(seen.asked - 1 for seen in result.evidence)
        if more:
            yield f"asked again: {name}: {more} times it failed by what the tool itself gave"
    for tool, reason in findings.not_probed.items():
        yield f"not probed: {tool}: {reason}"
    for family, tool in findings.stands_in.items():
        yield f"no tool for {family} by default: {tool} stands in for it"
    if not findings.looks_kept:
        yield "this file system does not tell that a file was read: a read that ran leaves no trace here"


def retry_of(result: CellResult, dialect: Dialect) -> str | None:
    """What the same call without a fault brought, in all repeats: in a few words, or None when not made."""
    words = {_retry_words(seen.retry, result, dialect) for seen in result.evidence if seen.retry is not None}
    return " / ".join(sorted(words)) or None


def _retry_words(retry: Retry, result: CellResult, dialect: Dialect) -> str:
    cell = result.cell
    if retry.fired:
        return "faulted"
    if retry.skipped == "dereferenced":
        return "true result (not a back-reference)"
    if points_back(dialect.form(cell.tool, cell.family), retry.shown.own):
        return "back-reference"
    return "true result" if retry.truth == sha256_of(retry.shown.own) else "something else"
