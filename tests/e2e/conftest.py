"""Every test in here drives a real harness program; `make harnesses` brings them, or the first test does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.stage import Stage

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture
def stage(tmp_path: Path) -> Callable[[str], Stage]:
    """Makes the stage of one harness in a directory of its own, each time a new one."""

    def make(name: str) -> Stage:
        folder = tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        return Stage(name, folder)

    return make
