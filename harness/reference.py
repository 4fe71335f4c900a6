"""The reference agent that comes with us, as an adapter: launched like any other harness."""

from __future__ import annotations

import sys
from pathlib import Path

import harness
from harness.adapter import Job, NpmRecipe, Program, base_environment
from harness.launch import Launch
from harness.reference_agent import VERSION

DEFAULT_MODEL = "scripted-model"


class Reference:
    """``policy`` (careful, naive) is told to the model; how it then works is the model's affair.

    ``Job.tools`` is not looked at: the agent always offers its four tools.
    """

    name = "reference"
    recipe: NpmRecipe | None = None

    def __init__(self, policy: str = "careful") -> None:
        self._policy = policy

    def find(self) -> Program:
        """The current Python: the agent is a module of this package."""
        return Program(Path(sys.executable), VERSION)

    def launch(self, program: Program, job: Job) -> Launch:
        """``-P`` keeps the workspace's own modules out of the agent."""
        argv = [str(program.executable), "-P", "-m", "harness.reference_agent"]
        argv += [f"--base-url={job.base_url}", f"--workspace={job.workspace}", f"--policy={self._policy}"]
        argv += [f"--model={job.model or DEFAULT_MODEL}", f"--prompt={job.prompt}"]
        if job.resume is not None:
            argv.append(f"--resume={job.resume}")
        elif job.session is not None:
            argv.append(f"--session={job.session}")
        # A checkout that is not installed is found as well.
        env = base_environment(job) | {"PYTHONPATH": str(Path(harness.__path__[0]).parent)} | dict(job.env)
        return Launch(tuple(argv), env, job.workspace)
