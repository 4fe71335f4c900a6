"""A small honest coding agent over Anthropic Messages: ``python -m harness.reference_agent``.

It does what the model asks, tells it what came of it, and stops when the model asks for nothing more. It has
no cunning of its own: ``--policy`` is only told to the model. Exit codes: 0 the model ended its turn without
a tool call and every request was answered, 1 anything else, 2 bad usage.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.reference_client import EndpointError, ModelClient, Reply
from harness.reference_tools import TOOLS, Toolbox

VERSION = "1.0.0"
INTERRUPTED = "(no result: the agent was stopped during this call)"
_MAX_TOKENS = 8192


class Policy(StrEnum):
    """How the model is asked to work."""

    careful = "careful"
    naive = "naive"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a session ended: ``complete`` when the model asked for nothing more; ``text`` is its last text."""

    complete: bool
    text: str
    reason: str


class Session:
    """The messages of a session, stored in ``~/.chaosproxy-reference/<id>.json`` after every change."""

    def __init__(self, session_id: str, home: Path) -> None:
        self.id = session_id
        self.messages: list[dict[str, Any]] = []
        self._path = home / ".chaosproxy-reference" / f"{session_id}.json"

    def load(self) -> None:
        """Reads a stored session and answers its open calls with ``INTERRUPTED``. OSError: there is none."""
        self.messages = json.loads(self._path.read_text(encoding="utf-8"))
        if self.messages and self.messages[-1]["role"] == "assistant":
            calls = [block for block in self.messages[-1]["content"] if block["type"] == "tool_use"]
            if calls:
                self.add("user", [_result(call["id"], INTERRUPTED, is_error=True) for call in calls])

    def add(self, role: str, content: list[dict[str, Any]]) -> None:
        """Appends to the messages, so that roles take turns, and stores them."""
        if self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"] += content
        else:
            self.messages.append({"role": role, "content": content})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(self.messages), encoding="utf-8")
        unfinished.replace(self._path)


async def run_session(
    session: Session, client: ModelClient, toolbox: Toolbox, *, model: str, system: str, max_turns: int
) -> Ending:
    """Asks, acts and answers until the model asks for nothing more, fails, or ``max_turns`` are used up."""
    for _ in range(max_turns):
        body = {
            "model": model,
            "max_tokens": _MAX_TOKENS,
            "system": system,
            "tools": list(TOOLS),
            "messages": session.messages,
            "stream": True,
        }
        try:
            reply = await client.ask(body)
        except EndpointError as error:
            return Ending(False, "", f"the endpoint failed: {error}")
        if reply.content:
            session.add("assistant", list(reply.content))
        if not reply.calls:
            return Ending(True, reply.text, "the model ended its turn")
        session.add("user", await _results(reply, toolbox))
    return Ending(False, "", f"the model was not done after {max_turns} turns")


async def _results(reply: Reply, toolbox: Toolbox) -> list[dict[str, Any]]:
    results = []
    for call in reply.calls:
        output = await toolbox.call(call["name"], call["input"])
        results.append(_result(call["id"], output.text, is_error=output.is_error))
    return results


def _result(call_id: str, text: str, *, is_error: bool) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    return result | {"is_error": True} if is_error else result


def system_text(workspace: Path, policy: str) -> str:
    """What the model is told first; the line ``Workspace: PATH`` states where it works."""
    return (
        "You are a coding agent. You repair programs by calling tools, and end your turn when you are done.\n"
        f"Workspace: {workspace}\n"
        f"Policy: {policy}"
    )


_app = typer.Typer(add_completion=False)


@_app.command()
def _run(
    base_url: Annotated[str, typer.Option(help="Endpoint; /v1/messages is added to it.")],
    workspace: Annotated[
        Path, typer.Option(exists=True, file_okay=False, resolve_path=True, help="Directory to work in.")
    ],
    prompt: Annotated[str, typer.Option(help="What to do.")],
    policy: Annotated[Policy, typer.Option(help="How the model is asked to work.")] = Policy.careful,
    model: Annotated[str, typer.Option(help="Model id to ask for.")] = "scripted-model",
    max_turns: Annotated[int, typer.Option(min=1, help="Answers of the model before it is stopped.")] = 100,
    session: Annotated[str | None, typer.Option(help="Id for a new session.")] = None,
    resume: Annotated[str | None, typer.Option(help="Id of a session to go on with.")] = None,
) -> None:
    """Let a model work on a directory."""
    stored = Session(resume or session or str(uuid.uuid4()), Path.home())
    if resume is not None:
        try:
            stored.load()
        except OSError as error:
            typer.echo(f"error: no session {resume}: {error}", err=True)
            raise typer.Exit(2) from error
    stored.add("user", [{"type": "text", "text": prompt}])
    headers = {
        "user-agent": f"chaosproxy-reference/{VERSION}",
        "x-session-id": stored.id,
        "anthropic-version": "2023-06-01",
        "x-api-key": os.environ.get("ANTHROPIC_API_KEY", "none-needed"),
    }
    ending = asyncio.run(
        run_session(
            stored,
            ModelClient(base_url, headers),
            Toolbox(workspace),
            model=model,
            system=system_text(workspace, policy.value),
            max_turns=max_turns,
        )
    )
    if ending.text:
        typer.echo(ending.text)
    if not ending.complete:
        typer.echo(f"error: {ending.reason}", err=True)
        raise typer.Exit(1)


def main() -> None:
    """Runs the command."""
    _app()


if __name__ == "__main__":
    main()
