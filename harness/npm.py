"""Harness programs from the npm registry, and the node that they need."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
from pathlib import Path

from harness.adapter import HarnessError, NpmRecipe, Program, version_of
from harness.cache import Progress, cache_dir, installed_dir, scratch_home, staged

__all__ = ["cache_dir", "find", "install", "installed_dir"]

_INSTALL_TIMEOUT_S = 900
_NODE_PACKAGE_MAJOR = "22"
_SYSTEMS = {"Linux": "linux", "Darwin": "darwin"}
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


def install(recipe: NpmRecipe, progress: Progress) -> Program:
    """Brings a harness into the cache, once: a second call finds it. HarnessError says what went wrong."""
    target = installed_dir(recipe)
    if target.is_dir():
        progress(f"{recipe.name} {recipe.version}: already in {target}")
        return _in_cache(recipe, target)
    npm = shutil.which("npm")
    if npm is None:
        raise HarnessError(
            f"{recipe.name} is installed with npm, which is not on PATH: install Node.js first"
        )
    progress(f"{recipe.name} {recipe.version}: installing into {target}")
    with staged(target) as fresh:
        (fresh / "package.json").write_text(json.dumps(_manifest(recipe), indent=2) + "\n", encoding="utf-8")
        _npm_install(npm, fresh, recipe)
        found = _in_cache(recipe, fresh).version
        if found != recipe.version:
            raise HarnessError(f"npm brought {recipe.name} {found}, not {recipe.version}")
    progress(f"{recipe.name} {recipe.version}: ready")
    return _in_cache(recipe, target)


def find(recipe: NpmRecipe) -> Program:
    """The recipe's version in the cache, else the program on PATH; HarnessError without either."""
    target = installed_dir(recipe)
    if target.is_dir():
        return _in_cache(recipe, target)
    elsewhere = shutil.which(recipe.program)
    if elsewhere is None:
        raise HarnessError(
            f"{recipe.name} is neither in {target} nor on PATH: run `python -m harness.install {recipe.name}`"
        )
    path = _node_path(recipe, None)
    with scratch_home() as home:
        return Program(Path(elsewhere), version_of(Path(elsewhere), path, home), path)


def _in_cache(recipe: NpmRecipe, place: Path) -> Program:
    executable = place / "node_modules" / ".bin" / recipe.program
    if not executable.exists():
        raise HarnessError(f"{place} has no {recipe.program}: delete it and install again")
    path = _node_path(recipe, place)
    with scratch_home() as home:
        return Program(executable, version_of(executable, path, home), path)


def _manifest(recipe: NpmRecipe) -> dict[str, object]:
    packages = dict(recipe.packages)
    if recipe.node is not None and not _is_new_enough(shutil.which("node"), recipe.node):
        packages[_node_package()] = _NODE_PACKAGE_MAJOR
    return {"private": True, "dependencies": packages, "overrides": dict(recipe.overrides)}


def _npm_install(npm: str, place: Path, recipe: NpmRecipe) -> None:
    argv = [npm, "install", "--no-audit", "--no-fund", "--no-progress", "--loglevel=error"]
    try:
        done = subprocess.run(
            argv,
            cwd=place,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_INSTALL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise HarnessError(
            f"npm took more than {_INSTALL_TIMEOUT_S} s for {recipe.name}: try again"
        ) from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise HarnessError(f"npm could not install {recipe.name} {recipe.version}:\n{said[-2000:]}")


def _node_path(recipe: NpmRecipe, place: Path | None) -> tuple[Path, ...]:
    """The directories that give the harness a node that is new enough."""
    if recipe.node is None:
        return ()
    if place is not None:
        brought = place / "node_modules" / _node_package() / "bin"
        if brought.is_dir():
            return (brought,)
    if not _is_new_enough(shutil.which("node"), recipe.node):
        least = ".".join(map(str, recipe.node))
        raise HarnessError(
            f"{recipe.name} needs node {least} or newer: run `python -m harness.install {recipe.name}`"
        )
    return ()


def _node_package() -> str:
    system = _SYSTEMS.get(platform.system())
    machine = _MACHINES.get(platform.machine().lower())
    if system is None or machine is None:
        raise HarnessError(f"no node for {platform.system()} {platform.machine()}: install Node.js yourself")
    return f"node-{system}-{machine}"


def _is_new_enough(node: str | None, least: tuple[int, int]) -> bool:
    if node is None:
        return False
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = re.match(r"v(\d+)\.(\d+)\.", said.stdout)
    return found is not None and (int(found.group(1)), int(found.group(2))) >= least
