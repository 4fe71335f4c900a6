"""Harness programs from PyPI, each in a virtual environment of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.adapter import HarnessError, Program, PypiRecipe
from harness.cache import Progress, installed_dir, staged

_INSTALL_TIMEOUT_S = 1800
_VERSION_TIMEOUT_S = 60

# The program's own start script names the directory that it was installed in, which is another one by now.
_START = """#!/bin/sh
exec "$(dirname -- "$(readlink -f -- "$0")")/python" -P -c '{code}' "$@"
"""
_CODE = (
    "import sys; from importlib.metadata import entry_points; "
    'sys.argv[0] = "{program}"; '
    'sys.exit(next(iter(entry_points(group="console_scripts", name="{program}"))).load()())'
)


def install(recipe: PypiRecipe, progress: Progress) -> Program:
    """Brings a harness into the cache, once: a second call finds it. HarnessError says what went wrong.

    It is installed for the Python that runs this, with uv where there is one, else with pip.
    """
    target = installed_dir(recipe)
    if target.is_dir():
        progress(f"{recipe.name} {recipe.version}: already in {target}")
        return _in(target, recipe)
    progress(f"{recipe.name} {recipe.version}: installing into {target}")
    with staged(target) as fresh:
        for argv in _commands(fresh, f"{recipe.package}=={recipe.version}"):
            _run(argv, recipe)
        start = fresh / "bin" / recipe.program
        start.unlink(missing_ok=True)
        start.write_text(_START.format(code=_CODE.format(program=recipe.program)), encoding="utf-8")
        start.chmod(0o755)
        found = _in(fresh, recipe).version
        if found != recipe.version:
            raise HarnessError(f"PyPI brought {recipe.name} {found}, not {recipe.version}")
    progress(f"{recipe.name} {recipe.version}: ready")
    return _in(target, recipe)


def find(recipe: PypiRecipe) -> Program:
    """The recipe's version in the cache, else the program on PATH; HarnessError without either."""
    target = installed_dir(recipe)
    if target.is_dir():
        return _in(target, recipe)
    elsewhere = shutil.which(recipe.program)
    if elsewhere is None:
        raise HarnessError(
            f"{recipe.name} is neither in {target} nor on PATH: run `python -m harness.install {recipe.name}`"
        )
    return Program(Path(elsewhere), _version(_python_of(Path(elsewhere)), recipe))


def _in(place: Path, recipe: PypiRecipe) -> Program:
    executable = place / "bin" / recipe.program
    if not executable.exists():
        raise HarnessError(f"{place} has no {recipe.program}: delete it and install again")
    return Program(executable, _version(place / "bin" / "python", recipe))


def _commands(place: Path, requirement: str) -> list[list[str]]:
    python = str(place / "bin" / "python")
    uv = shutil.which("uv")
    if uv is not None:
        return [
            [uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(place)],
            [uv, "pip", "install", "--quiet", "--python", python, requirement],
        ]
    return [
        [sys.executable, "-m", "venv", str(place)],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement],
    ]


def _run(argv: Sequence[str], recipe: PypiRecipe) -> None:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_INSTALL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise HarnessError(
            f"{recipe.name} took more than {_INSTALL_TIMEOUT_S} s to install: try again"
        ) from error
    except OSError as error:
        raise HarnessError(f"{argv[0]} does not run: {error}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise HarnessError(f"{recipe.name} {recipe.version} could not be installed:\n{said[-2000:]}")


def _python_of(script: Path) -> Path:
    """The Python that a start script names in its first line."""
    with script.open("rb") as file:
        first = file.readline(512)
    named = re.fullmatch(rb"#!\s*(\S*python[\d.]*)\s*", first)
    if named is None:
        raise HarnessError(f"{script} does not say which Python it runs on: install it again")
    return Path(named[1].decode())


def _version(python: Path, recipe: PypiRecipe) -> str:
    """What the environment of ``python`` says: not every program tells its own version."""
    code = f"from importlib.metadata import version; print(version({recipe.package!r}))"
    argv = [str(python), "-I", "-c", code]
    try:
        said = subprocess.run(
            argv, capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False, env={}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HarnessError(f"{python} does not run: {error}") from error
    if said.returncode != 0:
        raise HarnessError(f"{python} has no {recipe.package}: delete it and install again")
    return said.stdout.strip()
