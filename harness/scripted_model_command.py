"""``python -m harness.scripted_model SCRIPT.yaml``: the scripted model from a shell."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer

from harness.script import Script, ScriptError, load_script
from harness.scripted_model import ScriptedModel

_app = typer.Typer(add_completion=False)


@_app.command()
def _serve(
    script: Annotated[Path, typer.Argument(help="YAML file that says what the model answers.")],
    host: Annotated[str, typer.Option(help="Address to bind.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to bind; 0 takes a free one.")] = 0,
    workspace: Annotated[
        Path | None, typer.Option(help="What {ws} in the script's arguments stands for.")
    ] = None,
) -> None:
    """Answer as a model endpoint from a script, until ctrl-C."""
    try:
        loaded = load_script(script)
    except ScriptError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error
    if workspace is not None:
        loaded = loaded.in_workspace(workspace.resolve())
    try:
        asyncio.run(_serve_until_stopped(loaded, host, port))
    except OSError as error:
        typer.echo(f"error: cannot listen on {host}:{port}: {error.strerror or error}", err=True)
        raise typer.Exit(2) from error


async def _serve_until_stopped(script: Script, host: str, port: int) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with ScriptedModel(script, host=host, port=port) as model:
        typer.echo(f"listening on {model.url}")
        await stopped.wait()
        typer.echo(f"{len(model.received)} requests, {len(model.agent_requests)} of them an agent's")


def main() -> None:
    """Runs the command."""
    _app()
