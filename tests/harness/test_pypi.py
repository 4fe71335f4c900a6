"""The installer of harnesses from PyPI, with a small uv of our own in the place of the real one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness import pypi
from harness.adapter import HarnessError, PypiRecipe
from harness.recipes import install

# It makes a virtual environment with one distribution in it, whose command prints its arguments.
FAKE_UV = """#!{python}
import os, pathlib, subprocess, sys, sysconfig
counter = pathlib.Path({counter!r})
counter.write_text(counter.read_text() + "x" if counter.exists() else "x")
if sys.argv[1] == "venv":
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", sys.argv[-1]], check=True)
    sys.exit()
if os.environ.get("UV_FAILS"):
    print("error: no such package", file=sys.stderr)
    sys.exit(1)
name, _, version = sys.argv[-1].partition("==")
place = pathlib.Path(sys.argv[sys.argv.index("--python") + 1]).parents[1]
site = next(place.glob("lib/python*/site-packages"))
(site / "prog_module.py").write_text("import sys\\n\\ndef main():\\n    print(sys.argv)\\n")
info = site / f"prog_pkg-{{version}}.dist-info"
info.mkdir()
(info / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: {{name}}\\nVersion: {{version}}\\n")
(info / "entry_points.txt").write_text("[console_scripts]\\nprog = prog_module:main\\n")
script = place / "bin" / "prog"
script.write_text(f"#!{{place}}/bin/python\\nfrom prog_module import main\\nmain()\\n")
script.chmod(0o755)
"""
RECIPE = PypiRecipe("prog-agent", "1.2.3", "prog-pkg", "prog")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with the fake uv; the file counts its runs."""
    programs, counter = tmp_path / "programs", tmp_path / "runs"
    programs.mkdir()
    fake = programs / "uv"
    fake.write_text(FAKE_UV.format(python=sys.executable, counter=str(counter)))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("CHAOSPROXY_CACHE", str(tmp_path / "cache"))
    return counter


def test_installs_once_and_the_program_starts_where_it_was_moved_to(tmp_path: Path, runs: Path) -> None:
    said: list[str] = []
    program = install(RECIPE, said.append)
    target = tmp_path / "cache/harnesses/prog-agent@1.2.3"
    assert (program.executable, program.version) == (target / "bin/prog", "1.2.3")
    assert install(RECIPE, said.append) == pypi.find(RECIPE) == program
    assert runs.read_text() == "xx"  # the environment, and what is in it
    assert [line.split(":")[0] for line in said] == ["prog-agent 1.2.3"] * 3
    assert [entry.name for entry in target.parent.iterdir()] == ["prog-agent@1.2.3"]
    done = subprocess.run([program.executable, "a b", "-x"], capture_output=True, text=True, check=True)
    assert done.stdout == "['prog', 'a b', '-x']\n"


def test_a_failed_install_leaves_nothing_and_says_why(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_FAILS", "1")
    with pytest.raises(HarnessError, match="no such package"):
        pypi.install(RECIPE, lambda _: None)
    assert list((tmp_path / "cache/harnesses").iterdir()) == []
    with pytest.raises(HarnessError, match=r"harness\.install prog-agent"):
        pypi.find(RECIPE)


def test_finds_a_program_on_the_path(tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = install(RECIPE, lambda _: None)
    elsewhere = tmp_path / "programs/prog"
    elsewhere.write_text(f"#!{installed.executable.parent}/python\nprint('no version')\n")
    elsewhere.chmod(0o755)
    other = PypiRecipe("prog-agent", "9.9.9", "prog-pkg", "prog")
    found = pypi.find(other)
    assert (found.executable, found.version) == (elsewhere, "1.2.3")
    elsewhere.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(HarnessError, match="does not say which Python"):
        pypi.find(other)
