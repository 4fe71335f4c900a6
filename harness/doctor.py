"""Is the set-up able to inject? Looks, and changes nothing."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from typing import NamedTuple

from configs import ConfigError, capability_names, dialect, dialects, load_capability, load_profile
from harness.adapter import HarnessError
from harness.adapters import adapter_named, adapter_names
from proxy.service import check_reachable
from proxy.upstream import UpstreamError, parse_upstreams
from scheduler.dialect import Dialect
from scheduler.profile import Profile, ProfileError


class Finding(NamedTuple):
    """One thing that was looked at: fine, worth a note, or in the way of injecting."""

    what: str
    failed: bool = False
    note: bool = False


class KnownHarness(NamedTuple):
    """A harness with a dialect: which version is installed, which one is pinned, how it is injected."""

    name: str
    title: str
    installed: str | None
    pinned: str | None
    state: str


def known_harnesses() -> list[KnownHarness]:
    """Every harness that has a dialect."""
    found = []
    for name, known in dialects().items():
        installed = pinned = None
        if name in adapter_names():
            adapter = adapter_named(name)
            pinned = adapter.recipe.version if adapter.recipe is not None else None
            try:
                installed = adapter.find().version
            except HarnessError:
                installed = None
        found.append(KnownHarness(name, known.title, installed, pinned, _shown_of(name, installed or pinned)))
    return found


def _shown_of(harness: str, version: str | None) -> str:
    """What was seen to work, of this version or, where it has no file, of others."""
    capability = load_capability(harness, version) if version is not None else None
    if capability is not None:
        passed = sum(cell.result == "pass" for cell in capability.cells)
        return f"{version}: {passed} of {len(capability.cells)} cells pass"
    names = (name.rpartition("@") for name in capability_names())
    others = ", ".join(other for name, _, other in names if name == harness)
    return f"by its dialect, untested{f' (tested: {others})' if others else ''}"


def examine(harness: str | None, profile: str, upstreams: tuple[str, ...], port: int) -> list[Finding]:
    """Looks at everything that serving needs; with ``harness`` at that one alone."""
    findings = [Finding(f"Python {sys.version.split()[0]}")]
    loaded: Profile | None = None
    try:
        loaded = load_profile(profile)
        findings.append(Finding(f"profile {loaded.name} reads well"))
    except (ProfileError, ConfigError) as error:
        findings.append(Finding(str(error), failed=True))
    findings += _upstreams(upstreams)
    findings.append(_port(port))
    names = [harness] if harness is not None else list(dialects())
    for name in names:
        try:
            known = dialect(name)
        except ConfigError as error:
            findings.append(
                Finding(f"{error}; its requests would be injected with generic wordings", failed=True)
            )
            continue
        if loaded is not None:
            findings.append(_live_faults(known, loaded))
        findings += _installed(known, asked=harness is not None)
    return findings


def _upstreams(values: tuple[str, ...]) -> Iterator[Finding]:
    try:
        given = parse_upstreams(values).given()
    except UpstreamError as error:
        yield Finding(str(error), failed=True)
        return
    if not given:
        yield Finding("no --upstream: requests go to the provider that their headers or path name", note=True)
    for origin in given:
        try:
            check_reachable(origin)
            yield Finding(f"upstream {origin.url} answers")
        except UpstreamError as error:
            yield Finding(str(error), failed=True)


def _port(port: int) -> Finding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return Finding(f"port {port} is in use: give another --port", failed=True)
    return Finding(f"port {port} is free")


def _live_faults(known: Dialect, profile: Profile) -> Finding:
    """Which (family, kind) pairs of the profile this harness's tools can meet."""
    families = {rule.family for rule in known.tools.values()}
    if any(rule.family == "shell" for rule in known.tools.values()):
        families |= {"search", "list"}
    live = {
        (family, kind)
        for family, kinds in profile.live_kinds().items()
        if family in families
        for kind in kinds
    }
    if live or profile.force:
        return Finding(f"{known.title}: {len(live)} live (family, kind) pairs under profile {profile.name}")
    if profile.name == "off":
        return Finding(f"{known.title}: profile off injects nothing, as it says", note=True)
    return Finding(
        f"{known.title}: zero live faults, none of its tools is of a family that profile {profile.name} can"
        " make fail",
        failed=True,
    )


def _installed(known: Dialect, *, asked: bool) -> Iterator[Finding]:
    if known.name not in adapter_names():
        if asked:
            yield Finding(f"{known.title}: no adapter, so it cannot be started from here", note=True)
        return
    adapter = adapter_named(known.name)
    try:
        program = adapter.find()
    except HarnessError as error:
        yield Finding(f"{known.title}: {error}", failed=asked, note=not asked)
        return
    yield Finding(f"{known.title} {program.version} is installed")
    capability = load_capability(known.name, program.version)
    if capability is None:
        yield Finding(
            f"{known.title} {program.version}: no capability file, so no cell of it has been shown to work"
            " here; faults are worded by its dialect",
            note=True,
        )
    else:
        gaps = sum(len(kinds) for kinds in capability.gaps().values())
        yield Finding(f"{known.title} {program.version}: tested, {len(capability.cells)} cells, {gaps} gaps")
