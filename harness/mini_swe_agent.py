"""mini-swe-agent (PyPI ``mini-swe-agent``), headless, over any of three protocols, not streamed."""

from __future__ import annotations

from typing import Literal

from harness import pypi
from harness.adapter import HarnessError, Job, Program, PypiRecipe, Recipe, base_environment
from harness.launch import Launch

Api = Literal["openai-chat", "openai-responses", "anthropic"]

# The part before the slash tells its model library which protocol to speak.
_MODELS: dict[Api, str] = {
    "openai-chat": "openai/gpt-4.1",
    "openai-responses": "openai/gpt-4.1",
    "anthropic": "anthropic/claude-sonnet-4-5",
}
_RECIPE = PypiRecipe(
    name="mini-swe-agent",
    version="2.4.6",
    package="mini-swe-agent",
    program="mini",
)


class MiniSweAgent:
    """``api`` is the protocol. mini-swe-agent keeps no sessions: none can be named or gone on with."""

    name = "mini-swe-agent"
    recipe: Recipe | None = _RECIPE

    def __init__(self, api: Api = "openai-chat") -> None:
        self._api = api

    def find(self) -> Program:
        """As ``Adapter.find``."""
        return pypi.find(_RECIPE)

    def launch(self, program: Program, job: Job) -> Launch:
        """HarnessError when ``job`` asks for a resume or for other tools: it has neither."""
        if job.resume is not None:
            raise HarnessError("mini-swe-agent keeps no sessions: a run of it cannot be resumed")
        if job.tools:
            raise HarnessError("mini-swe-agent has one tool, bash: others cannot be listed")
        argv = [
            str(program.executable),
            f"--model={job.model or _MODELS[self._api]}",
            "--yolo",
            "--exit-immediately",
            f"--task={job.prompt}",
        ]
        if self._api == "openai-responses":
            argv.append("--model-class=litellm_response")
        env = (
            base_environment(job, program.path)
            | {
                "ANTHROPIC_API_KEY": "none-needed",
                "ANTHROPIC_BASE_URL": job.base_url,
                # Prices and other facts of models come from the network unless it is told not to ask.
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "MSWEA_CONFIGURED": "true",
                "MSWEA_COST_TRACKING": "ignore_errors",
                "OPENAI_API_KEY": "none-needed",
                "OPENAI_BASE_URL": f"{job.base_url}/v1",
            }
            | dict(job.env)
        )
        return Launch(tuple(argv), env, job.workspace)
