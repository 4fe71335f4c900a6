"""Qwen Code (npm ``@qwen-code/qwen-code``), headless, over OpenAI Chat Completions."""

from __future__ import annotations

import json

from harness import npm
from harness.adapter import HarnessError, Job, NpmRecipe, Program, Recipe, base_environment
from harness.launch import Launch

DEFAULT_MODEL = "qwen3-coder-plus"

_RECIPE = NpmRecipe(
    name="qwen-code",
    version="0.24.4",
    packages={"@qwen-code/qwen-code": "0.24.4"},
    program="qwen",
    node=(22, 0),
)


class QwenCode:
    """Session ids must be UUIDs."""

    name = "qwen-code"
    recipe: Recipe | None = _RECIPE

    def find(self) -> Program:
        """As ``Adapter.find``."""
        return npm.find(_RECIPE)

    def launch(self, program: Program, job: Job) -> Launch:
        """What is no option stands in ``~/.qwen/settings.json``."""
        if job.tools:
            raise HarnessError("Qwen Code is started with its own tools: they cannot be listed")
        argv = [str(program.executable), "--yolo", "--auth-type=openai", "--output-format=stream-json"]
        if job.resume is not None:
            argv.append(f"--resume={job.resume}")
        elif job.session is not None:
            argv.append(f"--session-id={job.session}")
        argv.append(f"--prompt={job.prompt}")
        settings = {"general": {"disableAutoUpdate": True}, "privacy": {"usageStatisticsEnabled": False}}
        file = job.home / ".qwen" / "settings.json"
        env = (
            base_environment(job, program.path)
            | {
                "OPENAI_API_KEY": "none-needed",
                "OPENAI_BASE_URL": f"{job.base_url}/v1",
                "OPENAI_MODEL": job.model or DEFAULT_MODEL,
                "QWEN_TELEMETRY_ENABLED": "false",
            }
            | dict(job.env)
        )
        return Launch(tuple(argv), env, job.workspace, ((file, json.dumps(settings, indent=2) + "\n"),))
