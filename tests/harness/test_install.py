"""The installer, with a small npm of our own in the place of the real one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness import npm
from harness.adapter import HarnessError, NpmRecipe

FAKE_NPM = """#!{python}
import json, os, pathlib, sys
counter = pathlib.Path({counter!r})
counter.write_text(counter.read_text() + "x" if counter.exists() else "x")
if os.environ.get("NPM_FAILS"):
    print("npm error 404 no such package", file=sys.stderr)
    sys.exit(1)
manifest = json.loads(pathlib.Path("package.json").read_text())
bin = pathlib.Path("node_modules/.bin")
bin.mkdir(parents=True)
prog = bin / "prog"
prog.write_text("#!/bin/sh\\necho prog " + manifest["dependencies"]["@scope/prog"] + "\\n")
prog.chmod(0o755)
"""
RECIPE = NpmRecipe("prog", "1.2.3", {"@scope/prog": "1.2.3"}, "prog", overrides={"@scope/part": "9.9.9"})


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with the fake npm; the file counts its runs."""
    programs, counter = tmp_path / "programs", tmp_path / "runs"
    programs.mkdir()
    fake = programs / "npm"
    fake.write_text(FAKE_NPM.format(python=sys.executable, counter=str(counter)))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("CHAOSPROXY_CACHE", str(tmp_path / "cache"))
    return counter


def test_installs_once_into_the_cache(tmp_path: Path, runs: Path) -> None:
    said: list[str] = []
    program = npm.install(RECIPE, said.append)
    target = tmp_path / "cache/harnesses/prog@1.2.3"
    assert program.executable == target / "node_modules/.bin/prog"
    assert program.version == "1.2.3"
    assert json.loads((target / "package.json").read_text()) == {
        "private": True,
        "dependencies": {"@scope/prog": "1.2.3"},
        "overrides": {"@scope/part": "9.9.9"},
    }
    assert npm.install(RECIPE, said.append) == npm.find(RECIPE) == program
    assert runs.read_text() == "x"
    assert [line.split(":")[0] for line in said] == ["prog 1.2.3"] * 3
    assert [entry.name for entry in target.parent.iterdir()] == ["prog@1.2.3"]


def test_a_failed_install_leaves_nothing_and_says_why(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPM_FAILS", "1")
    with pytest.raises(HarnessError, match="404 no such package"):
        npm.install(RECIPE, lambda _: None)
    assert list((tmp_path / "cache/harnesses").iterdir()) == []
    monkeypatch.delenv("NPM_FAILS")
    assert npm.install(RECIPE, lambda _: None).version == "1.2.3"


def test_a_version_that_is_not_the_pinned_one_is_refused(runs: Path) -> None:
    other = NpmRecipe("prog", "1.2.3", {"@scope/prog": "1.2.4"}, "prog")
    with pytest.raises(HarnessError, match=r"npm brought prog 1\.2\.4, not 1\.2\.3"):
        npm.install(other, lambda _: None)
    with pytest.raises(HarnessError, match=r"harness\.install prog"):
        npm.find(other)


def test_brings_a_node_when_the_machine_has_none_that_is_new_enough(tmp_path: Path, runs: Path) -> None:
    needs_node = NpmRecipe("prog", "1.2.3", {"@scope/prog": "1.2.3"}, "prog", node=(999, 0))
    with pytest.raises(HarnessError, match=r"needs node 999\.0"):
        npm.install(needs_node, lambda _: None)
    node = tmp_path / "programs/node"
    node.write_text("#!/bin/sh\necho v999.1.0\n")
    node.chmod(0o755)
    program = npm.install(needs_node, lambda _: None)
    assert program.path == ()
    assert "node" not in (program.executable.parents[2] / "package.json").read_text()


def test_finds_a_program_on_the_path(tmp_path: Path, runs: Path) -> None:
    program = tmp_path / "programs/prog"
    program.write_text("#!/bin/sh\necho 'prog v7.8.9 (build 3)'\n")
    program.chmod(0o755)
    found = npm.find(RECIPE)
    assert (found.executable, found.version) == (program, "7.8.9")
    program.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    with pytest.raises(HarnessError, match="--version failed: broken"):
        npm.find(RECIPE)


@pytest.mark.parametrize(
    ("own", "xdg", "expected"),
    [("/own", "/xdg", "/own"), (None, "/xdg", "/xdg/chaosproxy"), (None, None, "/h/.cache/chaosproxy")],
)
def test_where_the_cache_is(
    monkeypatch: pytest.MonkeyPatch, own: str | None, xdg: str | None, expected: str
) -> None:
    for name, value in (("CHAOSPROXY_CACHE", own), ("XDG_CACHE_HOME", xdg), ("HOME", "/h")):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert npm.cache_dir() == Path(expected)


def test_the_command_names_what_it_does_not_know(runs: Path) -> None:
    argv = [sys.executable, "-m", "harness.install", "reference", "pie"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "nothing to install" in done.stdout
    assert "did you mean pi?" in done.stderr
