"""An injector on real files and harnesses that talk to it, without sockets.

A harness keeps its messages, sends all of them on every turn, and answers the calls that the model makes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledger.decisions import DecisionLog
from ledger.memory import Memory
from proxy.exchange import Exchange, Head
from proxy.injector import Injector
from proxy.options import InjectorOptions
from proxy.runs import Conversations, RunBook, RunSettings
from scheduler.profile import Profile, parse_profile
from tests.proxy.build import Answer, assistant, body, call, result, streamed, text, user

CLAUDE = {
    "user-agent": "claude-cli/2.1.289 (external, sdk-cli)",
    "x-claude-code-session-id": "5f1c0e0e-0000-4000-8000-000000000001",
}
PI = {"user-agent": "pi (linux 6.18.44; x64)"}
EVENTS = {"content-type": "text/event-stream"}
WORKSPACE = "/ws"
CLAUDE_OPENING = f"# Environment\n - Primary working directory: {WORKSPACE}\n - Is a git repository: false\n"
PI_SYSTEM = [text(f"You help.\n<cwd>\n{WORKSPACE}\n</cwd>")]

Call = tuple[str, str, dict[str, Any]]


def profile(**fields: Any) -> Profile:
    return parse_profile({"name": "test", "rate": 0} | fields, "test")


def force(*rules: dict[str, Any], **fields: Any) -> Profile:
    return profile(force=list(rules), **fields)


def only(kind: str, *families: str, **fields: Any) -> Profile:
    """One kind on every call of some families."""
    weights = {family: {kind: 1} for family in families or ("read",)}
    return profile(**({"rate": 1, "weights": weights} | fields))


class Killed(BaseException):
    """The process is gone, in the middle of what it did."""


class _Deadly:
    """A transaction that is not survived."""

    def __enter__(self) -> None:
        raise Killed

    def __exit__(self, *_: object) -> None: ...


@dataclass
class Stage:
    """One proxy process after the other on the same files."""

    folder: Path
    profile: Profile
    seed: int = 7
    max_loaded: int = 64
    options: InjectorOptions = field(default_factory=InjectorOptions)
    told: list[str] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        self.log = DecisionLog(self.folder / "decisions.jsonl")
        self.memory = Memory(self.folder / "memory.db")
        settings = RunSettings("default", "default", self.seed, self.profile, temp=("/tmp",))
        self.injector = Injector(
            RunBook(settings),
            self.log,
            self.memory,
            self.options,
            pid=1,
            tell=self.told.append,
            conversations=Conversations(self.memory, max_loaded=self.max_loaded),
        )

    def kill(self) -> None:
        self.log.close()
        self.memory.close()

    def restart(self) -> None:
        self.kill()
        self.open()

    def end(self) -> None:
        self.injector.close()

    @contextmanager
    def killed_at_commit(self) -> Iterator[None]:
        """The log is written, then the process dies before the memory has it."""
        true = self.memory.transaction

        self.memory.transaction = _Deadly  # type: ignore[assignment, method-assign]
        try:
            yield
            self.memory.transaction = true  # type: ignore[method-assign]
        except Killed:
            self.restart()

    def post(
        self,
        raw: bytes,
        headers: dict[str, str],
        *,
        path: str = "/v1/messages?beta=true",
        run: str = "default",
    ) -> Exchange:
        return self.injector.on_request(run, Head("POST", path, headers), raw)

    def answer(self, exchange: Exchange, answer: Answer | None, status: int = 200) -> None:
        """The model's answer, or None: the connection was lost before one came."""
        if answer is not None:
            self.injector.on_response_head(exchange, status, EVENTS)
            for line in streamed(answer).splitlines(keepends=True):
                passed = self.injector.on_response_chunk(exchange, line)
                # Where calls may be held the bytes go on event by event.
                assert passed == line or exchange.holder is not None
        self.injector.on_response_end(exchange)

    def records(self, event: str | None = None) -> list[dict[str, Any]]:
        lines = (self.folder / "decisions.jsonl").read_bytes().splitlines()
        found = [json.loads(line) for line in lines]
        return [record for record in found if event is None or record["event"] == event]

    def decisions(self) -> list[dict[str, Any]]:
        return self.records("decision")

    def claude(self, session: str = CLAUDE["x-claude-code-session-id"], sub: str | None = None) -> Agent:
        headers = CLAUDE | {"x-claude-code-session-id": session}
        if sub is not None:
            headers["x-claude-code-agent-id"] = sub
        return Agent(self, headers, [user(text(CLAUDE_OPENING), text("Do it."))])

    def pi(self, prompt: str = "Do it.") -> Agent:
        return Agent(self, PI, [user(text(prompt))], {"system": PI_SYSTEM})


@dataclass
class Sent:
    """One request as it left for the model."""

    came: bytes
    left: bytes
    exchange: Exchange

    @property
    def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.left)["messages"]
        return found

    @property
    def results(self) -> list[tuple[str, Any]]:
        """(id, content) of every result, in order."""
        return [
            (block.get("tool_use_id", ""), block.get("content"))
            for message in self.messages
            if isinstance(message["content"], list)
            for block in message["content"]
            if isinstance(block, dict) and block.get("type") == "tool_result"
        ]

    def __getitem__(self, call_id: str) -> Any:
        return dict(self.results)[call_id]


@dataclass
class Agent:
    """A harness with one conversation."""

    stage: Stage
    headers: dict[str, str]
    messages: list[dict[str, Any]]
    fields: dict[str, Any] = field(default_factory=dict)

    def body(self) -> bytes:
        """The request with all messages, the last block marked for the cache as harnesses do."""
        messages = deepcopy(self.messages)
        last = messages[-1]
        if isinstance(last["content"], list) and last["content"]:
            last["content"][-1]["cache_control"] = {"type": "ephemeral"}
        return body(messages, **self.fields)

    def ask(
        self,
        *calls: Call,
        status: int = 200,
        answer: Answer | None = None,
        lost: bool = False,
        path: str = "/v1/messages?beta=true",
    ) -> Sent:
        """Sends all messages; the model answers with ``calls``, which stand in the history from now on."""
        raw = self.body()
        exchange = self.stage.post(raw, self.headers, path=path)
        assert exchange.refusal is None
        sent = Sent(raw, exchange.body, exchange)
        self.stage.sent.append(sent)
        spelled = [(call_id, tool, json.dumps(arguments)) for call_id, tool, arguments in calls]
        said = answer or Answer("Well.", spelled)
        self.stage.answer(exchange, None if lost else said, status)
        if status == 200 and not lost and path.startswith("/v1/messages?"):
            self.messages.append(assistant("Well.", *(call(i, tool, **args) for i, tool, args in calls)))
        return sent

    def results(self, *results: tuple[str, Any] | dict[str, Any], behind: Sequence[Any] = ()) -> Agent:
        """One user message with results, as (id, content) or whole blocks."""
        blocks = [r if isinstance(r, dict) else result(*r) for r in results]
        self.messages.append(user(*blocks, *behind))
        return self

    def turn(self, call_id: str, tool: str, arguments: dict[str, Any], content: Any) -> Sent:
        """The model makes one call and the harness answers it; gives back the request before."""
        sent = self.ask((call_id, tool, arguments))
        self.results((call_id, content))
        return sent


def read(call_id: str, path: str = "a.txt", tool: str = "Read", **more: Any) -> Call:
    return call_id, tool, {"file_path" if tool == "Read" else "path": path} | more
