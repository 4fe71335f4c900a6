"""Serving: what `chaosproxy` without a command does, from options to a clean stop."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, cast

from configs import dialects, gaps_in_common, load_profile, read_capability
from ledger.identity import package_version
from proxy import terminal
from proxy.injector import Injector
from proxy.options import InjectorOptions
from proxy.server import ProxyServer, base_url_of, serve_forever
from proxy.service import ServiceSettings, check_reachable, open_service
from proxy.upstream import parse_upstreams
from proxy.usage import UsageError
from scheduler.profile import Profile


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of `chaosproxy`, as typed."""

    seed: int
    profile: str
    host: str
    port: int
    upstreams: tuple[str, ...]
    log: Path | None
    workspace: Path | None
    block_on_error: bool
    log_payloads: bool
    token: str | None
    control_port: int | None = None
    tested_only: bool = False
    capabilities: tuple[str, ...] = ()


def serve_until_stopped(options: ServeOptions) -> int:
    """Serves until ctrl-C. Everything that can be checked is checked before the port is opened.

    Gives the exit code: 2 when requests were refused since their harness is not tested.
    """
    shared = gaps_in_common(read_capability(name) for name in options.capabilities)
    profile = load_profile(options.profile)
    upstreams = parse_upstreams(options.upstreams)
    _check_host(options)
    for origin in upstreams.given():
        check_reachable(origin)
    log = options.log or _default_log(profile, options.seed)
    settings = ServiceSettings(
        seed=options.seed,
        profile=profile,
        upstreams=upstreams,
        log=log,
        workspace=str(options.workspace.resolve()) if options.workspace else None,
        options=InjectorOptions(
            on_error="block" if options.block_on_error else "forward",
            log_payloads=options.log_payloads,
            crash_at=_crash_at(),
            tested_only=options.tested_only,
            shared_gaps=shared,
        ),
    )
    injector = open_service(settings, terminal.tell)
    server = ProxyServer(
        injector,
        upstreams,
        options.host,
        options.port,
        token=options.token,
        control_port=options.control_port,
    )
    serve_forever(server, lambda port: _announce(options, profile, log, port, server.control_port))
    _say_goodbye(injector, log)
    return 2 if injector.untested else 0


def _crash_at() -> Literal["request", "response"] | None:
    """For tests of the safety net: where the injector is to crash."""
    value = os.environ.get("CHAOSPROXY_CRASH_AT")
    if value is None:
        return None
    if value not in {"request", "response"}:
        raise UsageError(f"CHAOSPROXY_CRASH_AT is request or response, not {value!r}")
    return cast(Literal["request", "response"], value)


def _check_host(options: ServeOptions) -> None:
    try:
        loopback = ipaddress.ip_address(options.host).is_loopback
    except ValueError:
        loopback = options.host == "localhost"
    if not loopback and not options.token:
        raise UsageError(
            f"listening on {options.host} lets others use your model endpoint: give --token SECRET (it then"
            " opens every path), or listen on 127.0.0.1"
        )
    if options.token is not None and not options.token.replace("-", "").replace("_", "").isalnum():
        raise UsageError("a token is made of letters, digits, - and _, since it stands in the path")


def _default_log(profile: Profile, seed: int) -> Path:
    now = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{now}-{profile.name}-{seed}" / "decisions.jsonl"


def _announce(
    options: ServeOptions, profile: Profile, log: Path, port: int, control_port: int | None
) -> None:
    """The start-up lines: what is served, and for each harness what to export."""
    base_url = base_url_of(options.host, port, options.token)
    lines = [
        f"chaosproxy {package_version()}: seed {options.seed}, profile {profile.name}"
        f" ({profile.rate:.0%} per call), log {log}",
        f"listening on {base_url} (ctrl-C ends it)",
        *([f"control API on http://127.0.0.1:{control_port}"] if control_port is not None else []),
        "",
        "Point a harness at it:",
    ]
    for dialect in dialects().values():
        if dialect.export:
            lines += [f"  # {dialect.title}"]
            lines += [f"  {line.replace('{base_url}', base_url)}" for line in dialect.export]
    lines += ["", f"For several runs in one log, append /run/<run_id>: {base_url}/run/my-run"]
    terminal.write("\n".join(lines))


def _say_goodbye(injector: Injector, log: Path) -> None:
    runs = [run for run in injector.runs.all() if run.started]
    for message in injector.untested:
        terminal.write(f"refused: {message}")
    if not runs and injector.untested:
        return
    if not runs:
        terminal.write(f"ended: no agent request was recognised, nothing to score in {log}")
        return
    invalid = sum(run.invalid for run in runs)
    terminal.write(
        f"ended: {len(runs)} run{'s' if len(runs) != 1 else ''}"
        + (f", {invalid} invalid" if invalid else "")
        + f"\nscore it with: chaosproxy score {log}"
    )
