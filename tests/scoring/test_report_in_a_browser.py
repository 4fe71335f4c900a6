"""The page as people meet it, in a real Chromium: silent, self-contained, usable by keyboard."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from scoring.report import write_report
from scoring.score import score_paths
from tests.scoring.browser import Tab, chromium, needs_chromium
from tests.scoring.rich import rich_folders

pytestmark = [needs_chromium, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A path that is wider than a telephone.
    folder = tmp_path_factory.mktemp("page") / ("a-very-long-name-of-a-folder-" * 3)
    folder.mkdir()
    places = rich_folders(folder)
    score = score_paths(
        [places["treated"], places["off"]], positive=[places["positive"]], negative=[places["negative"]]
    )
    write_report(score, folder / "report.html")
    return folder / "report.html"


async def test_the_page_in_chromium(page: Path, tmp_path: Path) -> None:
    address = page.as_uri()
    async with chromium(tmp_path) as tab:
        await tab.wear()
        await tab.open(address)
        light = _picture(await tab.screenshot())
        await _fits(tab)
        await _works_by_keyboard(tab)
        await _is_named_for_screen_readers(tab)
        await tab.wear(scheme="dark")
        dark = _picture(await tab.screenshot())
        await tab.wear(media="print", width=760)
        await _fits(tab)
        paper = await tab.pdf()
        await tab.wear(width=400)
        await _fits(tab)
        assert tab.said == []
        assert set(tab.requests) == {address}
    assert light.mean() > 0.85
    assert dark.mean() < 0.25
    # The plots turn dark with the page: nothing that is white is left in it but letters.
    assert (dark > 0.97).mean() < 0.02
    assert paper.startswith(b"%PDF-")


def _picture(png: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Brightness, 0 to 1, of each point."""
    return np.asarray(imread(io.BytesIO(png), format="png")[..., :3].mean(axis=2))


async def _fits(tab: Tab) -> None:
    """Nothing but what scrolls by itself is wider than the window."""
    assert await tab.ask("document.documentElement.scrollWidth <= window.innerWidth")


async def _works_by_keyboard(tab: Tab) -> None:
    await tab.press("Tab", 9)
    assert await tab.ask("document.activeElement.textContent") == "Skip to the numbers"
    for _ in range(40):
        await tab.press("Tab", 9)
        if await tab.ask("document.activeElement.tagName") == "SUMMARY":
            break
    assert await tab.ask("document.activeElement.parentElement.open") is False
    await tab.press("Enter", 13, "\r")
    assert await tab.ask("document.activeElement.parentElement.open") is True
    await tab.press("Tab", 9)
    assert await tab.ask("document.activeElement.matches('a[href^=\"#run-\"]')") is True


async def _is_named_for_screen_readers(tab: Tab) -> None:
    await tab.do("Accessibility.enable")
    nodes = (await tab.do("Accessibility.getFullAXTree"))["nodes"]
    await tab.do("Accessibility.disable")
    named: dict[str, list[str]] = {}
    for node in nodes:
        if not node.get("ignored"):
            name = node.get("name", {}).get("value", "")
            named.setdefault(node["role"]["value"], []).append(name)
    assert len(named["image"]) == 6
    assert all(named["image"])
    assert all(named["link"])
    assert "Validity" in named["heading"]
    assert "Sections" in named["navigation"]
