"""The control API: what the path of a request cannot say of a run. JSON over HTTP, on the loopback only.

``PUT /runs/<run_id>`` registers a run, ``POST /runs/<run_id>/end`` ends one, ``GET /runs`` lists them all.
The proxy's own loop serves it, so that nothing it does can fall between two steps of a request.
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from configs import ConfigError, dialects, load_profile
from ledger.decisions import LedgerError
from ledger.runs import Ended
from proxy.injector import Injector
from proxy.runs import Run, RunSettings, valid_run_id
from scheduler.nearest import unknown
from scheduler.profile import Profile, ProfileError, parse_profile

_MAX_BODY_BYTES = 1 << 20


class _Checked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                raise ValueError(unknown("key", str(key), cls.model_fields))
        return data


class _RunBody(_Checked):
    """What a run is; what is left out keeps the command line's word."""

    task_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    repeat: Annotated[int, Field(strict=True, ge=0)] = 0
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**64)] | None = None
    profile: str | dict[str, Any] | None = None
    harness: str | None = None
    token_budget: Annotated[int, Field(strict=True, ge=1)] | None = None

    @field_validator("harness")
    @classmethod
    def _harness(cls, name: str | None) -> str | None:
        if name is not None and name not in dialects():
            raise ValueError(unknown("harness", name, dialects()))
        return name


class _EndBody(_Checked):
    """How a run ended, and whether it passed; null: not said."""

    ended: Ended | None = None
    passed: Annotated[bool, Field(strict=True)] | None = None

    @field_validator("ended", mode="before")
    @classmethod
    def _ended(cls, value: Any) -> Any:
        if value is not None and value not in get_args(Ended):
            raise ValueError(unknown("end state", str(value), get_args(Ended)))
        return value


@dataclass(frozen=True, slots=True)
class ControlApi:
    """Serves one injector's runs. ``base_url`` of a run is told to whoever registers it."""

    injector: Injector
    port: int
    host: str = "127.0.0.1"

    async def start(self, base_url: str) -> web.AppRunner:
        """Binds the port (0 takes a free one); ``OSError`` when it is taken."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[_local_only, _plain_errors])
        calls = _Calls(self.injector, base_url)
        app.router.add_put("/runs/{run_id}", calls.register)
        app.router.add_post("/runs/{run_id}/end", calls.end)
        app.router.add_get("/runs", calls.list)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        try:
            await web.TCPSite(runner, self.host, self.port).start()
        except BaseException:
            await runner.cleanup()
            raise
        return runner


@web.middleware
async def _local_only(request: web.Request, handler: Any) -> web.StreamResponse:
    """A web page that the user has open must not be able to steer runs, whatever name it resolves to us."""
    host = urlsplit(f"//{request.host}").hostname or ""
    if "origin" in request.headers or not _is_loopback(host):
        return _problem(403, "the control API answers programs on this machine only")
    answer: web.StreamResponse = await handler(request)
    return answer


@web.middleware
async def _plain_errors(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        answer: web.StreamResponse = await handler(request)
    except web.HTTPNotFound:
        return _problem(404, "there are PUT /runs/<run_id>, POST /runs/<run_id>/end and GET /runs")
    except web.HTTPMethodNotAllowed as error:
        return _problem(405, f"{request.path} takes {', '.join(sorted(error.allowed_methods))}")
    except web.HTTPRequestEntityTooLarge:
        return _problem(413, f"a body has at most {_MAX_BODY_BYTES} bytes")
    except LedgerError as error:
        return _problem(507, str(error))
    return answer


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Calls:
    """The three calls."""

    def __init__(self, injector: Injector, base_url: str) -> None:
        self._injector = injector
        self._base_url = base_url

    async def register(self, request: web.Request) -> web.Response:
        """201 for a new run, 200 for one that was registered just so; 409 when it has begun otherwise."""
        run_id = request.match_info["run_id"]
        if not valid_run_id(run_id):
            return _problem(400, "a run id has 1 to 128 of A-Z a-z 0-9 . _ ~ -")
        try:
            body = _RunBody.model_validate(await _json(request))
            settings = self._settings(run_id, body)
        except (ValidationError, ValueError) as error:
            return _problem(400, _said(error))
        runs = self._injector.runs
        if runs.is_registered(run_id) and runs.get(run_id).settings == settings:
            return web.json_response(self._shown(runs.get(run_id)), status=200)
        try:
            run = self._injector.register(settings)
        except ValueError as error:
            return _problem(409, str(error))
        return web.json_response(self._shown(run), status=201)

    def _settings(self, run_id: str, body: _RunBody) -> RunSettings:
        defaults = self._injector.runs.defaults
        return replace(
            defaults,
            run_id=run_id,
            task_id=body.task_id if body.task_id is not None else run_id,
            repeat=body.repeat,
            seed=body.seed if body.seed is not None else defaults.seed,
            profile=_profile(body.profile, defaults.profile),
            harness=body.harness if body.harness is not None else defaults.harness,
            token_budget=body.token_budget if body.token_budget is not None else defaults.token_budget,
        )

    async def end(self, request: web.Request) -> web.Response:
        """Ends a run: its end state is what is said, else what was seen on the wire."""
        run_id = request.match_info["run_id"]
        if not self._injector.runs.is_registered(run_id):
            return _problem(
                404, f"no run {run_id!r}: register it with PUT /runs/{run_id}, or send its requests"
            )
        try:
            body = _EndBody.model_validate(await _json(request))
        except (ValidationError, ValueError) as error:
            return _problem(400, _said(error))
        run = self._injector.runs.get(run_id)
        if run.ended:
            return _problem(409, f"run {run_id} has ended already")
        # A run that never made a request is a run all the same.
        self._injector.begin(run)
        self._injector.end(run, body.ended or seen_ending(run), body.passed)
        return web.json_response(self._shown(run))

    async def list(self, request: web.Request) -> web.Response:
        """Every run that is known, in the order in which it came to be."""
        return web.json_response({"runs": [self._shown(run) for run in self._injector.runs.all()]})

    def _shown(self, run: Run) -> dict[str, Any]:
        settings = run.settings
        return {
            "run_id": run.run_id,
            "base_url": f"{self._base_url}/run/{run.run_id}",
            "task_id": settings.task_id,
            "repeat": settings.repeat,
            "seed": settings.seed,
            "profile": settings.profile.name,
            "harness": settings.harness,
            "attempt": settings.attempt,
            "token_budget": settings.token_budget,
            "tokens_used": run.tokens,
            "started": run.started,
            "ended": run.ended,
            "complete": run.complete,
            "invalid": run.invalid,
            "quota": run.quota,
        }


def seen_ending(run: Run) -> Literal["quota_cut", "complete"] | None:
    """What the wire alone tells of how a run ended."""
    if run.quota is not None:
        return "quota_cut"
    return "complete" if run.complete else None


def _profile(named: str | dict[str, Any] | None, default: Profile) -> Profile:
    if named is None:
        return default
    try:
        return load_profile(named) if isinstance(named, str) else parse_profile(named, "profile")
    except (ProfileError, ConfigError) as error:
        raise ValueError(f"profile: {error}") from None


async def _json(request: web.Request) -> Any:
    raw = await request.read()
    try:
        return json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError):
        raise ValueError("the body is not JSON: send an object, such as {}") from None


def _said(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    place = "".join(f"{part}: " for part in first["loc"])
    return f"{place}{first['msg'].removeprefix('Value error, ')}"


def _problem(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
