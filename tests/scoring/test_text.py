"""The text that people read and paste."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from scoring.score import score_paths
from scoring.text import score_lines, score_tables, score_text
from tests.scoring.logs import (
    delivery,
    end,
    error,
    fault,
    published_runs,
    request,
    run,
    start,
    write_decisions,
    write_runs,
)


def test_the_published_example_ends_with_its_two_lines(tmp_path: Path) -> None:
    text = score_text(score_paths([write_runs(tmp_path, *published_runs())]))
    assert text.endswith(
        "\n\nruns: 120 | truncation_rate: 0.183 | strict: 0.542 | observed: 0.663\n"
        "headline: 0.542 (strict) — truncation above the 10% threshold\n"
    )
    assert "65/120" in text
    assert "10,000 resamples, seed 20260101" in text


@pytest.mark.parametrize(
    ("runs", "lines"),
    [
        (
            [run("t1"), run("t2", passed=False)],
            (
                "runs: 2 | truncation_rate: 0.000 | strict: 0.500 | observed: 0.500",
                "headline: 0.500 (observed) — truncation and errors within the 10% threshold",
            ),
        ),
        (
            [run("t1"), run("t2", ended="error", passed=None)],
            (
                "runs: 2 | truncation_rate: 0.000 | strict: 0.500 | observed: 1.000",
                "headline: 0.500 (strict) — errors above the 10% threshold",
            ),
        ),
        (
            [run("t1", passed=None)],
            (
                "runs: 1 | truncation_rate: 0.000 | strict: null | observed: null",
                "headline: null — no run could be judged",
            ),
        ),
        (
            [run("t1", ended="quota_cut", passed=None)],
            (
                "runs: 1 | truncation_rate: 1.000 | strict: 0.000 | observed: null",
                "headline: 0.000 (strict) — truncation above the 10% threshold",
            ),
        ),
    ],
)
def test_two_lines(tmp_path: Path, runs: list[Any], lines: tuple[str, str]) -> None:
    assert score_lines(score_paths([write_runs(tmp_path, *runs)])) == lines


def full(folder: Path, run_id: str = "r1") -> str:
    log = (start(run_id), request(run_id), fault(run_id), delivery(run_id), error(run_id), end(run_id))
    return score_text(score_paths([write_decisions(folder, *log, end(run_id, passed=True), b"torn")]))


def test_everything_that_there_is_has_its_place(tmp_path: Path) -> None:
    text = full(tmp_path)
    titles = [
        "Validity",
        "Fault exposure",
        "Scores",
        "How the runs ended",
        "Faults by timing · mode · persistence",
        "Faults by kind",
        "Faults by family",
        "Efficiency",
        "Injector latency per call",
        "Invalid runs",
        "Noticed in the files",
    ]
    assert sorted(titles, key=text.index) == titles
    for said in (
        "1: 1 of 1 runs are invalid",
        "rewrite: it broke",
        "torn last line",
        "if invalid and unjudged",
    ):
        assert said in text


def test_a_hostile_name_forges_no_line_and_no_colour(tmp_path: Path) -> None:
    text = full(tmp_path, "x\nheadline: 1.000 (strict)\x1b[31m[bold]red[/bold]")
    assert "\x1b" not in text
    assert not any(found.startswith("headline: 1.000") for found in text.splitlines())
    assert text.splitlines()[-2].startswith("runs: 1 |")
    assert "[bold]" in text.replace("\n", "")


def test_a_terminal_gets_tables_that_fit(tmp_path: Path) -> None:
    out = io.StringIO()
    score = score_paths([write_runs(tmp_path, *published_runs())])
    Console(file=out, width=80, color_system=None).print(*score_tables(score))
    assert "n_eff-Wilson" in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) <= 80
