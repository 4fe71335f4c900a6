"""OpenCode (npm ``opencode-ai``), headless, over any of three protocols."""

from __future__ import annotations

import json
from typing import Literal

from harness import npm
from harness.adapter import HarnessError, Job, NpmRecipe, Program, Recipe, base_environment
from harness.launch import Launch

DEFAULT_MODEL = "default-model"
Api = Literal["openai-chat", "openai-responses", "anthropic"]

_PROVIDER = "endpoint"
_SDK: dict[Api, str] = {
    "openai-chat": "@ai-sdk/openai-compatible",
    "openai-responses": "@ai-sdk/openai",
    "anthropic": "@ai-sdk/anthropic",
}
_RECIPE = NpmRecipe(
    name="opencode",
    version="1.18.33",
    packages={"opencode-ai": "1.18.33"},
    program="opencode",
)


class OpenCode:
    """``api`` is the protocol. OpenCode names its sessions itself: a resume goes on with the last one of the
    job's home."""

    name = "opencode"
    recipe: Recipe | None = _RECIPE

    def __init__(self, api: Api = "openai-chat") -> None:
        self._api = api

    def find(self) -> Program:
        """As ``Adapter.find``."""
        return npm.find(_RECIPE)

    def launch(self, program: Program, job: Job) -> Launch:
        """The endpoint stands in ``~/.config/opencode/opencode.json``; HarnessError when ``job.tools`` asks
        for other tools."""
        if job.tools:
            raise HarnessError("OpenCode is started with its own tools: they cannot be listed")
        model = job.model or DEFAULT_MODEL
        argv = [str(program.executable), "run", "--format", "json", "--auto"]
        argv += ["--model", f"{_PROVIDER}/{model}"]
        if job.resume is not None:
            argv.append("--continue")
        argv += ["--", job.prompt]
        config = job.home / ".config" / "opencode" / "opencode.json"
        env = (
            base_environment(job, program.path)
            | {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
            | dict(job.env)
        )
        return Launch(tuple(argv), env, job.workspace, ((config, self._config(job, model)),))

    def _config(self, job: Job, model: str) -> str:
        provider = {
            "npm": _SDK[self._api],
            "name": _PROVIDER,
            "options": {"baseURL": f"{job.base_url}/v1", "apiKey": "none-needed"},
            "models": {model: {"name": model, "limit": {"context": 200_000, "output": 8192}}},
        }
        settings = {"autoupdate": False, "share": "disabled", "provider": {_PROVIDER: provider}}
        return json.dumps(settings, indent=2) + "\n"
