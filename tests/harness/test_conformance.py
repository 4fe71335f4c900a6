"""The conformance suite, with the reference agent as the harness: it passes a proxy that works, and turns red
for every proxy that does not do what it says."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from configs import capability_names, dialect, load_capability, read_yaml
from harness.adapters import adapter_named
from harness.conformance_files import capability_of, write_capability, write_evidence
from harness.conformance_plan import Site, short_plan
from harness.conformance_probes import Cell, ProbeSet, cells_of, load_probes
from harness.conformance_runner import Findings, Suite, run_suite
from harness.conformance_table import table_text
from proxy.exchange import Exchange, Head
from proxy.injector import Injector
from scheduler.capability import parse_capability

_PICKED = {
    ("read", "wrong_data"),
    ("read", "not_found"),
    ("write", "permission_denied"),
    ("shell", "post_effect_error"),
    ("shell", "phantom_success"),
}


class Silent:
    """Progress that nobody looks at."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int, str]] = []

    def step(self, done: int, of: int, what: str) -> None:
        self.steps.append((done, of, what))

    def say(self, line: str) -> None:
        pass


def _picked(probes: ProbeSet, picked: Collection[tuple[str, str]]) -> tuple[Cell, ...]:
    cells = cells_of(probes, dialect("reference"))
    return tuple(cell for cell in cells if (cell.title, cell.kind) in picked)


def _play(
    folder: Path,
    wrap: Callable[[Injector], Injector] = lambda injector: injector,
    *,
    cells_per_start: int = 24,
    safety: bool = False,
    repeat: int = 1,
    picked: Collection[tuple[str, str]] = _PICKED,
) -> tuple[Findings, Silent]:
    adapter = adapter_named("reference")
    probes = load_probes("reference").model_copy(update={"cells_per_start": cells_per_start})
    progress = Silent()
    cells = _picked(probes, picked)
    suite = Suite(adapter, adapter.find(), probes, cells, repeat, timeout_s=60, safety=safety, wrap=wrap)
    return run_suite(suite, folder, progress), progress


def _wrong(findings: Findings) -> dict[str, str]:
    return {f"{r.cell.tool} {r.cell.kind}": "; ".join(r.wrong) for r in findings.results}


def test_a_proxy_that_works_passes_every_cell(tmp_path: Path) -> None:
    findings, progress = _play(tmp_path, safety=True, repeat=2)
    assert _wrong(findings) == dict.fromkeys(_wrong(findings), "")
    assert len(findings.results) == findings.passed == len(_PICKED)
    assert [done for done, _, _ in progress.steps] == list(range(1, 2 * len(_PICKED) + 1))
    assert {result.resume for result in findings.results} == {"kept"}
    assert {result.crash for result in findings.results} == {"error record, run invalid"}
    assert all(len(result.evidence) == 2 for result in findings.results)

    table = table_text(findings, dialect("reference"))
    assert table.splitlines()[-1] == "5 of 5 cells pass"
    for result in findings.results:
        assert f"{result.cell.title} " in table
        assert result.cell.kind in table

    capability = capability_of(findings, datetime.date(2026, 1, 2))
    written = write_capability(capability, tmp_path / "out")
    assert written.name == "reference@1.0.0.yaml"
    assert parse_capability(read_yaml(written.read_text("utf-8"), "it"), "it") == capability
    assert not capability.gaps()
    evidence = write_evidence(findings, tmp_path / "out")
    assert len(list(evidence.rglob("*.json"))) == 10


class _Wrapped:
    """An injector with something in front of it; what is not said here is the injector's own."""

    def __init__(self, real: Injector) -> None:
        self.real = real

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)


class _InjectsNothing(_Wrapped):
    """Lets everything pass, as a proxy does whose hooks are never called."""

    def on_request(self, run_id: str, head: Head, body: bytes) -> Exchange:
        return Exchange(self.real.runs.get(run_id), head, body, len(body))

    def on_response_head(self, exchange: Exchange, status: int, headers: Mapping[str, str]) -> None:
        pass

    def on_response_chunk(self, exchange: Exchange, chunk: bytes) -> bytes:
        return chunk

    def on_response_end(self, exchange: Exchange) -> None:
        pass


class _LogsOnly(_Wrapped):
    """Decides and writes down, and sends what came in."""

    def on_request(self, run_id: str, head: Head, body: bytes) -> Exchange:
        exchange = self.real.on_request(run_id, head, body)
        exchange.body = body
        return exchange


class _RewritesOnce(_Wrapped):
    """Sends each payload in one request, and the true result after that."""

    def __init__(self, real: Injector) -> None:
        super().__init__(real)
        self._sent = False

    def on_request(self, run_id: str, head: Head, body: bytes) -> Exchange:
        exchange = self.real.on_request(run_id, head, body)
        if exchange.carried and self._sent:
            exchange.body = body
        self._sent = self._sent or bool(exchange.carried)
        return exchange


class _LetsItRun(_Wrapped):
    """Withholds no call, whatever the log says."""

    def on_response_chunk(self, exchange: Exchange, chunk: bytes) -> bytes:
        self.real.on_response_chunk(exchange, chunk)
        return chunk


class _TellsElsewhere(_Wrapped):
    """Replaces the result, and repeats the true one beside it."""

    def on_request(self, run_id: str, head: Head, body: bytes) -> Exchange:
        exchange = self.real.on_request(run_id, head, body)
        if exchange.body is not body:
            request = json.loads(exchange.body)
            true = json.loads(body)["messages"][-1]["content"][-1]["content"]
            request["messages"][-1]["content"].append({"type": "text", "text": f"(was: {true})"})
            exchange.body = json.dumps(request).encode()
        return exchange


def test_a_proxy_that_injects_nothing_turns_every_cell_red(tmp_path: Path) -> None:
    wrong = _wrong(_play(tmp_path, _InjectsNothing)[0])
    assert len(wrong) == len(_PICKED)
    for text in wrong.values():
        assert "no decision in the log" in text
    for cell in ("read wrong_data", "shell post_effect_error", "read not_found"):
        assert "the endpoint received the true result" in wrong[cell]
    for cell in ("write permission_denied", "shell phantom_success"):
        assert "the tool ran: the disk has changed" in wrong[cell]


def test_a_proxy_that_logs_without_rewriting_turns_every_cell_red(tmp_path: Path) -> None:
    wrong = _wrong(_play(tmp_path, _LogsOnly)[0])
    for text in wrong.values():
        assert "what the endpoint received is not the payload of the log" in text
    assert "the endpoint received the true result" in wrong["read wrong_data"]
    assert "the endpoint received the true result" in wrong["shell post_effect_error"]
    for cell in ("write permission_denied", "read not_found", "shell phantom_success"):
        assert f"given away by '{cell.replace(' ', '__')}'" in wrong[cell]
        assert "given away by 'no such tool'" in wrong[cell]
        assert "the call itself was changed" in wrong[cell]
    for cell in ("read wrong_data", "shell post_effect_error"):
        assert "given away" not in wrong[cell], "one cell does not blacken the next"


def test_a_proxy_that_rewrites_once_and_then_stops_turns_every_cell_red(tmp_path: Path) -> None:
    wrong = _wrong(_play(tmp_path, _RewritesOnce, cells_per_start=1)[0])
    for text in wrong.values():
        assert "the fault evaporates: another text after 1 requests" in text
        assert "not the payload of the log" not in text


def test_a_proxy_that_lets_the_tool_run_turns_every_before_cell_red(tmp_path: Path) -> None:
    findings, _ = _play(tmp_path, _LetsItRun)
    wrong = _wrong(findings)
    for result in findings.results:
        text = wrong[f"{result.cell.tool} {result.cell.kind}"]
        if result.cell.timing == "after":
            assert not text
        elif result.cell.tool == "read":
            assert not findings.looks_kept or "its files were looked at" in text
        else:
            assert "the tool ran: the disk has changed" in text


def test_the_true_result_is_found_wherever_it_stands(tmp_path: Path) -> None:
    wrong = _wrong(_play(tmp_path, _TellsElsewhere, cells_per_start=1)[0])
    for cell in ("read wrong_data", "shell post_effect_error"):
        assert "the true result stands in a request" in wrong[cell]
        assert "not the payload" not in wrong[cell]
    for cell in ("write permission_denied", "read not_found", "shell phantom_success"):
        assert "given away by 'no such tool'" in wrong[cell]


_EDITS = {("write", "post_effect_error"), ("edit", "post_effect_error"), ("edit", "permission_denied")}


class _Echoes(_Wrapped):
    """A harness whose results of a write or an edit repeat what the model wrote."""

    def on_request(self, run_id: str, head: Head, body: bytes) -> Exchange:
        return self.real.on_request(run_id, head, self.echoed(body))

    @staticmethod
    def echoed(body: bytes) -> bytes:
        request = json.loads(body)
        written = {}
        for block in _blocks(request):
            if block["type"] == "tool_use":
                said = block["input"].get("content") or block["input"].get("new")
                written[block["id"]] = said
            elif block["type"] == "tool_result" and written[block["tool_use_id"]] and "is_error" not in block:
                block["content"] += f"\nNow it reads:\n{written[block['tool_use_id']]}"
        return json.dumps(request).encode()


class _EchoesAndTells(_Echoes):
    """The same, and a proxy that repeats the true result beside the payload."""

    def on_request(self, run_id: str, head: Head, body: bytes) -> Exchange:
        exchange = super().on_request(run_id, head, body)
        request = json.loads(exchange.body)
        true = json.loads(self.echoed(body))["messages"][-1]["content"]
        if exchange.carried and request["messages"][-1]["content"] != true:
            told = {"type": "text", "text": f"(was: {true[-1]['content']})"}
            request["messages"][-1]["content"].append(told)
            exchange.body = json.dumps(request).encode()
        return exchange


def _blocks(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for message in request["messages"]:
        if isinstance(message["content"], list):
            yield from message["content"]


def test_what_the_model_wrote_itself_is_no_leak(tmp_path: Path) -> None:
    findings, _ = _play(tmp_path, _Echoes, picked=_EDITS)
    assert _wrong(findings) == dict.fromkeys(_wrong(findings), "")
    assert len(findings.results) == len(_EDITS)
    for result in findings.results:
        true = result.evidence[0].true
        assert true is not None
        assert "Now it reads:" in true.own, "the harness of this test repeats what was written"


def test_what_the_model_wrote_itself_is_a_leak_anywhere_but_in_the_call(tmp_path: Path) -> None:
    wrong = _wrong(_play(tmp_path, _EchoesAndTells, picked=_EDITS, cells_per_start=1)[0])
    assert "the true result stands in a request: 'first of" in wrong["write post_effect_error"]
    assert "_limit = 999'" in wrong["edit post_effect_error"]


def test_a_gap_of_an_older_run_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probes = load_probes("reference")
    cells = tuple(
        {"tool": cell.tool, "family": cell.family, "kind": cell.kind, "result": "gap", "reason": "it failed"}
        for cell in _picked(probes, _PICKED)
    )
    tools = ("read", "write", "edit", "shell")
    older = parse_capability(
        {
            "harness": "reference",
            "version": "1.0.0",
            "date": "2026-01-02",
            "tools": tools,
            "tools_sha256": "a" * 64,
            "cells": cells,
        },
        "an older run",
    )
    monkeypatch.setattr("proxy.recording.load_capability", lambda _harness, _version: older)
    findings, _ = _play(tmp_path)
    assert _wrong(findings) == dict.fromkeys(_wrong(findings), "")


class _Starts:
    """Sessions by turns without and with the fault. In those that ``loses`` names, counted from
    1, the harness loses what it read."""

    def __init__(self, *loses: int) -> None:
        self.count = 0
        self._loses = loses

    def __call__(self, injector: Injector) -> Injector:
        self.count += 1
        return _Loses(injector) if self.count in self._loses else injector  # type: ignore[return-value]


class _Loses(_Wrapped):
    def on_request(self, run_id: str, head: Head, body: bytes) -> Exchange:
        request = json.loads(body)
        for block in _blocks(request):
            if block["type"] == "tool_result" and "_limit" in block["content"]:
                block["content"] = "(the file is empty)"
        return self.real.on_request(run_id, head, json.dumps(request).encode())


def test_a_tool_that_itself_did_something_else_is_asked_again(tmp_path: Path) -> None:
    starts = _Starts(2)
    findings, _ = _play(tmp_path, starts, picked={("read", "empty")})
    assert (findings.passed, starts.count) == (1, 4)
    assert findings.results[0].evidence[0].asked == 2
    assert "asked again: read empty: 1 times" in table_text(findings, dialect("reference"))


def test_a_tool_that_always_does_something_else_fails(tmp_path: Path) -> None:
    starts = _Starts(*range(2, 99, 2))
    findings, _ = _play(tmp_path, starts, picked={("read", "empty")})
    assert "the fault was not applied: no_change" in findings.results[0].wrong
    assert starts.count == 12


def test_another_agent_that_looks_at_the_history_is_not_the_main_one() -> None:
    probes = load_probes("reference")
    plan = short_plan(probes, _picked(probes, _PICKED), Site(Path("/w"), Path("/h"), "http://site"))
    assert plan.speaker(("hello", f"Task: {probes.prompt}")) == "main"
    assert plan.speaker(()) == "other"
    assert plan.speaker(("Look at what was done and remember it.",)) == "other"


def test_work_that_is_done_twice_is_seen(tmp_path: Path) -> None:
    class Twice(_Wrapped):
        def on_request(self, run_id: str, head: Head, body: bytes) -> Exchange:
            exchange = self.real.on_request(run_id, head, body)
            for marker in tmp_path.glob("batch0/workspace/*/marker.txt") if exchange.carried else ():
                marker.write_text(marker.read_text() + "done\n")
            return exchange

    wrong = _wrong(_play(tmp_path, Twice)[0])
    assert "did not do its work exactly once" in wrong["shell post_effect_error"]


def test_a_cell_that_fails_is_a_gap_of_the_file_and_not_of_the_table(tmp_path: Path) -> None:
    findings, _ = _play(tmp_path, _LogsOnly)
    table = table_text(findings, dialect("reference"))
    assert table.splitlines()[-1] == "0 of 5 cells pass"
    assert table.count("FAIL:") >= 5
    capability = capability_of(findings, datetime.date(2026, 1, 2))
    assert {cell.result for cell in capability.cells} == {"gap"}
    assert all((cell.reason or "").startswith("failed: ") for cell in capability.cells)
    assert capability.gaps()["read"] == ["not_found", "wrong_data"]


@pytest.mark.parametrize("name", capability_names())
def test_a_capability_file_has_every_cell(name: str) -> None:
    harness, _, version = name.rpartition("@")
    capability = load_capability(harness, version)
    assert capability is not None
    cells = cells_of(load_probes(harness), dialect(harness))
    asked = {(cell.tool, cell.family, cell.kind) for cell in cells}
    assert {(cell.tool, cell.family, cell.kind) for cell in capability.cells} == asked
    assert all(cell.runs >= 3 for cell in capability.cells if cell.result == "pass")


@pytest.mark.parametrize("kinds", [("empty",), ("timeout", "locked")])
def test_kinds_pick_cells_and_leave_their_numbers(kinds: tuple[str, ...]) -> None:
    probes = load_probes("reference")
    every = {cell.name: cell for cell in cells_of(probes, dialect("reference"))}
    some = cells_of(probes, dialect("reference"), kinds)
    assert {cell.kind for cell in some} == set(kinds)
    assert all(every[cell.name] == cell for cell in some)
