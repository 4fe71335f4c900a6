"""Pi (npm ``@earendil-works/pi-coding-agent``), headless."""

from __future__ import annotations

import json
from typing import Literal

from harness import npm
from harness.adapter import Job, NpmRecipe, Program, Recipe, base_environment
from harness.launch import Launch

DEFAULT_MODEL = "default-model"
Api = Literal["anthropic-messages", "openai-completions", "openai-responses"]

_PROVIDER = "endpoint"
_SCOPE = "@earendil-works"
_RECIPE = NpmRecipe(
    name="pi",
    version="1.0.3",
    packages={f"{_SCOPE}/pi-coding-agent": "1.0.3"},
    program="pi",
    # 1.0.3 asks for "any" version of its own parts, and later ones do not fit it.
    overrides={
        f"{_SCOPE}/chord": "0.87.1",
        f"{_SCOPE}/pi-agent-core": "1.0.3",
        f"{_SCOPE}/pi-ai": "1.0.3",
        f"{_SCOPE}/pi-codemode": "1.0.3",
        f"{_SCOPE}/pi-mcp": "1.0.3",
        f"{_SCOPE}/pi-tui": "1.0.3",
    },
    node=(22, 19),
)


class Pi:
    """``api`` is the wire that Pi's own configuration names. ``Job.tools`` is the whole list of tools."""

    name = "pi"
    recipe: Recipe | None = _RECIPE

    def __init__(self, api: Api = "anthropic-messages") -> None:
        self._api = api

    def find(self) -> Program:
        """As ``Adapter.find``."""
        return npm.find(_RECIPE)

    def launch(self, program: Program, job: Job) -> Launch:
        """The endpoint stands in ``~/.pi/agent/models.json`` of the fresh home."""
        model = job.model or DEFAULT_MODEL
        argv = [str(program.executable), "--print", "--mode", "json", "--offline"]
        argv += ["--provider", _PROVIDER, "--model", model]
        if job.tools:
            argv += ["--tools", ",".join(job.tools)]
        session = job.resume if job.resume is not None else job.session
        if session is not None:
            argv += ["--session-id", session]
        argv += ["--", job.prompt]
        settings = {
            "providers": {
                _PROVIDER: {
                    "baseUrl": job.base_url if self._api == "anthropic-messages" else f"{job.base_url}/v1",
                    "api": self._api,
                    "apiKey": "none-needed",
                    "models": [{"id": model}],
                }
            }
        }
        models = job.home / ".pi" / "agent" / "models.json"
        env = base_environment(job, program.path) | {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"} | dict(job.env)
        return Launch(tuple(argv), env, job.workspace, ((models, json.dumps(settings, indent=2) + "\n"),))
