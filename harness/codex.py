"""Codex (npm ``@openai/codex``), headless, over OpenAI Responses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from harness import npm
from harness.adapter import HarnessError, Job, NpmRecipe, Program, Recipe, base_environment
from harness.launch import Launch

# Which tools Codex offers hangs on the model's name: this one gets a shell and patches, later ones a single
# tool that runs JavaScript.
DEFAULT_MODEL = "gpt-5.5"
Transport = Literal["http", "websocket", "built-in"]
"""How Codex speaks to its endpoint: as a provider of its own, or as the one that it has built in."""

_PROVIDER = "endpoint"
_KEY = "CHAOSPROXY_KEY"
_NO_KEY = "none-needed"
_ALWAYS = ("check_for_update_on_startup = false", "", "[analytics]", "enabled = false", "")
_RECIPE = NpmRecipe(
    name="codex",
    version="0.171.0",
    packages={"@openai/codex": "0.171.0"},
    program="codex",
)


class Codex:
    """Codex names its sessions itself: a resume goes on with the last one of the job's home.

    The provider that it has built in speaks over a WebSocket, and over HTTP only where it gets none.
    """

    name = "codex"
    recipe: Recipe | None = _RECIPE

    def __init__(self, transport: Transport = "http") -> None:
        self._transport = transport

    def find(self) -> Program:
        """As ``Adapter.find``."""
        return npm.find(_RECIPE)

    def launch(self, program: Program, job: Job) -> Launch:
        """The endpoint stands in ``~/.codex/config.toml``; HarnessError when ``job.tools`` is not empty."""
        if job.tools:
            raise HarnessError("Codex chooses its tools by the model's name: they cannot be listed")
        argv = [
            str(program.executable),
            "exec",
            # The workspace is thrown away, and nobody is there to approve anything.
            "--dangerously-bypass-approvals-and-sandbox",
            "--skip-git-repo-check",
            "--json",
            *("--disable", "plugins", "--disable", "apps"),
            *("--model", job.model or DEFAULT_MODEL),
        ]
        if job.resume is not None:
            argv += ["resume", "--last"]
        argv += ["--", job.prompt]
        env = base_environment(job, program.path) | {_KEY: _NO_KEY} | dict(job.env)
        return Launch(tuple(argv), env, job.workspace, self._files(job))

    def _files(self, job: Job) -> tuple[tuple[Path, str], ...]:
        folder = job.home / ".codex"
        config = (folder / "config.toml", "\n".join((*self._top(job), *_ALWAYS, *self._provider(job), "")))
        if self._transport != "built-in":
            return (config,)
        return config, (folder / "auth.json", json.dumps({"OPENAI_API_KEY": _NO_KEY}))

    def _top(self, job: Job) -> tuple[str, ...]:
        # A JSON string is a TOML string too.
        if self._transport == "built-in":
            return (f"openai_base_url = {json.dumps(job.base_url + '/v1')}",)
        return (f"model_provider = {json.dumps(_PROVIDER)}",)

    def _provider(self, job: Job) -> tuple[str, ...]:
        if self._transport == "built-in":
            return ()
        return (
            f"[model_providers.{_PROVIDER}]",
            f"name = {json.dumps(_PROVIDER)}",
            f"base_url = {json.dumps(job.base_url + '/v1')}",
            f"env_key = {json.dumps(_KEY)}",
            'wire_api = "responses"',
            f"supports_websockets = {'true' if self._transport == 'websocket' else 'false'}",
        )
