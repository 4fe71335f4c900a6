"""``python -m harness.install claude-code pi``: brings harness programs into the cache."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.adapter import HarnessError
from harness.adapters import adapter_named
from harness.recipes import install

_app = typer.Typer(add_completion=False)


@_app.command()
def _install(names: Annotated[list[str], typer.Argument(help="Harnesses, as in: claude-code pi")]) -> None:
    """Install harness programs into the cache; what is there already stays."""
    failed = False
    for name in names:
        try:
            recipe = adapter_named(name).recipe
            if recipe is None:
                typer.echo(f"{name}: comes with chaosproxy, nothing to install")
                continue
            install(recipe, typer.echo)
        except HarnessError as error:
            typer.echo(f"error: {error}", err=True)
            failed = True
    if failed:
        raise typer.Exit(2)


def main() -> None:
    """Runs the command."""
    _app()


if __name__ == "__main__":
    main()
