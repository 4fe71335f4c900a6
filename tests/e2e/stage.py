"""A stage for one real harness: scripted endpoint ← real proxy ← the harness, each over real sockets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from configs import load_profile
from harness.adapter import Adapter, Job, Program
from harness.adapters import adapter_named
from harness.codex import Codex
from harness.gemini_cli import GeminiCli
from harness.launch import Outcome
from harness.mini_swe_agent import MiniSweAgent
from harness.opencode import OpenCode
from harness.pi import Pi
from harness.qwen_code import QwenCode
from harness.received import Received
from harness.recipes import install
from harness.script import Branch, Misstep, Script
from harness.scripted_model import ThreadedScriptedModel
from harness.turns import ToolCall, ToolResult, Turn
from proxy.injector import Injector
from proxy.options import InjectorOptions
from proxy.server import BackgroundServer, ProxyServer
from proxy.service import ServiceSettings, open_service
from proxy.upstream import parse_upstreams
from scheduler.profile import Profile, parse_profile

TIMEOUT_S = 90.0


@dataclass(frozen=True)
class Speech:
    """How one harness names the tools that the tests use.

    ``root`` stands before every path that it reads, ``then`` behind every command; ``last`` is the command
    that ends its work, where a text does not; ``also`` are arguments that every command has. A harness
    without a tool that reads files has "" for it, and reads them by commands.
    """

    name: str
    read: str
    shell: str
    path: str
    command: str = "command"
    root: str = ""
    then: str = ""
    last: str | None = None
    also: Mapping[str, Any] = field(default_factory=dict)

    def reads(self, path: str, call_id: str | None = None) -> ToolCall:
        if not self.read:
            return self.runs(f"cat {path}", call_id)
        return ToolCall(self.read, {self.path: self.root + path}, call_id)

    def runs(self, command: str, call_id: str | None = None) -> ToolCall:
        return ToolCall(self.shell, {self.command: command + self.then, **self.also}, call_id)

    def tool(self, family: str) -> str:
        return self.read if family == "read" and self.read else self.shell


SPEECHES = {
    "claude-code": Speech("claude-code", "Read", "Bash", "file_path"),
    "pi": Speech("pi", "read", "bash", "path"),
}
_CODEX = Speech("codex", "", "exec_command", "", command="cmd")
_OPENCODE = Speech("opencode", "read", "bash", "filePath", also={"description": "Run it"})
_MINI = Speech("mini-swe-agent", "", "bash", "", last="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
# Qwen Code now and then loses what a command printed that ends at once, faults or not.
_QWEN = Speech(
    "qwen-code",
    "read_file",
    "run_shell_command",
    "file_path",
    root="{ws}/",
    then="; sleep 0.3",
    also={"is_background": False},
)
OTHERS: dict[str, tuple[Speech, Callable[[], Adapter]]] = {
    "pi-chat": (SPEECHES["pi"], lambda: Pi("openai-completions")),
    "pi-responses": (SPEECHES["pi"], lambda: Pi("openai-responses")),
    "codex": (_CODEX, Codex),
    "codex-websocket": (_CODEX, lambda: Codex("websocket")),
    "codex-built-in": (_CODEX, lambda: Codex("built-in")),
    "opencode": (_OPENCODE, OpenCode),
    "opencode-anthropic": (_OPENCODE, lambda: OpenCode("anthropic")),
    "opencode-responses": (_OPENCODE, lambda: OpenCode("openai-responses")),
    "gemini-cli": (Speech("gemini-cli", "read_file", "run_shell_command", "file_path"), GeminiCli),
    "qwen-code": (_QWEN, QwenCode),
    "mini-swe-agent": (_MINI, MiniSweAgent),
    "mini-swe-agent-anthropic": (_MINI, lambda: MiniSweAgent("anthropic")),
    "mini-swe-agent-responses": (_MINI, lambda: MiniSweAgent("openai-responses")),
}
"""The other harnesses, and the other protocols of those that speak several, each with its tools' names."""
SOCKETS = ("codex-websocket", "codex-built-in")
"""Those that speak over a WebSocket, and leave the history at the endpoint."""


@dataclass
class Played:
    """What came of one session. ``received``: what the endpoint was sent, the witness."""

    outcome: Outcome
    received: list[Received]
    log: Path
    workspace: Path
    records: list[dict[str, Any]] = field(default_factory=list)

    @property
    def turns(self) -> list[Received]:
        """The agent's requests, in order."""
        return [request for request in self.received if request.is_agent]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record["event"] == event]

    def decisions_of(self, tool: str) -> list[dict[str, Any]]:
        return [record for record in self.of("decision") if record["tool"] == tool]


def read_log(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def forced(*rules: Mapping[str, Any], **more: Any) -> Profile:
    """A profile that fires what the rules say and nothing else."""
    return parse_profile({"name": "forced", "rate": 0, "force": list(rules), **more}, "test")


def result_of(request: Received, call: int) -> ToolResult:
    """The result of the ``call``-th call of the conversation, as the endpoint received it."""
    view = request.conversation
    assert view is not None
    wanted = view.calls[call]
    return next(result for turn in view.turns for result in turn.results if result.call_id == wanted.call_id)


@contextmanager
def serving(
    folder: Path, profile: Profile, seed: int, upstream: str, options: InjectorOptions | None = None
) -> Iterator[tuple[BackgroundServer, Injector]]:
    """A proxy in this process, on a free port."""
    settings = ServiceSettings(
        seed, profile, parse_upstreams([upstream]), folder / "decisions.jsonl",
        options=options or InjectorOptions(),
    )  # fmt: skip
    injector = open_service(settings, lambda _line: None)
    with BackgroundServer(ProxyServer(injector, settings.upstreams, "127.0.0.1", 0)) as server:
        yield server, injector


class Stage:
    """One installed harness, ready to play scripts."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.speech: Speech
        self.adapter: Adapter
        if name in OTHERS:
            self.speech, self.adapter = OTHERS[name][0], OTHERS[name][1]()
        else:
            self.speech, self.adapter = SPEECHES[name], adapter_named(name)
        recipe = self.adapter.recipe
        assert recipe is not None
        self.program: Program = install(recipe, lambda _line: None)
        self.workspace = folder / "workspace"
        self.home = folder / "home"
        self.workspace.mkdir()
        self.home.mkdir()

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            (self.workspace / name).write_text(text, encoding="utf-8")

    def script(self, turns: list[Turn], branches: Sequence[Branch] = ()) -> Script:
        """What the model says in a session of these turns, to its end."""
        last = self.speech.last
        ending = [] if last is None else [Turn("Done.", (self.speech.runs(last),), step=len(turns))]
        return Script((*turns, *ending), tuple(branches)).in_workspace(self.workspace)

    def start(
        self,
        base_url: str,
        prompt: str = "Do the task.",
        *,
        killed_when: Callable[[], bool] | None = None,
        **job: Any,
    ) -> Outcome:
        """The harness, once, in the stage's workspace and home; SIGKILL to all of it at that moment."""
        launch = self.adapter.launch(self.program, Job(base_url, prompt, self.workspace, self.home, **job))
        running = launch.start()
        if killed_when is not None:
            began = time.monotonic()
            while not killed_when() and time.monotonic() < began + TIMEOUT_S:
                assert not running.ended, running.wait(1)
                time.sleep(0.01)
            running.kill()
        return running.wait(TIMEOUT_S)

    def play(
        self,
        turns: list[Turn],
        profile: Profile | str,
        *,
        seed: int = 7,
        log: str = "log",
        options: InjectorOptions | None = None,
        base: Callable[[str], str] = lambda url: url,
        missteps: Sequence[Misstep] = (),
        branches: Sequence[Branch] = (),
        killed_when: Callable[[ThreadedScriptedModel], bool] | None = None,
        **job: Any,
    ) -> Played:
        """One session of the harness against a script, through a proxy; ``killed_when`` ends it early."""
        folder = self.folder / log
        chosen = load_profile(profile) if isinstance(profile, str) else profile
        with (
            ThreadedScriptedModel(self.script(turns, branches), missteps=missteps) as model,
            serving(folder, chosen, seed, model.url, options) as (server, _),
        ):
            if killed_when is not None:
                job["killed_when"] = partial(killed_when, model)
            outcome = self.start(base(f"http://127.0.0.1:{server.port}"), **job)
            received = list(model.received)
        played = Played(outcome, received, folder / "decisions.jsonl", self.workspace)
        return replace(played, records=read_log(played.log))


def call_turns(*batches: ToolCall | tuple[ToolCall, ...]) -> list[Turn]:
    """One turn per call (or batch of parallel calls); the script then ends with a text of its own."""
    return [
        Turn("Next.", batch if isinstance(batch, tuple) else (batch,), step=index)
        for index, batch in enumerate(batches)
    ]
