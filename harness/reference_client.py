"""The reference agent's line to the model: Anthropic Messages, streamed, with bounded retries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp

TRIES = 5
_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 5.0
_RETRIED = frozenset({408, 409, 429})


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer: the content blocks as they go back into the history."""

    content: tuple[dict[str, Any], ...]
    stop_reason: str | None

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return "\n".join(block["text"] for block in self.content if block["type"] == "text")

    @property
    def calls(self) -> tuple[dict[str, Any], ...]:
        """The tool_use blocks."""
        return tuple(block for block in self.content if block["type"] == "tool_use")


class EndpointError(Exception):
    """The endpoint did not answer, however often it was asked; the message says how it failed last."""


class _Failure(Exception):
    def __init__(self, reason: str, *, retry: bool, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry = retry
        self.wait_s = wait_s


class ModelClient:
    """Asks one endpoint. ``base_url`` may have a path of its own; ``/v1/messages`` is added to it."""

    def __init__(self, base_url: str, headers: dict[str, str]) -> None:
        self._url = base_url.rstrip("/") + "/v1/messages"
        self._headers = headers

    async def ask(self, body: dict[str, Any]) -> Reply:
        """One answer, after up to ``TRIES`` attempts; EndpointError when there is none."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=300)
        wait_s = _FIRST_WAIT_S
        reason = ""
        async with aiohttp.ClientSession(timeout=timeout, headers=self._headers) as session:
            for attempt in range(TRIES):
                try:
                    return await self._attempt(session, body)
                except _Failure as failure:
                    reason = failure.reason
                    if not failure.retry or attempt == TRIES - 1:
                        break
                    await asyncio.sleep(min(failure.wait_s or wait_s, _LONGEST_WAIT_S))
                    wait_s *= 2
        raise EndpointError(reason)

    async def _attempt(self, session: aiohttp.ClientSession, body: dict[str, Any]) -> Reply:
        try:
            async with session.post(self._url, json=body) as response:
                if response.status != 200:
                    raise _refused(response, await response.text(errors="replace"))
                return await _assembled(response)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _Failure(f"{type(error).__name__}: {error}", retry=True) from error


def _refused(response: aiohttp.ClientResponse, text: str) -> _Failure:
    told = response.headers.get("x-should-retry")
    retry = response.status in _RETRIED or response.status >= 500
    if told in ("true", "false"):
        retry = told == "true"
    after = response.headers.get("retry-after", "")
    wait_s = float(after) if after.replace(".", "", 1).isdigit() else None
    return _Failure(f"status {response.status}: {text[:500]}", retry=retry, wait_s=wait_s)


@dataclass(slots=True)
class _OpenBlock:
    head: dict[str, Any]
    pieces: list[str] = field(default_factory=list)

    def closed(self) -> dict[str, Any]:
        text = "".join(self.pieces)
        if self.head["type"] == "tool_use":
            return {key: self.head[key] for key in ("type", "id", "name")} | {"input": _arguments(text)}
        return {"type": "text", "text": self.head.get("text", "") + text}


def _arguments(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    # The history needs an object; the tools then say which argument is missing.
    return parsed if isinstance(parsed, dict) else {"unreadable": text}


async def _assembled(response: aiohttp.ClientResponse) -> Reply:
    blocks: dict[int, _OpenBlock] = {}
    stop_reason: str | None = None
    async for data in _events(response):
        match data.get("type"):
            case "content_block_start" if data["content_block"]["type"] in ("text", "tool_use"):
                blocks[data["index"]] = _OpenBlock(data["content_block"])
            case "content_block_delta" if data["index"] in blocks:
                delta = data["delta"]
                blocks[data["index"]].pieces.append(delta.get("text", "") + delta.get("partial_json", ""))
            case "message_delta":
                stop_reason = data["delta"].get("stop_reason")
            case "message_stop":
                content = tuple(blocks[index].closed() for index in sorted(blocks))
                return Reply(tuple(block for block in content if block.get("text") != ""), stop_reason)
            case "error":
                raise _Failure(f"error in the stream: {data.get('error')}", retry=True)
    raise _Failure("the stream ended before the message did", retry=True)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """The data of server-sent events; a line split over several reads is whole again here."""
    async for raw in response.content:
        line = raw.decode("utf-8").rstrip("\r\n")
        if line.startswith("data:"):
            try:
                data = json.loads(line[5:])
            except ValueError as error:
                raise _Failure(f"unreadable event: {line[:200]}", retry=True) from error
            yield data
