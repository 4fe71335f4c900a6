"""Task sets: by name, file, folder or in place; what identifies them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from harness.task import TaskError, parse_task, shipped_tasks, task_data
from harness.taskset import load_tasks, pinned, task_sha, taskset_sha
from tests.harness.test_workspace import git, repo

__all__ = ["repo"]
TASK: dict[str, Any] = {
    "id": "one",
    "prompt": "Do it.",
    "files": {"a.txt": "x\n"},
    "check": ["true"],
    "test_command": "pytest",
}


def written(path: Path, data: Any) -> Path:
    YAML(typ="safe", pure=True).dump(data, path)
    return path


def test_shipped_tasks_by_name() -> None:
    assert load_tasks("shipped", Path()) == shipped_tasks()
    assert [task.id for task in load_tasks(["tax", "pager"], Path())] == ["tax", "pager"]
    assert [task.id for task in load_tasks("tax", Path())] == ["tax"]


def test_files_and_folders(tmp_path: Path) -> None:
    sets = tmp_path / "sets"
    sets.mkdir()
    written(sets / "b.yaml", TASK | {"id": "b"})
    written(sets / "a.yaml", TASK | {"id": "a"})
    assert [task.id for task in load_tasks("sets", tmp_path)] == ["a", "b"]
    assert [task.id for task in load_tasks("sets/a.yaml", tmp_path)] == ["a"]
    written(tmp_path / "set.yaml", {"tasks": ["tax", "sets/b.yaml", TASK]})
    assert [task.id for task in load_tasks("set.yaml", tmp_path)] == ["tax", "b", "one"]
    written(tmp_path / "list.yaml", [TASK])
    assert [task.id for task in load_tasks([str(tmp_path / "list.yaml"), TASK | {"id": "z"}], Path("/"))] == [
        "one",
        "z",
    ]


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("taxx", "did you mean 'tax'?"),
        ("none.yaml", "No such file"),
        ([], "no task at all"),
        (["tax", "tax"], "two tasks are called 'tax'"),
        ([TASK | {"promt": "x"}], "task 1: unknown key 'promt': did you mean 'prompt'?"),
        ([{key: value for key, value in TASK.items() if key != "files"}], "files, a repo, or both"),
        ([TASK | {"ref": "main"}], "there is no repo"),
        ([TASK | {"checkpoints": ["patch_aplied"]}], "did you mean 'patch_applied'?"),
        ([TASK | {"test_command": "("}], "no regular expression"),
        ([TASK | {"files": {"../x": "y"}}], "leads out of the workspace"),
        ([TASK | {"id": "a b"}], "task 1: id: "),
    ],
)
def test_what_is_wrong_is_named(named: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError) as caught:
        load_tasks(named, tmp_path)
    assert says in str(caught.value)


def test_a_task_goes_into_data_and_back(tmp_path: Path) -> None:
    whole = TASK | {"repo": "r", "ref": "main", "checkpoints": ["tests_run"], "ignore": ["*.log"]}
    task = parse_task(whole, "test", tmp_path)
    assert task.repo == tmp_path / "r"
    assert parse_task(task_data(task), "again", Path("/")) == task
    for shipped in shipped_tasks():
        assert parse_task(task_data(shipped), "again", Path("/")) == shipped


def test_what_identifies_tasks(tmp_path: Path, repo: Path) -> None:
    one = load_tasks([TASK], tmp_path)
    assert taskset_sha(one) == taskset_sha(load_tasks([dict(reversed(TASK.items()))], Path("/")))
    assert taskset_sha(one) != taskset_sha(load_tasks([TASK | {"prompt": "Do that."}], tmp_path))
    assert len(task_sha(one[0])) == 64
    (cloned,) = load_tasks([TASK | {"repo": str(repo)}], tmp_path)
    before = task_sha(cloned)
    assert pinned(cloned)["ref"] == git(repo, "rev-parse", "HEAD")
    git(repo, "commit", "-qam", "third")
    assert task_sha(cloned) != before
    assert pinned(one[0]) == task_data(one[0])
