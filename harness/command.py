"""Any command as a harness: it is told where the endpoint is, and what to do, in its environment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from harness.adapter import HarnessError, Job, NpmRecipe, Program, base_environment
from harness.launch import Launch


class Command:
    """``argv``, in which ``{prompt}``, ``{base_url}``, ``{workspace}`` and ``{session}`` are filled in.

    It runs in the workspace with the caller's environment, a HOME of its own, and the base URL in the
    variables that clients look at. ``resume_argv``: how to go on; without it the same command again, with
    ``CHAOSPROXY_RESUME=1``.
    """

    name = "command"
    recipe: NpmRecipe | None = None

    def __init__(self, argv: Sequence[str], resume_argv: Sequence[str] | None = None) -> None:
        self._argv = tuple(argv)
        self._resume_argv = tuple(resume_argv or argv)

    def find(self) -> Program:
        """As ``Adapter.find``. Its version is not known."""
        found = shutil.which(self._argv[0])
        if found is None:
            raise HarnessError(f"the command {self._argv[0]!r} is not there, or cannot be executed")
        return Program(Path(found).absolute(), "")

    def launch(self, program: Program, job: Job) -> Launch:
        """The command with its places filled."""
        session = job.resume or job.session or ""
        places = {
            "{prompt}": job.prompt,
            "{base_url}": job.base_url,
            "{workspace}": str(job.workspace),
            "{session}": session,
        }
        argv = self._argv if job.resume is None else self._resume_argv
        env = dict(os.environ) | base_environment(job)
        env |= {
            "ANTHROPIC_BASE_URL": job.base_url,
            "OPENAI_BASE_URL": f"{job.base_url}/v1",
            "OPENAI_API_BASE": f"{job.base_url}/v1",
            "GOOGLE_GEMINI_BASE_URL": job.base_url,
            "CHAOSPROXY_BASE_URL": job.base_url,
            "CHAOSPROXY_PROMPT": job.prompt,
            "CHAOSPROXY_WORKSPACE": str(job.workspace),
            "CHAOSPROXY_SESSION": session,
            "CHAOSPROXY_RESUME": "0" if job.resume is None else "1",
        }
        if job.model is not None:
            env["CHAOSPROXY_MODEL"] = job.model
        filled = [_filled(word, places) for word in argv]
        if argv[0] == self._argv[0]:
            filled[0] = str(program.executable)
        return Launch(tuple(filled), env | dict(job.env), job.workspace)


def _filled(word: str, places: dict[str, str]) -> str:
    for place, text in places.items():
        word = word.replace(place, text)
    return word
