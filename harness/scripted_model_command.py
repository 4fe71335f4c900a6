"""``python -m harness.scripted_model SCRIPT.yaml``: the scripted model from a shell."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated, Literal

import typer

from harness.demo_model import Manner, demo_policy
from harness.script import Policy, ScriptError, load_script
from harness.scripted_model import ScriptedModel

_app = typer.Typer(add_completion=False)


@_app.command()
def _serve(
    script: Annotated[Path | None, typer.Argument(help="YAML file that says what the model answers.")] = None,
    demo: Annotated[
        Literal["careful", "naive"] | None,
        typer.Option(help="Solve the shipped tasks in this manner, in place of a script."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to bind.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to bind; 0 takes a free one.")] = 0,
    workspace: Annotated[
        Path | None, typer.Option(help="What {ws} in the script's arguments stands for.")
    ] = None,
) -> None:
    """Answer as a model endpoint from a script, until ctrl-C."""
    try:
        asyncio.run(_serve_until_stopped(_policy(script, demo, workspace), host, port))
    except ScriptError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error
    except OSError as error:
        typer.echo(f"error: cannot listen on {host}:{port}: {error.strerror or error}", err=True)
        raise typer.Exit(2) from error


def _policy(script: Path | None, demo: Manner | None, workspace: Path | None) -> Policy:
    if demo is not None and script is None:
        return demo_policy(demo)
    if script is None or demo is not None:
        raise ScriptError("give a script file or --demo, and not both")
    loaded = load_script(script)
    return loaded if workspace is None else loaded.in_workspace(workspace.resolve())


async def _serve_until_stopped(policy: Policy, host: str, port: int) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with ScriptedModel(policy, host=host, port=port) as model:
        typer.echo(f"listening on {model.url}")
        await stopped.wait()
        typer.echo(f"{len(model.received)} requests, {len(model.agent_requests)} of them an agent's")


def main() -> None:
    """Runs the command."""
    _app()
