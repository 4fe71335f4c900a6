"""Workspaces: made fresh for each run, and looked at to tell what changed in them."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from harness.task import Task, TaskError, prepare

# What tools keep for themselves; a test run that only fills a cache has not changed the work.
ALWAYS_IGNORED = (
    *(".git", "__pycache__", "*.pyc", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"),
    *(".coverage", ".DS_Store"),
)
_GIT_TIMEOUT_S = 600
# A file can be written twice within one tick of a file system's clock, which is 2 s on the coarsest.
_TICK_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Digest by relative path, and over all of them; directories, links and modes count as well."""

    files: Mapping[str, str]
    digest: str

    def changed_since(self, before: Snapshot) -> frozenset[str]:
        """The paths that are new, gone or different."""
        return frozenset(
            path
            for path in self.files.keys() | before.files.keys()
            if self.files.get(path) != before.files.get(path)
        )


@dataclass(slots=True)
class Watch:
    """Looks at one workspace again and again; files that the file system says are untouched are not read."""

    root: Path
    ignore: tuple[str, ...] = ()
    _known: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)

    def look(self) -> Snapshot:
        """The workspace as it is; an absent one is empty."""
        patterns = (*ALWAYS_IGNORED, *self.ignore)
        now_ns = time.time_ns()
        files: dict[str, str] = {}
        known: dict[str, tuple[tuple[int, ...], str]] = {}
        for path, entry in _entries(self.root, "", patterns):
            try:
                about = entry.stat(follow_symlinks=False)
                key = (about.st_mode, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)
                old = self._known.get(path)
                digest = old[1] if old is not None and old[0] == key else _digest(entry, about)
            except OSError:
                continue  # it went while we looked
            files[path] = digest
            if now_ns - max(about.st_mtime_ns, about.st_ctime_ns) > _TICK_NS:
                known[path] = (key, digest)
        self._known = known
        whole = hashlib.sha256()
        for path in sorted(files):
            whole.update(f"{path}\0{files[path]}\0".encode("utf-8", "surrogateescape"))
        return Snapshot(files, whole.hexdigest())


def _entries(
    folder: Path | str, inside: str, patterns: tuple[str, ...]
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except OSError:
        return
    for entry in entries:
        path = f"{inside}{entry.name}"
        if any(fnmatchcase(entry.name, p) or fnmatchcase(path, p) for p in patterns):
            continue
        yield path, entry
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(entry.path, f"{path}/", patterns)


def _digest(entry: os.DirEntry[str], about: os.stat_result) -> str:
    if stat.S_ISREG(about.st_mode):
        runs = "x" if about.st_mode & stat.S_IXUSR else "-"
        try:
            with open(entry.path, "rb") as file:  # noqa: PTH123 - Path would parse every path again
                return runs + hashlib.file_digest(file, "sha256").hexdigest()
        except PermissionError:
            return f"{runs}unreadable {about.st_size} {about.st_mtime_ns}"
    if stat.S_ISLNK(about.st_mode):
        return f"-> {Path(entry.path).readlink()}"
    return f"mode {stat.S_IFMT(about.st_mode):o}"


def fresh_workspace(task: Task, workspace: Path) -> None:
    """Makes ``workspace`` as the task wants it; what stood there before is gone. Raises ``TaskError``.

    A repository is cloned (the clone shares no branch and no remote with it), any other folder is copied;
    the task's own files are written on top.
    """
    if workspace.exists():
        shutil.rmtree(workspace)
    workspace.parent.mkdir(parents=True, exist_ok=True)
    if task.repo is not None:
        _bring(task.repo, task.ref, workspace)
    prepare(task, workspace)


def commit_of(repo: Path, ref: str | None) -> str | None:
    """The commit that a task starts from; None for a folder that is no git repository."""
    if not (repo / ".git").exists():
        return None
    return _git(repo, "rev-parse", "--verify", f"{ref or 'HEAD'}^{{commit}}").strip()


def _bring(repo: Path, ref: str | None, workspace: Path) -> None:
    commit = commit_of(repo, ref)
    if commit is None:
        if not repo.is_dir():
            raise TaskError(f"the task's repo {repo} is not there")
        shutil.copytree(repo, workspace, symlinks=True)
        return
    _git(repo, "clone", "--quiet", "--local", "--no-checkout", str(repo), str(workspace))
    _git(workspace, "remote", "remove", "origin")
    _git(workspace, "checkout", "--quiet", "--detach", commit)


def _git(where: Path, *arguments: str) -> str:
    env = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            ["git", "-c", "safe.directory=*", "-c", "advice.detachedHead=false", *arguments],
            cwd=where,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TaskError(f"git {arguments[0]} in {where}: {error}") from error
    if done.returncode != 0:
        raise TaskError(f"git {arguments[0]} in {where}: {done.stderr.strip()[:300]}")
    return done.stdout
