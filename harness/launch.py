"""Starting a harness program: everything it gets is said in a ``Launch``, and all of it ends with it."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from harness.processes import kill_all

_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a launch ended. ``exit_code`` is negative for a signal; ``wall_s`` is seconds."""

    exit_code: int
    stdout: str
    stderr: str
    wall_s: float
    timed_out: bool


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of a program: its whole environment, and the files that must be there first.

    ``files`` are (absolute path, text). Directories named by HOME and TMPDIR are made.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    files: tuple[tuple[Path, str], ...] = ()

    def start(self) -> Running:
        """Writes the files and starts the program in its own process group; OSError when it cannot start."""
        for name in ("HOME", "TMPDIR"):
            if name in self.env:
                Path(self.env[name]).mkdir(parents=True, exist_ok=True)
        for path, text in self.files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return Running(self)

    def run(self, timeout_s: float) -> Outcome:
        """Runs to the end or until ``timeout_s`` has passed; no process of it is left afterwards."""
        return self.start().wait(timeout_s)


class Running:
    """A started program. Call ``wait`` once, also after ``kill``: it clears up."""

    def __init__(self, launch: Launch) -> None:
        # Files, not pipes: an orphan that holds a pipe open would keep us waiting for its end.
        self._stdout: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._launch = launch
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            launch.argv,
            env=dict(launch.env),
            cwd=launch.cwd,
            stdin=subprocess.DEVNULL,
            stdout=self._stdout,
            stderr=self._stderr,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The program's process id, which is also its process group's."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the program itself has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """SIGKILL to the whole process group and to what has left it."""
        kill_all(self.pid, self._launch.env.get("HOME"))

    def wait(self, timeout_s: float) -> Outcome:
        """Waits, then kills what is left of the group; after ``timeout_s`` it kills the program too."""
        timed_out = False
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            wall_s = time.monotonic() - self._began
            self.kill()
            exit_code = self._process.wait(_GRACE_S)
        return Outcome(exit_code, _text(self._stdout), _text(self._stderr), wall_s, timed_out)


def _text(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        return file.read().decode("utf-8", "replace")
