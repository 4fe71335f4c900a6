"""What an adapter knows of a harness: how it is installed, found, started and resumed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness.launch import Launch

_VERSION = re.compile(r"\d+\.\d+\.\d+[\w.+-]*")
_VERSION_TIMEOUT_S = 60


class HarnessError(Exception):
    """A harness that cannot be installed, found or started; the message says what to do."""


@dataclass(frozen=True, slots=True)
class NpmRecipe:
    """How a harness comes from the npm registry, pinned.

    ``packages`` and ``overrides`` map names to versions, ``program`` is its command in node_modules/.bin.
    ``node`` is the least version of node it runs on (None: it needs none), which is brought along when the
    machine has only an older one.
    """

    name: str
    version: str
    packages: Mapping[str, str]
    program: str
    overrides: Mapping[str, str] = field(default_factory=dict)
    node: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class PypiRecipe:
    """How a harness comes from PyPI, pinned, into an environment of its own.

    ``package`` is its distribution, ``program`` the command that it brings. What it depends on is not pinned.
    """

    name: str
    version: str
    package: str
    program: str


Recipe = NpmRecipe | PypiRecipe


@dataclass(frozen=True, slots=True)
class Program:
    """A harness found on this machine. ``path`` are directories that must come first in PATH."""

    executable: Path
    version: str
    path: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """What a harness is asked to do.

    ``workspace`` exists; ``home`` is a fresh directory (the same one again on a resume). ``session`` is the
    id that a new session gets, ``resume`` the id of the one to go on with. ``tools`` are tool names in the
    harness's own spelling to offer in place of its default set. ``env`` is added last.
    """

    base_url: str
    prompt: str
    workspace: Path
    home: Path
    model: str | None = None
    session: str | None = None
    resume: str | None = None
    tools: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


class Adapter(Protocol):
    """One harness."""

    @property
    def name(self) -> str:
        """As users type it and as its dialect file is called: ``claude-code``."""

    @property
    def recipe(self) -> Recipe | None:
        """How to install it; None when it comes with us."""

    def find(self) -> Program:
        """The pinned one of the cache, else one on PATH; HarnessError when there is none."""

    def launch(self, program: Program, job: Job) -> Launch:
        """The command, environment and files for a job."""


def base_environment(job: Job, path: tuple[Path, ...] = ()) -> dict[str, str]:
    """An environment from scratch: nothing of the caller's but where programs are and the language.

    The current Python comes first in PATH, so that a task's ``python`` is the one its check runs with.
    """
    first = [*map(str, path), str(Path(sys.executable).parent)]
    return {
        "PATH": os.pathsep.join([*first, os.environ.get("PATH", os.defpath)]),
        "HOME": str(job.home),
        "TMPDIR": str(job.home / "tmp"),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "TERM": "dumb",
        "NO_COLOR": "1",
        "NO_PROXY": "127.0.0.1,localhost",
    }


def version_of(executable: Path, path: tuple[Path, ...], home: Path) -> str:
    """What ``--version`` says, run with HOME ``home``; HarnessError when that is no version."""
    env = {
        "PATH": os.pathsep.join([*map(str, path), os.environ.get("PATH", os.defpath)]),
        "HOME": str(home),
        "TMPDIR": str(home),
    }
    try:
        said = subprocess.run(
            [executable, "--version"],
            env=env,
            cwd=home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HarnessError(f"{executable} does not run: {error}") from error
    found = _VERSION.search(said.stdout)
    if said.returncode != 0 or found is None:
        raise HarnessError(f"{executable} --version failed: {(said.stderr or said.stdout).strip()[:300]}")
    return found.group()
