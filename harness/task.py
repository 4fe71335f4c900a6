"""A repair task: files that are wrong, a prompt, and a command that tells whether they are right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

_SHIPPED = Path(__file__).parent / "tasks"
_OUTPUT_CHARS = 4000


@dataclass(frozen=True, slots=True)
class Task:
    """``check`` is an argument list in which ``{python}`` stands for the current Python; exit code 0 passes.

    ``test_command`` is a pattern that the agent's own test runs match. ``files`` are (relative path, text).
    """

    id: str
    prompt: str
    files: tuple[tuple[str, str], ...]
    check: tuple[str, ...]
    test_command: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the check command said. ``output`` is the end of what it printed; a timeout counts as failed."""

    passed: bool
    output: str
    timed_out: bool = False


class TaskError(ValueError):
    """A task file that cannot be used; the message names the file and the field."""


def prepare(task: Task, workspace: Path) -> None:
    """Writes the task's files into ``workspace``, which is made when it is not there."""
    workspace.mkdir(parents=True, exist_ok=True)
    for name, text in task.files:
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def verdict(task: Task, workspace: Path, timeout_s: float = 60.0) -> Verdict:
    """Runs the check command in the workspace; OSError when it cannot be started."""
    argv = [part.replace("{python}", sys.executable) for part in task.check]
    env = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"}
    try:
        done = subprocess.run(
            argv,
            cwd=workspace,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return Verdict(False, _shown(error.output), timed_out=True)
    return Verdict(done.returncode == 0, _shown(done.stdout))


def load_task(path: Path) -> Task:
    """Reads a task file (id, prompt, files, check, test_command); TaskError when it does not fit."""
    try:
        read = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
        return _TaskFile.model_validate(read).task()
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise TaskError(f"{path}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise TaskError(f"{path}: {where}: {first['msg']}") from error


def shipped_tasks() -> tuple[Task, ...]:
    """The tasks that come with us, by name."""
    return tuple(load_task(path) for path in sorted(_SHIPPED.glob("*.yaml")))


def _shown(output: bytes | None) -> str:
    return (output or b"").decode("utf-8", "replace")[-_OUTPUT_CHARS:]


class _TaskFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")
    prompt: str = Field(min_length=1)
    files: dict[str, str] = Field(min_length=1)
    check: list[str] = Field(min_length=1)
    test_command: str

    @field_validator("files")
    @classmethod
    def _inside(cls, files: dict[str, str]) -> dict[str, str]:
        for name in files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise ValueError(f"{name} leads out of the workspace")
        return files

    @field_validator("test_command")
    @classmethod
    def _pattern(cls, text: str) -> str:
        try:
            re.compile(text)
        except re.error as error:
            raise ValueError(f"no regular expression: {error}") from error
        return text

    def task(self) -> Task:
        return Task(
            id=self.id,
            prompt=self.prompt.strip(),
            files=tuple(self.files.items()),
            check=tuple(self.check),
            test_command=re.compile(self.test_command),
        )
