"""Claude Code (npm ``@anthropic-ai/claude-code``), headless, over Anthropic Messages."""

from __future__ import annotations

from harness import npm
from harness.adapter import Job, NpmRecipe, Program, Recipe, base_environment
from harness.launch import Launch

DEFAULT_MODEL = "claude-sonnet-4-5"

_RECIPE = NpmRecipe(
    name="claude-code",
    version="2.1.289",
    packages={"@anthropic-ai/claude-code": "2.1.289"},
    program="claude",
)


class ClaudeCode:
    """Session ids must be UUIDs. ``Job.tools`` replaces the tool list (``Read``, ``Grep``, ``Glob``, …)."""

    name = "claude-code"
    recipe: Recipe | None = _RECIPE

    def find(self) -> Program:
        """As ``Adapter.find``."""
        return npm.find(_RECIPE)

    def launch(self, program: Program, job: Job) -> Launch:
        """Permissions are bypassed: the workspace is thrown away, and a prompt would wait for ever."""
        argv = [
            str(program.executable),
            "--print",
            "--output-format=stream-json",
            "--verbose",
            "--dangerously-skip-permissions",
            f"--model={job.model or DEFAULT_MODEL}",
        ]
        if job.tools:
            argv.append(f"--tools={','.join(job.tools)}")
        if job.resume is not None:
            argv.append(f"--resume={job.resume}")
        elif job.session is not None:
            argv.append(f"--session-id={job.session}")
        argv += ["--", job.prompt]
        env = base_environment(job, program.path) | {
            "ANTHROPIC_BASE_URL": job.base_url,
            "ANTHROPIC_API_KEY": "none-needed",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            # Behind any base URL but its own it otherwise offers another set of tools.
            "ENABLE_TOOL_SEARCH": "true",
            # As root it refuses to bypass permissions unless it is told that it is in a sandbox.
            "IS_SANDBOX": "1",
        }
        return Launch(tuple(argv), env | dict(job.env), job.workspace)
