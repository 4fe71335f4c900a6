"""Workspaces: made as the task says, apart from where they came from; changes are seen, caches are not."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.task import Task, TaskError
from harness.workspace import Watch, commit_of, fresh_workspace


def task(**more: Any) -> Task:
    defaults: dict[str, Any] = {"files": (("a.txt", "one\n"),), "check": ("true",)}
    return Task(**{"id": "t", "prompt": "p", "test_command": re.compile("pytest")} | defaults | more)


def git(where: Path, *arguments: str) -> str:
    who = {f"GIT_{role}_{what}": "x@x" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["git", *arguments], cwd=where, env=os.environ | who, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    path = tmp_path / "repo"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    (path / "a.txt").write_text("first\n")
    git(path, "add", ".")
    git(path, "commit", "-qm", "first")
    (path / "a.txt").write_text("second\n")
    git(path, "commit", "-qam", "second")
    (path / "a.txt").write_text("not committed\n")
    return path


def test_files_are_written_and_what_was_there_is_gone(tmp_path: Path) -> None:
    workspace = tmp_path / "deep" / "ws"
    fresh_workspace(task(), workspace)
    (workspace / "left.txt").write_text("x")
    fresh_workspace(task(), workspace)
    assert [path.name for path in workspace.iterdir()] == ["a.txt"]


def test_a_repository_is_cloned_at_its_commit_and_cannot_be_reached(tmp_path: Path, repo: Path) -> None:
    workspace = tmp_path / "ws"
    fresh_workspace(task(repo=repo, files=(("b.txt", "own\n"),)), workspace)
    assert (workspace / "a.txt").read_text() == "second\n"
    assert (workspace / "b.txt").read_text() == "own\n"
    assert git(workspace, "remote") == ""
    before = git(repo, "rev-parse", "HEAD"), git(repo, "branch"), git(repo, "worktree", "list")
    git(workspace, "add", ".")
    git(workspace, "commit", "-qm", "by the agent")
    assert (git(repo, "rev-parse", "HEAD"), git(repo, "branch"), git(repo, "worktree", "list")) == before
    fresh_workspace(task(repo=repo, ref="HEAD~1"), workspace)
    assert (workspace / "a.txt").read_text() == "one\n", "the task's own files come last"
    assert git(workspace, "rev-parse", "HEAD") == commit_of(repo, "main~1")


def test_any_other_folder_is_copied(tmp_path: Path) -> None:
    source = tmp_path / "plain"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "x.txt").write_text("x")
    (source / "link").symlink_to("sub/x.txt")
    fresh_workspace(task(repo=source, files=()), tmp_path / "ws")
    assert (tmp_path / "ws" / "link").is_symlink()
    assert (tmp_path / "ws" / "sub" / "x.txt").read_text() == "x"
    assert commit_of(source, None) is None


def test_a_missing_repo_or_ref_is_said(tmp_path: Path, repo: Path) -> None:
    with pytest.raises(TaskError, match="is not there"):
        fresh_workspace(task(repo=tmp_path / "none"), tmp_path / "ws")
    with pytest.raises(TaskError, match="rev-parse"):
        fresh_workspace(task(repo=repo, ref="nope"), tmp_path / "ws")


def test_every_change_is_seen_and_the_same_state_has_the_same_digest(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b").write_text("b")
    first = watch.look()
    assert watch.look() == first
    assert Watch(tmp_path).look().digest == first.digest
    # As long as before, within the same tick of the clock.
    (tmp_path / "a.txt").write_text("two")
    second = watch.look()
    assert second.changed_since(first) == {"a.txt"}
    (tmp_path / "a.txt").chmod(0o755)
    third = watch.look()
    assert third.changed_since(second) == {"a.txt"}
    (tmp_path / "sub" / "b").unlink()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "link").symlink_to("../a.txt")
    assert watch.look().changed_since(third) == {"sub/b", "new", "new/link"}
    (tmp_path / "sub" / "b").write_text("b")
    (tmp_path / "new" / "link").unlink()
    (tmp_path / "new").rmdir()
    (tmp_path / "a.txt").chmod(0o644)
    (tmp_path / "a.txt").write_text("one")
    assert watch.look().digest == first.digest


def test_a_rewritten_file_of_the_same_content_is_no_change(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    watch = Watch(tmp_path)
    first = watch.look()
    (tmp_path / "a.txt").write_text("one")
    assert watch.look() == first


def test_a_file_whose_time_was_set_back_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    os.utime(path, (1, 1))
    watch = Watch(tmp_path)
    first = watch.look()
    path.write_text("two")
    os.utime(path, (1, 1))
    assert watch.look().changed_since(first) == {"a.txt"}


def test_caches_and_what_the_task_names_are_not_looked_at(tmp_path: Path) -> None:
    watch = Watch(tmp_path, ("build", "*.log", "out/*.bin"))
    first = watch.look()
    for name in (
        ".git/index",
        "p/__pycache__/x.pyc",
        ".pytest_cache/v",
        "build/x",
        "a.log",
        "out/y.bin",
        "m.pyc",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert watch.look().changed_since(first) == {"p", "out"}
    (tmp_path / "out" / "y.txt").write_text("x")
    assert "out/y.txt" in watch.look().files


def test_an_absent_workspace_is_empty(tmp_path: Path) -> None:
    assert Watch(tmp_path / "none").look().files == {}


def test_odd_files_do_no_harm(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / os.fsdecode(b"bad-\xff")).write_text("x")
    snapshot = Watch(tmp_path).look()
    assert len(snapshot.files) == 3
