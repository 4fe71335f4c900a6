"""Each after-kind on a read and on a shell call of every other harness and wire, the endpoint as witness.

A start of these programs takes seconds, so one session carries all the cells of its harness; each cell has a
file and a call of its own, and is judged by itself.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from configs import dialect
from harness.received import Received
from harness.turns import ToolCall
from scheduler.faults import KINDS
from tests.e2e.stage import OTHERS, SOCKETS, Played, Speech, Stage, call_turns, forced, result_of

_AFTER = [kind for kind in KINDS.values() if kind.timing == "after"]


@dataclass(frozen=True)
class Cell:
    """One kind on one call. ``name`` is in the name of its file, and so in the arguments of its call."""

    family: str
    kind: str

    @property
    def name(self) -> str:
        return f"{self.family}-{self.kind.replace('_', '-')}"

    @property
    def file(self) -> str:
        return f"{self.name}.txt"

    @property
    def lines(self) -> list[str]:
        head = [
            f"def {self.name}():",
            f"    return 41  # marker of {self.name}",
            f"limit of {self.name} = 250",
        ]
        return head + [f"row {n} of {self.name} is {n * 11}" for n in range(1, 25)]

    def calls(self, speech: Speech) -> list[ToolCall]:
        """The cell's calls; its fault is on the last one."""
        if self.kind == "stale":
            change = speech.runs(f"sleep 0.05; sed -i 's/ is / is now /' {self.file}")
            return [self._look(speech), change, self._look(speech)]
        if self.family == "read":
            return [speech.reads(self.file)]
        return [speech.runs(f"echo done >> effect-{self.name}; cat {self.file}")]

    def _look(self, speech: Speech) -> ToolCall:
        # Nothing is stale on a command that does anything else than to look.
        return speech.reads(self.file) if speech.read else speech.runs(f"grep -n of {self.file}")

    def rule(self, speech: Speech) -> dict[str, Any]:
        tool = speech.tool(self.family)
        if self.kind == "stale":
            look = self.file if speech.read else f"grep -n of {self.file}"
            return {"tool": tool, "match": re.escape(look), "nth": 2, "kind": self.kind}
        return {"tool": tool, "match": re.escape(self.file), "kind": self.kind}


def _cells(speech: Speech) -> list[Cell]:
    read = [Cell("read", kind.name) for kind in _AFTER if "read" in kind.families] if speech.read else []
    shell = [Cell("shell", kind.name) for kind in _AFTER if "shell" in kind.families]
    return read + shell + ([] if speech.read else [Cell("search", "stale")])


CELLS = [(name, cell) for name, (speech, _) in OTHERS.items() for cell in _cells(speech)]


@dataclass(frozen=True)
class Session:
    """One session with all the cells of its harness. ``places``: which call of it carries a cell's fault."""

    played: Played
    places: dict[Cell, int]

    def decision(self, cell: Cell) -> dict[str, Any]:
        return self.played.of("decision")[self.places[cell]]

    def shown(self, cell: Cell) -> list[tuple[Received, str]]:
        """Every request that has the cell's result, and that result."""
        place = self.places[cell]
        found = []
        for request in self.played.turns:
            view = request.conversation
            assert view is not None
            if len(view.results) > place:
                found.append((request, result_of(request, place).text))
        return found


@pytest.fixture(scope="module")
def session_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def play(name: str) -> Session:
        stage = Stage(name, tmp_path_factory.mktemp(name))
        cells = _cells(stage.speech)
        stage.write({cell.file: "\n".join(cell.lines) + "\n" for cell in cells})
        calls: list[ToolCall] = []
        places = {}
        for cell in cells:
            calls += cell.calls(stage.speech)
            places[cell] = len(calls) - 1
        calls += [stage.speech.runs("echo between"), stage.speech.runs("echo again")]
        played = stage.play(
            call_turns(*calls),
            forced(*(cell.rule(stage.speech) for cell in cells), kinds={"slow": {"seconds": 0.1}}),
        )
        assert played.outcome.exit_code == 0, played.outcome.stderr[-2000:]
        assert not played.of("error")
        assert len(played.of("decision")) >= len(calls)
        return Session(played, places)

    return play


@pytest.mark.parametrize(("name", "cell"), CELLS, ids=[f"{name} {cell.name}" for name, cell in CELLS])
def test_the_payload_reaches_the_model_and_stays(session_of: Any, name: str, cell: Cell) -> None:
    session: Session = session_of(name)
    decision, shown = session.decision(cell), session.shown(cell)
    assert (decision["fired"], decision["kind"], decision["skipped"]) == (True, cell.kind, None)
    assert decision["latency_us"] > 0
    assert len(shown) >= 3
    texts = {text for _, text in shown}
    assert len(texts) == 1, "it differs from turn to turn"
    (text,) = texts
    if cell.family == "shell":
        effect = session.played.workspace / f"effect-{cell.name}"
        assert effect.read_text() == "done\n", "the tool does its work, once"
    deliveries = [r for r in session.played.of("delivery") if r["call_id"] == decision["call_id"]]
    if cell.kind == "slow":
        assert not deliveries
        assert [line for line in cell.lines if not _has(text, line)] == [], text
        return
    _is_the_payload(name, decision, text)
    _is_no_original(cell, decision, shown)
    _adds_up(OTHERS[name][0].name, cell, text)
    assert {r["payload_sha256"] for r in deliveries} == {decision["payload_sha256"]}
    # What the endpoint keeps is sent once.
    resends = 0 if name in SOCKETS else len(shown) - 1
    assert [r["first"] for r in deliveries] == [True] + [False] * resends


def _is_the_payload(name: str, decision: dict[str, Any], text: str) -> None:
    own, _ = dialect(OTHERS[name][0].name).split_appended(text)
    assert hashlib.sha256(own.encode()).hexdigest() == decision["payload_sha256"]
    assert decision["payload_sha256"] != decision["original_sha256"]
    for word in ("inject", "chaos", "fault"):
        assert word not in text.lower()


def _has(text: str, line: str) -> bool:
    """Whether a line stands in it, however it is quoted there."""
    return line in text or json.dumps(line)[1:-1] in text


def _is_no_original(cell: Cell, decision: dict[str, Any], shown: list[tuple[Received, str]]) -> None:
    """What the tool printed is nowhere in what the endpoint received; of most kinds, not a line of it."""
    now = [line.replace(" is ", " is now ") for line in cell.lines[3:]]
    lines = now if cell.kind == "stale" else cell.lines
    for request, text in shown:
        body = request.plain_body.decode() + json.dumps(request.before)
        there = [body.find(line) for line in lines if line in body]
        if cell.kind in ("truncated", "wrong_data"):
            assert there
            assert len(there) < len(lines) or there != sorted(there), "all lines, in their order"
        else:
            assert not there
        if cell.kind == "stale":
            assert all(_has(text, line) for line in cell.lines[3:])
    assert decision["original_bytes"] > 0


def _adds_up(harness: str, cell: Cell, text: str) -> None:
    """What the harness says about its own result: line numbers, totals, tokens."""
    counted = re.findall(r"\bOriginal token count: (\d+)\nOutput:\n([\s\S]*)", text)
    for said, own in counted:
        assert int(said) == -(-len(own.encode()) // 4)
    numbers = [int(n) for n in re.findall(r"(?m)^\s*(\d+)(?:: |\t)", text)]
    assert cell.family == "search" or numbers == list(range(1, len(numbers) + 1))
    for first, last in re.findall(r"Showing lines (\d+)-(\d+) of", text):
        rows = [line for line in text.split("\n") if f" of {cell.name}" in line or "def " in line]
        assert int(last) - int(first) + 1 == len(rows)
    for said in re.findall(r"End of file - total (\d+) lines", text):
        assert int(said) == len(numbers)
    if cell.kind == "wrong_data":
        assert len(re.findall(r"\w+ of |def |return ", text)) >= len(cell.lines) - 3
    if cell.family == "shell" and cell.kind in ("post_effect_error", "timeout_after_effect"):
        assert not re.search(r"(?:code|Code:?|\"returncode\":) 0\b", text)
