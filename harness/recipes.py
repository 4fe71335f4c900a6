"""Installing and finding a harness program, wherever it comes from."""

from __future__ import annotations

from harness import npm, pypi
from harness.adapter import NpmRecipe, Program, Recipe
from harness.cache import Progress


def install(recipe: Recipe, progress: Progress) -> Program:
    """Brings a harness into the cache, once: a second call finds it. HarnessError says what went wrong."""
    if isinstance(recipe, NpmRecipe):
        return npm.install(recipe, progress)
    return pypi.install(recipe, progress)
