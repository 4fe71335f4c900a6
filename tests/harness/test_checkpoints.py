"""Checkpoints as they are seen on the wire, what is journaled of each call, and the kill."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from configs import load_profile
from harness.checkpoints import CheckpointObserver, Watched, is_same_model
from harness.launch import Launch, Running
from harness.task import Task
from harness.taskset import task_sha
from harness.workspace import Watch
from ledger.journal import CHECKPOINTS, Journal
from proxy.exchange import Exchange, Head
from proxy.injector import Injector
from proxy.runs import RunSettings
from proxy.service import ServiceSettings, open_service
from proxy.upstream import parse_upstreams
from scheduler.profile import Profile
from tests.proxy.build import Answer, assistant, body, call, result, streamed, user

TASK = Task(
    "t1", "Repair it.", (("a.txt", "one\n"),), ("true",), re.compile(r"pytest|python -B test_\w+\.py")
)
PI = {"user-agent": "pi (linux; x64)"}
CLAUDE = {"user-agent": "claude-cli/2.1.289", "x-claude-code-session-id": "s1"}
Call = tuple[str, str, Mapping[str, Any]]


@dataclass
class Scene:
    """One run through an injector with a checkpoint observer; a test itself does what the tools would do."""

    folder: Path
    task: Task = TASK
    kills: tuple[str, ...] = ()
    profile: Profile = field(default_factory=lambda: load_profile("off"))
    headers: Mapping[str, str] = field(default_factory=lambda: PI)
    model_id: str | None = None
    budget: int | None = None
    attempt: int = 0
    messages: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workspace = self.folder / "ws"
        self.workspace.mkdir(exist_ok=True)
        for name, text in self.task.files:
            (self.workspace / name).write_text(text)
        self.journal = Journal(self.folder / "journal.db")
        self.journal.declare("t1", self.task.checkpoints or CHECKPOINTS)
        self.next_attempt()

    def next_attempt(self, *, keep: bool = False, kills: tuple[str, ...] | None = None) -> None:
        """A new process of the proxy and of the harness; ``keep`` goes on with the same messages."""
        if self.attempt:
            self.injector.close()
        self.attempt += 1
        self.observer = CheckpointObserver(self.journal)
        served = ServiceSettings(0, self.profile, parse_upstreams([]), self.folder / "decisions.jsonl")
        self.injector: Injector = open_service(served, lambda _line: None, self.observer)
        self.run = self.injector.register(
            RunSettings("r1", "t1", 0, self.profile, attempt=self.attempt, token_budget=self.budget)
        )
        watch = Watch(self.workspace, self.task.ignore)
        self.watched = Watched(
            run_id="r1",
            attempt=self.attempt,
            task=self.task,
            task_digest=task_sha(self.task),
            declared=frozenset(self.task.checkpoints or CHECKPOINTS),
            kills=frozenset(self.kills if kills is None else kills),
            watch=watch,
            seen=watch.look(),
            model_id=self.model_id,
            earlier=tuple(self.journal.reached("r1")),
            done=frozenset((row.call_id, row.call_digest) for row in self.journal.calls("r1")),
        )
        self.observer.add(self.watched)
        if not keep:
            self.messages = [user("Repair it.")]

    def post(self) -> Exchange:
        return self.injector.on_request("r1", Head("POST", "/v1/messages", self.headers), body(self.messages))

    def ask(self, *calls: Call, model: str | None = None) -> Exchange:
        """The history goes up; the model asks for ``calls``."""
        exchange = self.post()
        if exchange.refusal is not None:
            return exchange
        answer = Answer("Well.", [(i, tool, json.dumps(arguments)) for i, tool, arguments in calls])
        self.injector.on_response_head(exchange, 200, {"content-type": "text/event-stream"})
        raw = streamed(answer)
        if model is not None:
            raw = raw.replace(b'"model":"m"', f'"model":"{model}"'.encode())
        self.injector.on_response_chunk(exchange, raw)
        self.injector.on_response_end(exchange)
        self.messages.append(assistant("Well.", *(call(i, tool, **args) for i, tool, args in calls)))
        return exchange

    def answer(self, *results: tuple[str, str] | tuple[str, str, bool]) -> None:
        """The harness has run the calls."""
        self.messages.append(
            user(*(result(r[0], r[1], is_error=r[2] if len(r) == 3 else False) for r in results))
        )

    def write(self, name: str, text: str) -> None:
        (self.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (self.workspace / name).write_text(text)

    @property
    def reached(self) -> list[tuple[str, int]]:
        return [(row.checkpoint, row.attempt) for row in self.journal.reached("r1")]

    @property
    def calls(self) -> list[tuple[str, bool, bool]]:
        return [(row.call_id, row.changed_workspace, row.failed) for row in self.journal.calls("r1")]

    def logged(self, event: str) -> list[dict[str, Any]]:
        lines = (self.folder / "decisions.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if record["event"] == event]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def edit(call_id: str, new: str = "two") -> Call:
    return (call_id, "edit", {"path": "a.txt", "edits": [{"oldText": "one", "newText": new}]})


def shell(call_id: str, command: str) -> Call:
    return (call_id, "bash", {"command": command})


DONE = "Successfully replaced 1 block(s) in a.txt."


def test_a_whole_run(scene: Scene) -> None:
    scene.ask(("c1", "read", {"path": "a.txt"}))
    assert scene.reached == [("context_loaded", 1)]
    scene.answer(("c1", "one\n"))
    scene.ask(edit("c2"))
    assert scene.reached[1:] == [("patch_drafted", 1)]
    scene.write("a.txt", "two\n")
    scene.answer(("c2", DONE))
    scene.ask(shell("c3", "python -B test_a.py"))
    assert scene.reached[2:] == [("patch_applied", 1)]
    scene.answer(("c3", "1 failed\n\n\nCommand exited with code 1", True))
    scene.ask(edit("c4"), shell("c5", "cd . && pytest -q"))
    assert scene.reached[3:] == [("tests_run", 1)]
    scene.answer(("c4", DONE), ("c5", "ok\n"))
    scene.ask()
    assert len(scene.reached) == 4
    assert scene.calls == [
        ("c1", False, False),
        ("c2", True, False),
        ("c3", False, True),
        ("c4", False, False),
        ("c5", False, False),
    ]
    records = [(record["name"], record["digest"]) for record in scene.logged("checkpoint")]
    rows = scene.journal.reached("r1")
    assert records == [(row.checkpoint, row.payload_digest) for row in rows]
    # What was applied is the call; where nothing is applied it is the task.
    assert rows[2].payload_digest == rows[2].call_digest == rows[1].call_digest
    assert {rows[n].payload_digest for n in (0, 1, 3)} == {task_sha(TASK)}
    tokens = [row.tokens for row in scene.journal.calls("r1")]
    assert tokens == sorted(tokens)
    assert tokens[0] > 0


def test_only_declared_checkpoints(tmp_path: Path) -> None:
    scene = Scene(tmp_path, replace(TASK, checkpoints=("tests_run",)))
    scene.ask(edit("c1"), shell("c2", "pytest"))
    scene.write("a.txt", "two\n")
    scene.answer(("c1", DONE), ("c2", "ok"))
    scene.ask()
    assert scene.reached == [("tests_run", 1)]


@pytest.mark.parametrize(
    ("made", "answered", "applied"),
    [
        (edit("c1"), ("c1", DONE), True),
        (("c1", "write", {"path": "b.txt", "content": "x"}), ("c1", "Successfully wrote to b.txt"), True),
        (edit("c1"), ("c1", "Could not find the exact text in a.txt.", True), False),
        (edit("c1"), ("c1", "No result provided", True), False),
        (shell("c1", "sed -i s/one/two/ a.txt"), ("c1", "(no output)"), True),
        (shell("c1", "sed -i s/one/two/ a.txt; false"), ("c1", "Command exited with code 1", True), False),
        (shell("c1", "echo hello"), ("c1", "hello\n"), False),
        (("c1", "read", {"path": "a.txt"}), ("c1", "one"), False),
    ],
)
def test_what_is_an_applied_patch(scene: Scene, made: Call, answered: Any, applied: bool) -> None:
    scene.ask(made)
    if made[1] != "read" and "hello" not in answered[1]:
        scene.write("a.txt", "two\n")
    scene.answer(answered)
    scene.ask()
    assert (("patch_applied", 1) in scene.reached) is applied


def test_an_error_that_was_put_over_a_true_success_is_still_a_patch(tmp_path: Path) -> None:
    scene = Scene(tmp_path, profile=load_profile("only-post_effect_error"))
    scene.ask(edit("c1"))
    scene.write("a.txt", "two\n")
    scene.answer(("c1", DONE))
    sent = scene.ask()
    assert DONE.encode() not in sent.body
    assert ("patch_applied", 1) in scene.reached
    assert scene.calls == [("c1", True, False)]


def test_parallel_calls_share_one_look_at_the_files(scene: Scene) -> None:
    """What an edit names is its own; what nobody named was done by the commands."""
    scene.ask(edit("c1"), shell("c2", "make"), ("c3", "write", {"path": "deep/b.txt", "content": "x"}))
    scene.write("a.txt", "two\n")
    scene.write("deep/b.txt", "x")
    scene.answer(("c3", "Successfully wrote to deep/b.txt"), ("c1", DONE), ("c2", "ok"))
    scene.ask(edit("c4"), shell("c5", "make"), ("c6", "read", {"path": "a.txt"}))
    assert scene.calls == [("c1", True, False), ("c2", False, False), ("c3", True, False)]
    scene.write("made.o", "x")
    scene.answer(("c4", "Could not find", True), ("c5", "ok"), ("c6", "two"))
    scene.ask()
    assert scene.calls[3:] == [("c4", False, True), ("c5", True, False), ("c6", False, False)]


def test_what_the_task_ignores_is_no_change(tmp_path: Path) -> None:
    scene = Scene(tmp_path, replace(TASK, ignore=("build",)))
    scene.ask(shell("c1", "make"))
    scene.write("build/x.o", "x")
    scene.write("__pycache__/a.pyc", "x")
    scene.answer(("c1", "ok"))
    scene.ask()
    assert scene.calls == [("c1", False, False)]


def test_a_resumed_history_does_not_reach_again_what_it_has_behind_it(scene: Scene) -> None:
    """A good harness goes on, with a new edit: that is a next step, not the same one again."""
    scene.ask(edit("c1"))
    scene.write("a.txt", "two\n")
    scene.answer(("c1", DONE))
    scene.ask(shell("c2", "pytest"))
    scene.next_attempt(keep=True)
    scene.answer(("c2", "No result provided", True))
    scene.messages.append(user("Go on."))
    scene.ask(edit("c3", "three"))
    scene.write("a.txt", "three\n")
    scene.answer(("c3", DONE))
    scene.ask(shell("c4", "pytest"))
    scene.answer(("c4", "ok"))
    scene.ask()
    assert scene.reached == [
        ("context_loaded", 1),
        ("patch_drafted", 1),
        ("patch_applied", 1),
        ("context_loaded", 2),
        ("tests_run", 2),
    ]
    # The call whose result was lost with the harness is not known to have run.
    assert [row[0] for row in scene.calls] == ["c1", "c3", "c4"]


def test_a_result_that_the_harness_lost_is_still_behind_it(scene: Scene) -> None:
    scene.kills = ()
    scene.ask(edit("c1"))
    scene.write("a.txt", "two\n")
    scene.answer(("c1", DONE))
    scene.ask()
    del scene.messages[-2:]
    scene.next_attempt(keep=True)
    scene.answer(("c1", "No result provided", True))
    scene.ask(edit("c2", "two"))
    scene.answer(("c2", "Could not find the exact text in a.txt.", True))
    scene.ask()
    assert ("patch_applied", 2) not in scene.reached
    assert ("patch_drafted", 2) not in scene.reached


@pytest.mark.parametrize("headers", [PI, CLAUDE], ids=["pi", "claude-code"])
@pytest.mark.parametrize("again", ["two", "other"])
@pytest.mark.parametrize("call_id", ["c1", "c9"])
def test_a_harness_that_begins_anew_reaches_everything_again(
    tmp_path: Path, headers: Mapping[str, str], again: str, call_id: str
) -> None:
    """Also when the model happens to use the same call id as before."""
    scene = Scene(tmp_path, headers=headers)
    tool = "edit" if headers is PI else "Edit"
    for attempt, (made, new) in enumerate([("c1", "two"), (call_id, again)], 1):
        if attempt > 1:
            scene.next_attempt()
        scene.ask((made, tool, {"path": "a.txt", "file_path": "a.txt", "new": new}))
        scene.write("a.txt", f"{new} {attempt}\n")
        scene.answer((made, DONE))
        scene.ask()
    assert scene.reached[3:] == [("context_loaded", 2), ("patch_drafted", 2), ("patch_applied", 2)]
    one, two = (row for row in scene.journal.reached("r1") if row.checkpoint == "patch_applied")
    assert (one.payload_digest == two.payload_digest) is (again == "two")
    assert [row.changed_workspace for row in scene.journal.calls("r1")] == [True, True]
    assert scene.journal.violations() == []


def test_a_compacted_history_has_its_calls_behind_it(scene: Scene) -> None:
    scene.ask(edit("c1"))
    scene.write("a.txt", "two\n")
    scene.answer(("c1", DONE))
    scene.ask()
    scene.next_attempt()
    scene.messages = [
        user(
            "The conversation history before this point was compacted into the following summary:\n\n"
            "<summary>\nI edited a.txt.\n</summary>"
        ),
    ]
    scene.ask(edit("c2", "three"))
    scene.write("a.txt", "three\n")
    scene.answer(("c2", DONE))
    scene.ask()
    assert ("patch_applied", 2) not in scene.reached


SLEEPERS = "import subprocess, time; subprocess.Popen(['sleep', '271.8']); time.sleep(300)"


def started(folder: Path) -> Running:
    home = str(folder / "home")
    return Launch((sys.executable, "-c", SLEEPERS), {"HOME": home, "PATH": "/usr/bin:/bin"}, folder).start()


@pytest.mark.parametrize("where", CHECKPOINTS)
def test_the_harness_ends_at_the_checkpoint_and_nothing_goes_on(tmp_path: Path, where: str) -> None:
    scene = Scene(tmp_path, kills=(where,))
    running = started(tmp_path)
    scene.watched.running.set_result(running)
    exchange = scene.ask(edit("c1"), shell("c2", "pytest"))
    if where in ("patch_applied", "tests_run"):
        scene.write("a.txt", "two\n")
        scene.answer(("c1", DONE), ("c2", "ok"))
        assert not running.ended
        exchange = scene.post()
    assert scene.watched.killed_at == where
    assert scene.reached[-1][0] == where or where == "patch_applied"
    assert running.wait(10).exit_code == -9
    assert scene.run.stopped
    if where == "patch_drafted":
        exchange = scene.post()
    assert exchange.refusal is not None
    assert exchange.refusal.status == 503
    assert not scene.logged("error")


def test_a_kill_waits_for_the_start_to_be_known(tmp_path: Path) -> None:
    """The first request can be faster than the thread that started the harness."""
    scene = Scene(tmp_path, kills=("context_loaded",))
    running = started(tmp_path)
    late = threading.Timer(0.2, lambda: scene.watched.running.set_result(running))
    late.start()
    assert scene.post().refusal is not None
    assert running.wait(10).exit_code == -9
    late.join()


def test_the_row_is_there_when_the_harness_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, kills=("context_loaded",))
    seen: list[list[str]] = []

    class Dying:
        def kill(self) -> None:
            other = Journal(tmp_path / "journal.db")
            seen.append([row.checkpoint for row in other.reached("r1")])
            other.close()

    scene.watched.running.set_result(Dying())  # type: ignore[arg-type]
    scene.post()
    assert seen == [["context_loaded"]]


def test_a_journal_that_cannot_be_written_lets_nothing_go(scene: Scene) -> None:
    scene.journal.close()
    exchange = scene.post()
    assert exchange.refusal is not None
    assert exchange.refusal.status == 507


def test_runs_that_are_not_watched_are_left_alone(scene: Scene) -> None:
    scene.observer.remove("r1")
    assert scene.ask(edit("c1")).refusal is None
    assert scene.reached == []


@pytest.mark.parametrize(
    ("named", "said", "same"),
    [
        ("claude-sonnet-4-5", "claude-sonnet-4-5", True),
        ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929", True),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5", True),
        ("anthropic/claude-sonnet-4-5", "claude-sonnet-4-5", True),
        ("gpt-5.5", "gpt-5.5-2026-01-02", True),
        ("gemini-2.5-pro", "gemini-2.5-pro-001", True),
        ("gpt-5", "gpt-5-mini", False),
        ("claude-opus-4", "claude-opus-4-1", False),
        ("gpt-5", "gpt-5.5", False),
        ("a", "b", False),
    ],
)
def test_models(named: str, said: str, same: bool) -> None:
    assert is_same_model(named, said) is same


def test_a_model_that_the_manifest_does_not_name_makes_the_run_invalid(tmp_path: Path) -> None:
    scene = Scene(tmp_path, model_id="claude-sonnet-4-5")
    scene.ask(model="claude-sonnet-4-5-20250929")
    assert not scene.run.invalid
    scene.ask(model="claude-haiku-4-5")
    scene.ask(model="claude-haiku-4-5")
    (error,) = scene.logged("error")
    assert (
        error["reason"] == "the manifest says model_id claude-sonnet-4-5, the response says claude-haiku-4-5"
    )


def test_a_look_costs_no_time_when_nothing_can_have_changed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    true = Watch.look

    def look(self: Watch) -> Any:
        looks.append(time.monotonic())
        return true(self)

    monkeypatch.setattr(Watch, "look", look)
    scene.ask(("c1", "read", {"path": "a.txt"}))
    scene.answer(("c1", "one"))
    scene.ask(shell("c2", "grep -rn one ."))
    scene.answer(("c2", "a.txt:1:one"))
    scene.ask()
    assert looks == []
