"""Task sets: which tasks a manifest means, and what identifies them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rfc8785
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from harness.task import Task, TaskError, load_task, parse_task, shipped_tasks, task_data
from harness.workspace import commit_of
from scheduler.nearest import unknown

SHIPPED = "shipped"


def load_tasks(named: str | Sequence[str | dict[str, Any]], base: Path) -> tuple[Task, ...]:
    """The tasks that ``named`` means; TaskError says what is wrong.

    ``shipped``: those that come with us; a path: a task file, a task set (a YAML list of tasks, or a mapping
    with ``tasks``) or a folder of task files; a list: any of these, names of shipped tasks, and whole tasks.
    Relative paths count from ``base``.
    """
    found = _named(named, base) if isinstance(named, str) else _listed(named, "tasks", base)
    if not found:
        raise TaskError("no task at all: name some in `tasks`")
    seen: set[str] = set()
    for task in found:
        if task.id in seen:
            raise TaskError(f"two tasks are called {task.id!r}: give one of them another id")
        seen.add(task.id)
    return tuple(found)


def taskset_sha(tasks: Sequence[Task]) -> str:
    """SHA-256 over the RFC 8785 form of the tasks, in hex.

    Where a repository lies does not count, the commit that a task starts from does.
    """
    return hashlib.sha256(rfc8785.dumps([_identity(task) for task in tasks])).hexdigest()


def task_sha(task: Task) -> str:
    """The same of one task."""
    return hashlib.sha256(rfc8785.dumps(_identity(task))).hexdigest()


def _identity(task: Task) -> dict[str, Any]:
    data = task_data(task)
    if task.repo is not None:
        data["repo"] = task.repo.name
        data["ref"] = commit_of(task.repo, task.ref) or task.ref or ""
    return data


def pinned(task: Task) -> dict[str, Any]:
    """The task as plain data for a frozen manifest: a repository by its path and the commit it is at now."""
    data = task_data(task)
    if task.repo is not None:
        commit = commit_of(task.repo, task.ref)
        if commit is not None:
            data["ref"] = commit
    return data


def _named(name: str, base: Path) -> list[Task]:
    if name == SHIPPED:
        return list(shipped_tasks())
    by_id = {task.id: task for task in shipped_tasks()}
    if name in by_id:
        return [by_id[name]]
    path = (base / name).expanduser()
    if path.is_dir():
        return [load_task(file) for file in sorted((*path.glob("*.yaml"), *path.glob("*.yml")))]
    if path.suffix in (".yaml", ".yml") or "/" in name:
        return _from_file(path)
    raise TaskError(f"{unknown('task', name, [SHIPPED, *by_id])} (or give the path of a task set)")


def _from_file(path: Path) -> list[Task]:
    try:
        data = YAML(typ="safe", pure=True).load(path.read_text("utf-8"))
    except OSError as error:
        raise TaskError(f"cannot read the task set {path}: {error.strerror}") from error
    except (UnicodeDecodeError, YAMLError) as error:
        raise TaskError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if isinstance(data, dict) and set(data) == {"tasks"}:
        data = data["tasks"]
    if isinstance(data, dict):
        return [parse_task(data, str(path), path.parent)]
    if not isinstance(data, list):
        raise TaskError(f"{path}: a task set is a list of tasks, or a mapping with `tasks`")
    return _listed(data, str(path), path.parent)


def _listed(items: Sequence[Any], source: str, base: Path) -> list[Task]:
    found: list[Task] = []
    for number, item in enumerate(items, 1):
        if isinstance(item, str):
            found += _named(item, base)
        else:
            found.append(parse_task(item, f"{source}: task {number}", base))
    return found
