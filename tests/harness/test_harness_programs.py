"""The real Claude Code and Pi against the scripted model, without a proxy."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.adapter import Adapter, Job, Program
from harness.adapters import adapter_named
from harness.demo_model import Manner, demo_policy
from harness.recipes import install
from harness.script import Script, scripted
from harness.scripted_model import ThreadedScriptedModel
from harness.task import Task, shipped_tasks
from harness.trial import run_trial
from harness.turns import ToolCall, Turn

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

TASKS = {task.id: task for task in shipped_tasks()}
Installed = Callable[[str], tuple[Adapter, Program]]


@pytest.fixture(scope="session")
def installed() -> Installed:
    """The adapter and its program, brought into the cache when it is not there yet."""

    def bring(name: str) -> tuple[Adapter, Program]:
        adapter = adapter_named(name)
        assert adapter.recipe is not None
        return adapter, install(adapter.recipe, lambda _: None)

    return bring


@pytest.mark.parametrize("manner", ["careful", "naive"])
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("name", ["claude-code", "pi"])
def test_the_demo_model_solves_every_task(
    installed: Installed, name: str, task: Task, manner: Manner, tmp_path: Path
) -> None:
    adapter, program = installed(name)
    with ThreadedScriptedModel(demo_policy(manner)) as model:
        trial = run_trial(task, adapter, model.url, tmp_path / "t", program=program)
    assert trial.passed, trial.verdict.output
    assert trial.clean_exit
    assert trial.harness_version == program.version
    assert "Done: " in trial.outcome.stdout


@pytest.mark.parametrize(("name", "version"), [("claude-code", "2.1.289"), ("pi", "1.0.3")])
def test_the_pinned_version_is_what_runs(
    installed: Installed, name: str, version: str, tmp_path: Path
) -> None:
    _, program = installed(name)
    assert program.version == version


SCRIPTS = {
    "claude-code": Script(
        (
            Turn(calls=(ToolCall("Read", {"file_path": "{ws}/a.txt"}),)),
            Turn(calls=(ToolCall("Bash", {"command": "echo $ANTHROPIC_API_KEY; pwd"}),)),
            Turn("First half done."),
            Turn(calls=(ToolCall("Bash", {"command": "echo second"}),)),
            Turn("All done."),
        )
    ),
    "pi": Script(
        (
            Turn(calls=(ToolCall("read", {"path": "a.txt"}),)),
            Turn(calls=(ToolCall("bash", {"command": "echo [$ANTHROPIC_API_KEY]; pwd"}),)),
            Turn("First half done."),
            Turn(calls=(ToolCall("bash", {"command": "echo second"}),)),
            Turn("All done."),
        )
    ),
}


@pytest.mark.parametrize("name", ["claude-code", "pi"])
def test_a_session_goes_on_where_it_stopped(
    installed: Installed, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a secret of the caller")
    adapter, program = installed(name)
    workspace, home, session = tmp_path / "ws", tmp_path / "home", str(uuid.uuid4())
    workspace.mkdir()
    home.mkdir()
    (workspace / "a.txt").write_text("line one\n")
    with ThreadedScriptedModel(SCRIPTS[name].in_workspace(workspace)) as model:
        first = Job(model.url + "/run/r1", "Begin.", workspace, home, session=session)
        assert adapter.launch(program, first).run(120).exit_code == 0
        before = len(model.agent_requests)
        again = Job(model.url + "/run/r1", "Go on.", workspace, home, resume=session)
        assert adapter.launch(program, again).run(120).exit_code == 0
        requests = model.agent_requests
    assert before == 3
    assert len(requests) == 5
    assert all(request.path.startswith("/run/r1/v1/messages") for request in requests)
    last = requests[-1].conversation
    assert last is not None
    assert [call.tool.lower() for call in last.calls] == ["read", "bash", "bash"]
    assert "line one" in last.results[0].text
    assert str(workspace) in last.results[1].text
    assert "second" in last.results[2].text
    assert not any(b"a secret of the caller" in request.body for request in requests)
    assert not any("a secret of the caller" in value for request in requests for _, value in request.headers)


def test_claude_code_takes_another_tool_list(installed: Installed, tmp_path: Path) -> None:
    adapter, program = installed("claude-code")
    (tmp_path / "ws").mkdir()
    with ThreadedScriptedModel(scripted("Done.")) as model:
        job = Job(model.url, "Hi.", tmp_path / "ws", tmp_path / "home", tools=("Read", "Grep", "Glob"))
        assert adapter.launch(program, job).run(120).exit_code == 0
    view = model.agent_requests[0].conversation
    assert view is not None
    assert {"Read", "Grep", "Glob"} <= {tool.name for tool in view.tools}
    assert not view.offers("Bash")
