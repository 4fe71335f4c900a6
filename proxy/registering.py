"""Runs that were registered, as memory.db keeps them: a restart knows them again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from proxy.runs import RunBook, RunSettings
from scheduler.profile import parse_profile


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    task_id: str
    seed: int
    profile: dict[str, Any]
    repeat: int = 0
    attempt: int = 1
    harness: str | None = None
    harness_version: str | None = None
    token_budget: int | None = None
    workspace: str | None = None
    home: str | None = None
    temp: tuple[str, ...] = ()


def kept(settings: RunSettings) -> bytes:
    """What is written down of a run's settings."""
    same = (name for name in _Kept.__struct_fields__ if name != "profile")
    fields = {name: getattr(settings, name) for name in same}
    return msgspec.json.encode(_Kept(**fields, profile=settings.profile.resolved()))


def known_again(data: bytes) -> RunSettings:
    """The settings that ``kept`` wrote; raises ``msgspec.DecodeError`` or ``ProfileError``."""
    read = msgspec.json.decode(data, type=_Kept)
    fields = msgspec.structs.asdict(read) | {"profile": parse_profile(read.profile, f"run {read.run_id}")}
    return RunSettings(**fields)


def take_up(runs: RunBook, rows: Iterable[bytes]) -> None:
    """Registers what a store kept."""
    for row in rows:
        runs.register(known_again(row))
