"""Where a request goes: the run in its path, the provider by its headers or path. Pure functions."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from proxy.runs import DEFAULT_RUN, valid_run_id
from scheduler.nearest import unknown

PROVIDERS: Mapping[str, str] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com",
    "gemini": "https://generativelanguage.googleapis.com",
}


class UpstreamError(ValueError):
    """An upstream that cannot be used; the message says what one looks like."""


class Origin(NamedTuple):
    """Scheme, host and port of a server, and the path that stands before every request's own."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def parse_origin(url: str) -> Origin:
    """The origin of an http(s) URL; raises ``UpstreamError``."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise UpstreamError(f"not a usable upstream URL: {url!r} ({error})") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UpstreamError(f"not a usable upstream URL: {url!r} (give http://HOST:PORT or https://HOST)")
    if parts.query or parts.fragment or parts.username:
        raise UpstreamError(f"an upstream URL has no query, fragment or user name: {url!r}")
    default = 443 if parts.scheme == "https" else 80
    return Origin(parts.scheme, parts.hostname, port or default, parts.path.rstrip("/"))


@dataclass(frozen=True, slots=True)
class Upstreams:
    """``everything``: one upstream for all; else by provider, one that is not given at its own address."""

    everything: Origin | None
    by_provider: Mapping[str, Origin]

    def given(self) -> list[Origin]:
        """The upstreams that the user named."""
        return [*([self.everything] if self.everything else []), *self.by_provider.values()]

    def of(self, path: str, headers: Mapping[str, str]) -> Origin | None:
        """Where a request goes, or None when nothing says which provider it is for."""
        provider = provider_of(path, headers)
        if provider is not None and provider in self.by_provider:
            return self.by_provider[provider]
        if self.everything is not None:
            return self.everything
        return parse_origin(PROVIDERS[provider]) if provider is not None else None


def parse_upstreams(values: Iterable[str]) -> Upstreams:
    """``URL`` for everything, ``anthropic=URL`` for one provider; raises ``UpstreamError``."""
    everything: Origin | None = None
    by_provider: dict[str, Origin] = {}
    for value in values:
        name, is_named, url = value.partition("=")
        if is_named and "/" not in name:
            if name not in PROVIDERS:
                raise UpstreamError(unknown("provider", name, PROVIDERS))
            by_provider[name] = parse_origin(url)
        elif everything is not None:
            raise UpstreamError("two upstreams for everything: name the provider (anthropic=URL) of one")
        else:
            everything = parse_origin(value)
    return Upstreams(everything, by_provider)


def provider_of(path: str, headers: Mapping[str, str]) -> str | None:
    """The provider that a request is meant for: by its auth header, else by its path."""
    if "anthropic-version" in headers or "x-api-key" in headers:
        return "anthropic"
    if "x-goog-api-key" in headers:
        return "gemini"
    path = path.partition("?")[0]
    if "/v1/messages" in path:
        return "anthropic"
    if path.endswith(("/chat/completions", "/responses")):
        return "openai"
    if path.endswith((":generateContent", ":streamGenerateContent", ":countTokens")):
        return "gemini"
    return None


class Route(NamedTuple):
    """``run_id`` None: the path names a run with an id that is none."""

    run_id: str | None
    path: str


def route(path: str) -> Route:
    """Splits ``/run/<run_id>/rest`` into the run and ``/rest``; any other path belongs to the default run."""
    if path != "/run" and not path.startswith("/run/"):
        return Route(DEFAULT_RUN, path)
    rest = path[5:]
    cut = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    run_id = rest[:cut]
    inner = rest[cut:]
    if not inner.startswith("/"):
        inner = "/" + inner
    return Route(run_id if valid_run_id(run_id) else None, inner)


def without_token(path: str, token: str | None) -> str | None:
    """``path`` behind ``/<token>``; None when it starts otherwise. Without a token any path is open."""
    if token is None:
        return path
    first, _, rest = path.removeprefix("/").partition("/")
    return "/" + rest if hmac.compare_digest(first.encode(), token.encode()) else None
