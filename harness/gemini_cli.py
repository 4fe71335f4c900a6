"""Gemini CLI (npm ``@google/gemini-cli``), headless, over Gemini generateContent."""

from __future__ import annotations

import json

from harness import npm
from harness.adapter import HarnessError, Job, NpmRecipe, Program, Recipe, base_environment
from harness.launch import Launch

DEFAULT_MODEL = "gemini-2.5-pro"

_RECIPE = NpmRecipe(
    name="gemini-cli",
    version="0.61.0",
    packages={"@google/gemini-cli": "0.61.0"},
    program="gemini",
    node=(20, 0),
)


class GeminiCli:
    """Session ids must be UUIDs. A resume goes on with the last session of the job's home."""

    name = "gemini-cli"
    recipe: Recipe | None = _RECIPE

    def find(self) -> Program:
        """As ``Adapter.find``."""
        return npm.find(_RECIPE)

    def launch(self, program: Program, job: Job) -> Launch:
        """What is no option stands in ``~/.gemini/settings.json``."""
        argv = [
            str(program.executable),
            "--skip-trust",
            "--yolo",
            f"--model={job.model or DEFAULT_MODEL}",
            "--output-format=stream-json",
        ]
        if job.resume is not None:
            argv.append("--resume=latest")
        elif job.session is not None:
            argv.append(f"--session-id={job.session}")
        argv.append(f"--prompt={job.prompt}")
        if job.tools:
            raise HarnessError("Gemini CLI is started with its own tools: they cannot be listed")
        settings = {
            "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
            "privacy": {"usageStatisticsEnabled": False},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
        }
        file = job.home / ".gemini" / "settings.json"
        env = (
            base_environment(job, program.path)
            | {
                "GEMINI_API_KEY": "none-needed",
                "GEMINI_TELEMETRY_ENABLED": "false",
                "GOOGLE_GEMINI_BASE_URL": job.base_url,
            }
            | dict(job.env)
        )
        return Launch(tuple(argv), env, job.workspace, ((file, json.dumps(settings, indent=2) + "\n"),))
