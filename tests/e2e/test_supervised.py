"""Supervised runs of real harnesses: killed at every checkpoint and resumed, cut by quotas, timed out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.adapter import NpmRecipe
from harness.adapters import adapter_named
from harness.npm import install
from harness.script import Misstep, Policy, Script
from harness.turns import Conversation, PastTurn, ToolCall, Turn, Usage
from ledger.journal import CHECKPOINTS
from scoring.verify import verify_log
from tests.harness.supervised import Bench, alive, figures, script

QUOTA = '{"type":"error","error":{"type":"insufficient_quota","message":"You exceeded your current quota"}}'


@dataclass(frozen=True)
class LooksAgain:
    """A script whose edit, when the harness refuses it, is preceded by another look.

    Claude Code stores results late: a kill may take a read that the model has seen, and the resumed session
    then refuses to edit a file that it does not know as read.
    """

    script: Script
    look: Turn
    edit: Turn

    def __call__(self, view: Conversation) -> Turn:
        edits = [turn for turn in view.turns if _same_tools(turn, self.edit)]
        # An edit whose result the kill took is said to have failed, too: that one may be on disk.
        if not edits or not any("has not been read" in result.text for result in edits[-1].results):
            return self.script(view)
        looked = _same_tools(next(turn for turn in reversed(view.turns) if turn.calls), self.look)
        return self.edit if looked else self.look


def _same_tools(past: PastTurn, turn: Turn) -> bool:
    return [call.tool for call in past.calls] == [call.tool for call in turn.calls]


@dataclass(frozen=True)
class Hand:
    """How one harness names the tools of the script."""

    name: str
    shell: str
    read: Callable[[str], ToolCall]
    edit: Callable[[str, str, str], ToolCall]
    command: str = "command"
    also: Mapping[str, Any] = field(default_factory=dict)

    def runs(self, command: str, usage: Usage | None = None) -> Turn:
        return Turn("Next.", (ToolCall(self.shell, {self.command: command, **self.also}),), usage)

    def work(self) -> LooksAgain:
        """Reads, replaces one word by another, and tests."""
        look = Turn("I look.", (self.read("notes.txt"),))
        edit = Turn("I edit.", (self.edit("notes.txt", "first", "second"),))
        return LooksAgain(script(look, edit, self.runs("python -B test_notes.py")), look, edit)


def _claude_edit(path: str, old: str, new: str) -> ToolCall:
    return ToolCall("Edit", {"file_path": path, "old_string": old, "new_string": new})


def _pi_edit(path: str, old: str, new: str) -> ToolCall:
    return ToolCall("edit", {"path": path, "edits": [{"oldText": old, "newText": new}]})


def _codex_edit(path: str, old: str, new: str) -> ToolCall:
    patch = f"*** Begin Patch\n*** Update File: {path}\n@@\n-{old}\n+{new}\n*** End Patch\n"
    return ToolCall("apply_patch", raw_arguments=patch)


HANDS = {
    "claude-code": Hand(
        "claude-code", "Bash", lambda path: ToolCall("Read", {"file_path": path}), _claude_edit
    ),
    "pi": Hand("pi", "bash", lambda path: ToolCall("read", {"path": path}), _pi_edit),
    "codex": Hand(
        "codex",
        "exec_command",
        lambda path: ToolCall("exec_command", {"cmd": f"cat {path}"}),
        _codex_edit,
        command="cmd",
    ),
}


def _opencode_edit(path: str, old: str, new: str) -> ToolCall:
    return ToolCall("edit", {"filePath": path, "oldString": old, "newString": new})


def _gemini_edit(path: str, old: str, new: str) -> ToolCall:
    asked = {"file_path": path, "instruction": "Replace it", "old_string": old, "new_string": new}
    return ToolCall("replace", asked)


# Qwen Code wants paths from the root.
_IN_WORKSPACE = "{ws}/"


def _qwen_edit(path: str, old: str, new: str) -> ToolCall:
    asked = {"file_path": _IN_WORKSPACE + path, "old_string": old, "new_string": new}
    return ToolCall("edit", asked)


SLOW_HANDS = {
    "opencode": Hand(
        "opencode",
        "bash",
        lambda path: ToolCall("read", {"filePath": path}),
        _opencode_edit,
        also={"description": "Run it"},
    ),
    "gemini-cli": Hand(
        "gemini-cli",
        "run_shell_command",
        lambda path: ToolCall("read_file", {"file_path": path}),
        _gemini_edit,
    ),
    "qwen-code": Hand(
        "qwen-code",
        "run_shell_command",
        lambda path: ToolCall("read_file", {"file_path": _IN_WORKSPACE + path}),
        _qwen_edit,
        also={"is_background": False},
    ),
}
"""Those that take seconds to start: they are put through what matters most, not through everything."""


def _installed(hands: Mapping[str, Hand], name: str) -> Hand:
    recipe = adapter_named(name).recipe
    assert isinstance(recipe, NpmRecipe)
    install(recipe, lambda _line: None)
    return hands[name]


@pytest.fixture(params=HANDS)
def hand(request: pytest.FixtureRequest) -> Hand:
    return _installed(HANDS, request.param)


@pytest.fixture(params=SLOW_HANDS)
def slow_hand(request: pytest.FixtureRequest) -> Hand:
    return _installed(SLOW_HANDS, request.param)


def bench_of(tmp_path: Path, hand: Hand, work: Policy, **more: Any) -> Bench:
    missteps = more.pop("missteps", ())
    return Bench(tmp_path / "out", work, {"harness": hand.name, "timeout": 90} | more, missteps=missteps)


def requests_of(bench: Bench) -> list[dict[str, Any]]:
    records = map(json.loads, (bench.out / "decisions.jsonl").read_text().splitlines())
    return [record for record in records if record["event"] == "request" and record["tools_digest"]]


def test_a_clean_run(tmp_path: Path, hand: Hand) -> None:
    bench = bench_of(tmp_path, hand, hand.work())
    bench.run()
    (line,) = bench.first
    assert (line.ended, line.passed, line.exit_code, line.harness) == ("complete", True, 0, hand.name)
    assert line.harness_version == adapter_named(hand.name).find().version
    assert [row.checkpoint for row in bench.reached()] == list(CHECKPOINTS)
    assert [call.changed_workspace for call in bench.calls()] == [False, True, False]


@pytest.mark.parametrize("where", CHECKPOINTS)
def test_killed_at_a_checkpoint_and_resumed(tmp_path: Path, hand: Hand, where: str) -> None:
    bench = bench_of(tmp_path, hand, hand.work(), faults={"plan": f"{where}:hard_exit"})
    bench.run()
    (line,) = bench.first
    assert (line.ended, line.reason, line.exit_code) == ("restart_cut", f"killed at {where}", -9)
    rows = [row.checkpoint for row in bench.reached()]
    assert rows[-1] == where
    if where in ("context_loaded", "patch_drafted"):
        assert bench.file() == "first\n", "the call had not reached the harness"
    else:
        assert bench.file() == "second\n"
    home = str(bench.folder.home(bench.run_id()))
    assert not [p for p in Path("/proc").glob("[0-9]*/environ") if home.encode() in _read(p)]
    bench.resume()
    (line,) = bench.resumed
    assert (line.ended, line.passed, line.resumed_from) == ("complete", True, where), line.reason
    assert bench.file() == "second\n"
    assert figures(bench) == (0, 0, 1.0)


@pytest.mark.timeout(300)
def test_a_slow_one_killed_when_its_patch_was_applied_and_resumed(tmp_path: Path, slow_hand: Hand) -> None:
    """Under faults, too: what was decided goes on, and the edit is not made again."""
    plan = {"faults": {"plan": "patch_applied:hard_exit"}, "profile": "only-empty"}
    work = slow_hand.work().script
    bench = bench_of(tmp_path, slow_hand, work, **plan)
    bench.policy = work.in_workspace(bench.folder.workspace(bench.run_id()))
    bench.run()
    (line,) = bench.first
    assert (line.ended, line.reason, line.exit_code) == ("restart_cut", "killed at patch_applied", -9)
    assert [row.checkpoint for row in bench.reached()][-1] == "patch_applied"
    assert bench.file() == "second\n"
    home = str(bench.folder.home(bench.run_id()))
    assert not [p for p in Path("/proc").glob("[0-9]*/environ") if home.encode() in _read(p)]
    bench.resume()
    (line,) = bench.resumed
    assert (line.ended, line.passed, line.resumed_from) == ("complete", True, "patch_applied"), line.reason
    assert bench.file() == "second\n"
    assert figures(bench) == (0, 0, 1.0)
    assert not any(b"first\\n" in request for request in bench.requests[1:]), "the read was empty"
    result = verify_log(bench.out / "decisions.jsonl")
    assert result.ok, result.differences


@pytest.mark.timeout(300)
def test_a_slow_one_is_stopped_by_its_budget(tmp_path: Path, slow_hand: Hand) -> None:
    work = Script(tuple(slow_hand.runs(f"echo {n}", Usage(24_000, 900, 90, 10)) for n in range(60)))
    bench = bench_of(tmp_path, slow_hand, work, token_budget=60_000)
    bench.run()
    (line,) = bench.first
    assert line.ended == "quota_cut"
    assert line.tokens_used >= 60_000
    refused = [record for record in requests_of(bench) if record["status"] is None]
    assert len(refused) == 1, "the harness asked again"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_kill_takes_commands_in_sessions_of_their_own(tmp_path: Path, hand: Hand) -> None:
    word = f"17{len(hand.name)}.3"
    work = script(hand.runs(f"setsid sleep {word} > /dev/null 2>&1 & echo second >> notes.txt"))
    bench = bench_of(tmp_path, hand, work, faults={"plan": "patch_applied:hard_exit"})
    bench.run()
    assert bench.first[0].ended == "restart_cut"
    assert alive(word) == []


def test_a_budget_of_60000_tokens(tmp_path: Path, hand: Hand) -> None:
    work = Script(tuple(hand.runs(f"echo {n}", Usage(24_000, 900, 90, 10)) for n in range(60)))
    bench = bench_of(tmp_path, hand, work, token_budget=60_000)
    bench.run()
    (line,) = bench.first
    assert (line.ended, line.tokens_used) == ("quota_cut", 75_000)
    refused = [record for record in requests_of(bench) if record["status"] is None]
    assert len(refused) == 1, "the harness asked again"
    assert len(bench.requests) == 3
    bench.resume()
    (line,) = bench.resumed
    assert (line.ended, line.tokens_used) == ("quota_cut", 0)


@pytest.mark.parametrize(
    ("misstep", "ended"),
    [
        (Misstep(times=99, status=402), "quota_cut"),
        (Misstep(times=99, status=429, body=QUOTA, headers=(("x-should-retry", "false"),)), "quota_cut"),
        (Misstep(times=99, status=429, headers=(("x-should-retry", "false"),)), "error"),
        (Misstep(times=99, status=400), "error"),
    ],
    ids=["402", "429 quota", "429 rate", "400"],
)
def test_what_a_provider_says(tmp_path: Path, hand: Hand, misstep: Misstep, ended: str) -> None:
    bench = bench_of(tmp_path, hand, hand.work(), missteps=[misstep])
    bench.run()
    (line,) = bench.first
    assert (line.ended, line.passed) == (ended, False)
    if hand.name == "pi":
        assert line.exit_code == 0, "Pi says 0 whatever the provider said"


def test_a_timeout(tmp_path: Path, hand: Hand) -> None:
    bench = bench_of(tmp_path, hand, script(hand.runs("sleep 183.7")), timeout=8)
    bench.run()
    (line,) = bench.first
    assert (line.ended, line.reason) == ("error", "timed out after 8 s")
    assert alive("183.7") == []


def test_a_fresh_workspace(tmp_path: Path, hand: Hand) -> None:
    """The machine went away: the task's files are as they were, the harness still knows its session."""
    bench = bench_of(tmp_path, hand, hand.work(), faults={"plan": "tests_run:hard_exit"}, workspace="fresh")
    bench.run()
    bench.resume()
    (line,) = bench.resumed
    assert (line.ended, line.passed) == ("complete", False)
    assert bench.file() == "first\n"
    assert b"notes.txt" in bench.requests[-1]


def test_faults_go_on_after_a_resume(tmp_path: Path, hand: Hand) -> None:
    """The same decisions, the same payloads: the log stays that of one run."""
    bench = bench_of(
        tmp_path, hand, hand.work(), faults={"plan": "tests_run:hard_exit"}, profile="only-post_effect_error"
    )
    bench.run()
    bench.resume()
    assert bench.resumed[0].ended == "complete"
    result = verify_log(bench.out / "decisions.jsonl")
    assert result.ok, result.differences
    assert bench.reached()[2].checkpoint == "patch_applied", "an error was put over it, and it was applied"
