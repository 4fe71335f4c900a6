"""What tests of supervised runs share: a small task, scripts for it, and a folder that is run and resumed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.adapter import Adapter
from harness.folder import RunFolder
from harness.preparing import RunOptions, prepare_manifest
from harness.resume import resume_folder
from harness.script import Branch, Misstep, Policy, Script
from harness.scripted_model import ThreadedScriptedModel
from harness.supervisor import Finished, run_manifest
from harness.turns import ToolCall, Turn, Usage
from ledger.attempts import lines_of
from ledger.journal import CheckpointRow, Journal, JournaledCall
from ledger.manifest import parse_manifest
from ledger.runs import RunLine
from scoring.score import Score, score_paths

TASK: dict[str, Any] = {
    "id": "notes",
    "prompt": "Add a line to notes.txt.",
    "files": {"notes.txt": "first\n", "test_notes.py": "assert 'second' in open('notes.txt').read()\n"},
    "check": ["{python}", "-B", "test_notes.py"],
    "test_command": r"test_notes\.py",
}
AGAIN = "Go on."


class Said:
    """A ``Progress`` that keeps what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def step(self, done: int, of: int, what: str) -> None:
        self.lines.append(f"[{done}/{of}] {what}")

    def say(self, line: str) -> None:
        self.lines.append(line)


@dataclass
class Bench:
    """One run folder under one scripted model."""

    out: Path
    policy: Policy
    manifest: dict[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    adapter: Adapter | None = None
    missteps: Sequence[Misstep] = ()
    said: Said = field(default_factory=Said)
    requests: list[bytes] = field(default_factory=list)

    def run(self, *, jobs: int = 1, **more: Any) -> Finished:
        with ThreadedScriptedModel(self.policy, missteps=self.missteps) as model:
            data = {"tasks": [TASK], "resume_prompt": AGAIN} | self.manifest | more
            options = RunOptions(self.out, jobs=jobs, command=self.command)
            # The endpoint is new each time; the manifest must not be.
            prepared = prepare_manifest(parse_manifest(data, "test"), self.out.parent, options)
            with _moved_to(model.url):
                try:
                    return run_manifest(prepared, options, self.said, self.adapter)
                finally:
                    self.requests += [request.body for request in model.agent_requests]

    def resume(self, *, policy: Policy | None = None, missteps: Sequence[Misstep] = ()) -> Finished:
        with ThreadedScriptedModel(policy or self.policy, missteps=missteps) as model:
            try:
                return resume_folder(self.out, self.said, upstream=model.url, adapter=self.adapter)
            finally:
                self.requests += [request.body for request in model.agent_requests]

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.out)

    @property
    def first(self) -> list[RunLine]:
        return lines_of(self.out / "runlog.jsonl")

    @property
    def resumed(self) -> list[RunLine]:
        return lines_of(self.out / "runlog.resumed.jsonl")

    def run_id(self, task: str = "notes", seed: int = 0, repeat: int = 0) -> str:
        return f"{self.out.name}.{task}.s{seed}.r{repeat}"

    def file(self, name: str = "notes.txt", run_id: str | None = None) -> str:
        return (self.folder.workspace(run_id or self.run_id()) / name).read_text()

    def reached(self, run_id: str | None = None) -> list[CheckpointRow]:
        journal = Journal(self.out / "journal.db")
        try:
            return journal.reached(run_id or self.run_id())
        finally:
            journal.close()

    def calls(self, run_id: str | None = None) -> list[JournaledCall]:
        journal = Journal(self.out / "journal.db")
        try:
            return journal.calls(run_id or self.run_id())
        finally:
            journal.close()

    def score(self) -> Score:
        return score_paths([self.out])


class _moved_to:
    """While it lasts, runs go to ``url`` although no manifest says so."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        import proxy.upstream

        self._before = dict(proxy.upstream.PROVIDERS)
        proxy.upstream.PROVIDERS = dict.fromkeys(self._before, self._url)

    def __exit__(self, *_: object) -> None:
        import proxy.upstream

        proxy.upstream.PROVIDERS = self._before


def shell(command: str, usage: Usage | None = None) -> Turn:
    return Turn("Next.", (ToolCall("shell", {"command": command}),), usage)


def edit(old: str, new: str) -> Turn:
    return Turn("Next.", (ToolCall("edit", {"path": "notes.txt", "old": old, "new": new}),))


def append(text: str) -> Turn:
    """A patch that changes the file each time it is applied."""
    return shell(f"echo {text} >> notes.txt")


TEST = shell("python -B test_notes.py")
READ = Turn("Next.", (ToolCall("read", {"path": "notes.txt"}),))


def script(*turns: Turn, again: Iterable[Turn] | None = None, end: str = "Done.") -> Script:
    """``again``: what the model says instead in a conversation that opens with the resume prompt."""
    branches = () if again is None else (Branch(AGAIN, tuple(again)),)
    return Script(turns, branches, end_text=end)


WORK = script(READ, edit("first\n", "first\nsecond\n"), TEST)


def agent(*more: str) -> tuple[str, ...]:
    """The reference agent as any command."""
    return (
        *(sys.executable, "-P", "-m", "harness.reference_agent"),
        *("--base-url={base_url}", "--workspace={workspace}", "--prompt={prompt}", *more),
    )


def python(code: str) -> tuple[str, ...]:
    """A harness that is a few lines of Python."""
    return (sys.executable, "-c", code)


def alive(word: str) -> list[int]:
    """The processes that have ``word`` as one of their words."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if word.encode() in line and state != "Z":
            found.append(int(entry.name))
    return found


def figures(bench: Bench) -> tuple[int | None, int | None, float | None]:
    """(repeated effects, double-apply tasks, RSR)."""
    score = bench.score()
    assert score.recovery is not None
    return (
        score.recovery.repeated_effects,
        score.recovery.double_apply_tasks,
        score.recovery.recovered / score.recovery.interrupted,
    )
