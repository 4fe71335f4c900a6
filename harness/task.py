"""A repair task: files that are wrong, a prompt, and a command that tells whether they are right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ledger.journal import CHECKPOINTS
from scheduler.nearest import unknown

_SHIPPED = Path(__file__).parent / "tasks"
_OUTPUT_CHARS = 4000


@dataclass(frozen=True, slots=True)
class Task:
    """``check`` is an argument list in which ``{python}`` stands for the current Python; exit code 0 passes.

    ``test_command`` is a pattern that the agent's own test runs match. ``files`` are (relative path, text),
    written on top of ``repo``, a folder that is copied, or a git repository that is cloned at ``ref``.
    ``checkpoints`` are the declared ones, None: those of the manifest. ``ignore``: patterns of paths whose
    change is no work.
    """

    id: str
    prompt: str
    files: tuple[tuple[str, str], ...]
    check: tuple[str, ...]
    test_command: re.Pattern[str]
    repo: Path | None = None
    ref: str | None = None
    checkpoints: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()


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
    """Reads a task file; TaskError when it does not fit. Its keys are the fields of ``Task``."""
    try:
        read = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise TaskError(f"{path}: {error}") from error
    return parse_task(read, str(path), path.parent)


def parse_task(data: Any, source: str, base: Path) -> Task:
    """A task out of plain data; a relative ``repo`` counts from ``base``. TaskError names ``source``."""
    try:
        return _TaskFile.model_validate(data).task(base)
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}: " for part in first["loc"])
        raise TaskError(f"{source}: {where}{first['msg'].removeprefix('Value error, ')}") from error


def task_data(task: Task) -> dict[str, Any]:
    """The task as plain data, which ``parse_task`` reads back."""
    data: dict[str, Any] = {
        "id": task.id,
        "prompt": task.prompt,
        "files": dict(task.files),
        "check": list(task.check),
        "test_command": task.test_command.pattern,
    }
    if task.repo is not None:
        data["repo"] = str(task.repo)
    if task.ref is not None:
        data["ref"] = task.ref
    if task.checkpoints is not None:
        data["checkpoints"] = list(task.checkpoints)
    if task.ignore:
        data["ignore"] = list(task.ignore)
    return data


def shipped_tasks() -> tuple[Task, ...]:
    """The tasks that come with us, by name."""
    return tuple(load_task(path) for path in sorted(_SHIPPED.glob("*.yaml")))


def _shown(output: bytes | None) -> str:
    return (output or b"").decode("utf-8", "replace")[-_OUTPUT_CHARS:]


class _TaskFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")
    prompt: str = Field(min_length=1)
    files: dict[str, str] = Field(default_factory=dict)
    check: list[str] = Field(min_length=1)
    test_command: str
    repo: str | None = None
    ref: str | None = None
    checkpoints: list[str] | None = None
    ignore: list[str] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                raise ValueError(unknown("key", str(key), cls.model_fields))
        return data

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

    @field_validator("checkpoints")
    @classmethod
    def _declared(cls, names: list[str] | None) -> list[str] | None:
        for name in names or ():
            if name not in CHECKPOINTS:
                raise ValueError(unknown("checkpoint", name, CHECKPOINTS))
        return names

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.files and self.repo is None:
            raise ValueError("files: a task has files, a repo, or both")
        if self.ref is not None and self.repo is None:
            raise ValueError("ref names a commit of repo, but there is no repo")
        return self

    def task(self, base: Path) -> Task:
        return Task(
            id=self.id,
            prompt=self.prompt.strip(),
            files=tuple(self.files.items()),
            check=tuple(self.check),
            test_command=re.compile(self.test_command),
            repo=None if self.repo is None else (base / self.repo).absolute(),
            ref=self.ref,
            checkpoints=None if self.checkpoints is None else tuple(dict.fromkeys(self.checkpoints)),
            ignore=tuple(self.ignore),
        )
