"""Chromium without a window, driven over its DevTools protocol: what a page logs, asks for and looks like."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="needs chromium: apt-get install chromium, as the CI script does"
)
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-port=0"),
)
_WAIT_S = 60


class Tab:
    """One tab. ``requests`` are the addresses it asked for, ``said`` what it wrote to the console."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self.requests: list[str] = []
        self.said: list[str] = []

    async def listen(self) -> None:
        """Takes in what the browser says, until it goes away."""
        async for message in self._socket:
            data = json.loads(message.data)
            if "id" in data:
                self._answers.pop(data["id"]).set_result(data)
                continue
            method, params = data["method"], data.get("params", {})
            if method == "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            elif method in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                self.said.append(json.dumps(params))
            elif method == "Page.loadEventFired":
                self._loaded.set()

    async def do(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        data = await asyncio.wait_for(answer, _WAIT_S)
        assert "error" not in data, data
        return dict(data["result"])

    async def open(self, address: str) -> None:
        """Loads a page."""
        for domain in ("Network", "Log", "Runtime", "Page"):
            await self.do(f"{domain}.enable")
        self._loaded.clear()
        await self.do("Page.navigate", url=address)
        await asyncio.wait_for(self._loaded.wait(), _WAIT_S)

    async def ask(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = await self.do("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def wear(self, *, scheme: str = "light", media: str = "", width: int = 1100) -> None:
        """Light or dark, screen or print, and how wide."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.do("Emulation.setEmulatedMedia", media=media, features=features)
        await self.do(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )

    async def press(self, key: str, code: int, text: str = "") -> None:
        """Presses and releases a key."""
        for sort in ("keyDown", "keyUp"):
            down = {"text": text} if text and sort == "keyDown" else {}
            await self.do(
                "Input.dispatchKeyEvent", type=sort, key=key, code=key, windowsVirtualKeyCode=code, **down
            )

    async def screenshot(self) -> bytes:
        """The whole page as PNG."""
        found = await self.do("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    async def pdf(self) -> bytes:
        """The page as it prints."""
        found = await self.do("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        return base64.b64decode(found["data"])


@contextlib.asynccontextmanager
async def chromium(profile: Path) -> AsyncIterator[Tab]:
    """A tab of a fresh browser with ``profile`` as its user data; the browser is stopped in the end."""
    assert CHROMIUM is not None
    environment = {**os.environ, "HOME": str(profile), "TZ": "UTC"}
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *_FLAGS,
        f"--user-data-dir={profile / 'user'}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    try:
        port = await asyncio.to_thread(_port, profile / "user" / "DevToolsActivePort")
        address = await asyncio.wait_for(_tab_address(port), _WAIT_S)
        async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
            tab = Tab(socket)
            listening = asyncio.create_task(tab.listen())
            yield tab
            listening.cancel()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _port(ports: Path) -> int:
    """The port that the browser writes down once it listens."""
    give_up = time.monotonic() + _WAIT_S
    while time.monotonic() < give_up:
        if ports.exists() and "\n" in (text := ports.read_text()):
            return int(text.split()[0])
        time.sleep(0.1)
    raise TimeoutError("chromium did not begin to listen")


async def _tab_address(port: int) -> str:
    async with aiohttp.ClientSession() as session:
        for _ in range(_WAIT_S * 10):
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = [one for one in await answer.json() if one["type"] == "page"]
            if pages:
                return str(pages[0]["webSocketDebuggerUrl"])
            await asyncio.sleep(0.1)
    raise TimeoutError("chromium opened no tab")
