"""The page: self-contained, safe, in its order, labelled where it must be."""

from __future__ import annotations

import re
import stat
from html.parser import HTMLParser
from pathlib import Path

import pytest

from scoring.compare import compare_paths
from scoring.ledger_rows import Rows
from scoring.page import effect_tiles
from scoring.report import report_html, write_comparison, write_report
from scoring.score import Score, score_paths
from tests.scoring.logs import (
    delivery,
    end,
    fault,
    published_runs,
    request,
    run,
    start,
    write_decisions,
    write_runs,
)
from tests.scoring.rich import rich_folders

VOID = {"meta", "link", "br", "col"}


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
    assert [link for link in links if link and not link.startswith("#")] == ["data:,"]
    assert not re.search(r"url\(|@import|https?://", html)
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_the_order_of_the_first_page(tmp_path: Path) -> None:
    headings = Page(report_html(served(tmp_path))).headings
    assert headings == [
        "Validity",
        "Fault exposure",
        "Effect of the faults",
        "Scores",
        "Claimed success on implicit faults",
        "After an interruption",
        "Timing × mode",
        "Tokens and time per fault",
        "Injector latency",
        "Tasks",
        "Kinds of fault",
        "Machines and manifest",
        "Read from",
        "Ledger rows",
    ]


def rich(folder: Path) -> Score:
    places = rich_folders(folder)
    return score_paths(
        [places["treated"], places["off"]], positive=[places["positive"]], negative=[places["negative"]]
    )


def test_a_rich_page_is_whole_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    page = Page(report_html(rich(tmp_path)))
    assert page.open == []
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    links = [value for name, value in page.attributes if name == "href" and value and value.startswith("#")]
    assert {link[1:] for link in links} <= set(ids)
    assert "Paired differences" in page.headings
    assert page.tags.count("svg") == 6


def test_the_rows_behind_a_number_are_the_ledgers(tmp_path: Path) -> None:
    runs = [run("t1", run_id="good"), run("t2", run_id="bad", passed=False)]
    html = report_html(score_paths([write_runs(tmp_path, *runs)]))
    assert re.search(r"passed \(1\)</strong>\s*<a href=\"#run-1\">good</a>", html)
    assert re.search(r"failed \(1\)</strong>\s*<a href=\"#run-2\">bad</a>", html)
    assert f"<td>{tmp_path}/runlog.jsonl:2</td>" in html


def test_numbers_lead_to_their_rows_and_those_of_the_baseline_have_a_table(tmp_path: Path) -> None:
    places = rich_folders(tmp_path)
    score = score_paths([places["treated"], places["off"]])
    html = report_html(score)
    for title in (
        "exposed runs",
        "faults per run",
        "effect of the faults",
        "strict",
        "gap",
        "tokens per fault",
    ):
        assert f'runs behind <span class="of">{title}</span>' in html
    rows, off = Rows(score.rows), Rows(score.baseline_rows, "off")
    effect = effect_tiles(score, rows, off)[0]
    counted = {group.label.rpartition(" (")[0]: len(group.links) for group in effect.groups}
    treated, baseline = score.rows, score.baseline_rows
    assert counted["with faults, passed"] == sum(run.is_pass for run in treated)
    assert counted["with faults, passed"] + counted["with faults, not passed"] == len(treated)
    assert counted["under off, passed"] == sum(run.is_pass for run in baseline)
    assert all(f'<tr id="{link.anchor}"' in html for group in effect.groups for link in group.links)


def test_plots_hold_what_the_tables_say(tmp_path: Path) -> None:
    html = report_html(score_paths([write_runs(tmp_path, *published_runs())]))
    forest = html[html.index('aria-labelledby="scores-plot-title"') :]
    labels = re.findall(r">(0\.\d{3})</text>", forest[: forest.index("</svg>")])
    # 65/120, 65/98, 98/120, 22/120, 0/120
    assert labels == ["0.542", "0.663", "0.817", "0.183", "0.000"]
    assert re.search(r">complete: 98\. quota_cut: 12\. restart_cut: 10\.</title>", html)
    assert html.count("10/10 passed") == 0
    assert "6/10 passed" in html or "5/10 passed" in html


def test_the_same_score_gives_the_same_page(tmp_path: Path) -> None:
    score = rich(tmp_path)
    assert report_html(score) == report_html(score)


def test_without_matplotlib_the_tables_stand_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scoring.plots.find_spec", lambda name: None)
    html = report_html(served(tmp_path))
    assert "install chaosproxy[report]" in html
    assert "<svg" not in html
    assert 'aria-label="Tasks"' in html


def test_a_failed_control_stands_over_everything(tmp_path: Path) -> None:
    places = rich_folders(tmp_path)
    score = score_paths([places["treated"]], positive=[places["off"]])
    html = report_html(score)
    assert html.index("Not interpretable.") < html.index("<h1>")


def test_a_small_run_is_a_smoke_run(tmp_path: Path) -> None:
    assert "This is a smoke run." in report_html(served(tmp_path))
    many = [run(f"t{k}") for k in range(10)]
    assert "This is a" not in report_html(score_paths([write_runs(tmp_path, *many)]))


def test_long_lists_are_cut_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scoring.ledger_rows.ROWS_SHOWN", 7)
    monkeypatch.setattr("scoring.ledger_rows._LINKS_SHOWN", 5)
    page = report_html(score_paths([write_runs(tmp_path, *published_runs())]))
    assert "113 more are not shown" in page
    assert "and 60 more" in page
    assert page.count('<tr id="run-') == 7
    # A run that the table does not show leads to the table all the same.
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(re.findall(r' id="([^"]+)"', page))
    assert '<a href="#ledger-rows">' in page


def test_a_comparison_has_a_page(tmp_path: Path) -> None:
    for name, limit in (("a", 3), ("b", 7)):
        (tmp_path / name).mkdir()
        write_runs(tmp_path / name, *(run(f"t{k}", passed=k < limit) for k in range(10)))
    comparison = compare_paths(tmp_path / "a", tmp_path / "b")
    path = tmp_path / "comparison.html"
    write_comparison(comparison, path)
    page = Page(path.read_text())
    assert page.open == []
    assert page.headings[:3] == ["Primary contrast: pass rate (strict)", "Arms", "Secondary contrasts"]
    assert "difference: +0.400" in path.read_text()


def test_a_demo_says_so_and_ranks_nothing(tmp_path: Path) -> None:
    score = served(tmp_path)
    assert "This is a demo run." in report_html(score, label="demo")
    assert "rank nothing" in report_html(score, label="demo")
    assert "This is a smoke run." in report_html(score)


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
