"""The page: self-contained, safe, in its order, labelled where it must be."""

from __future__ import annotations

import re
import stat
from html.parser import HTMLParser
from pathlib import Path

from scoring.report import report_html, write_report
from scoring.score import Score, score_paths
from tests.scoring.logs import (
    delivery,
    end,
    fault,
    published_runs,
    request,
    start,
    write_decisions,
    write_runs,
)

VOID = {"meta", "link", "br", "line", "circle", "rect"}


class Page(HTMLParser):
    """Collects tags, attributes and headings; fails on tags that do not close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.headings: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def served(folder: Path, run_id: str = "r1", *, untested: bool = False) -> Score:
    log = (start(run_id, untested=untested), request(run_id), fault(run_id), delivery(run_id))
    return score_paths([write_decisions(folder, *log, end(run_id, passed=True))])


def test_the_page_needs_nothing_from_outside(tmp_path: Path) -> None:
    score = score_paths([write_runs(tmp_path, *published_runs())])
    html = report_html(score)
    page = Page(html)
    assert page.open == []
    assert not {"script", "img", "iframe", "object", "embed"} & set(page.tags)
    links = [value for name, value in page.attributes if name in ("src", "href", "xlink:href", "action")]
    assert links == ["data:,"]
    assert not re.search(r"url\(|@import|https?://", html)
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_the_order_of_the_first_page(tmp_path: Path) -> None:
    headings = Page(report_html(served(tmp_path))).headings
    assert headings == [
        "Validity",
        "Fault exposure",
        "Scores",
        "How the runs ended",
        "Faults by timing · mode · persistence",
        "Faults by kind",
        "Faults by family",
        "Efficiency",
        "Injector latency per call (slow faults left out)",
        "Tasks",
        "Read from",
    ]


def test_the_chart_shows_what_the_table_says(tmp_path: Path) -> None:
    html = report_html(score_paths([write_runs(tmp_path, *published_runs())]))
    # 65/120 of 480 units, to the right of 170.
    assert 'cx="430.0"' in html
    assert re.search(
        r'<title id="ends-chart">complete: 98\. quota_cut: 12\. restart_cut: 10\. </title>', html
    )


def test_a_demo_says_so_and_ranks_nothing(tmp_path: Path) -> None:
    score = served(tmp_path)
    assert "This is a demo run." in report_html(score, label="demo")
    assert "rank nothing" in report_html(score, label="demo")
    assert "This is a" not in report_html(score)


def test_an_untested_version_stands_in_the_first_line(tmp_path: Path) -> None:
    html = report_html(served(tmp_path, untested=True))
    assert html.index("Untested harness version: pi 1.0.3") < html.index("<h1>")


def test_names_from_a_log_are_text(tmp_path: Path) -> None:
    html = report_html(served(tmp_path, "<script>alert(1)</script>"), label="<b>x</b>")
    assert "<script" not in html
    assert "<b>" not in html
    assert "&lt;script&gt;" in html


def test_the_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(served(tmp_path), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().startswith("<!DOCTYPE html>")
