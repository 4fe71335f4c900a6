"""mini-swe-agent drops an answer that calls an unknown tool: its calls are withheld by a command that does
nothing. Every before-kind in one session, over each of its protocols, with the endpoint as witness."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from harness.adapter import Job
from harness.mini_swe_agent import Api, MiniSweAgent
from harness.recipes import install
from harness.script import Script
from harness.scripted_model import ThreadedScriptedModel
from harness.turns import ToolCall, Turn
from proxy.recognise import WIRES
from scheduler.faults import KINDS
from scoring.verify import verify_log
from tests.e2e.stage import TIMEOUT_S, Played, call_turns, forced, read_log, result_of, serving
from tests.harness.supervised import Bench, script

_KINDS = [kind.name for kind in KINDS.values() if kind.timing == "before"]
_SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_WORDS = {
    "permission_denied": "ermission denied",
    "not_found": "not found",
    "locked": "busy",
    "timeout": "timed out after 30 seconds",
    "phantom_success": '"returncode": 0,\n  "output": ""',
}


def _command(kind: str) -> str:
    return f"cp base.txt marker-{kind}.txt"


def _spelled(command: str) -> str:
    """As no harness would spell it again."""
    return f'{{"command":  {json.dumps(command)}}}'


def _calls() -> list[ToolCall]:
    commands = [*map(_command, _KINDS), "cat base.txt >> ran.txt"]
    calls = [ToolCall("bash", {}, None, _spelled(command)) for command in commands]
    return [*calls, ToolCall("bash", {"command": _SUBMIT})]


def _play(api: Api, folder: Path) -> Played:
    adapter = MiniSweAgent(api)
    assert adapter.recipe is not None
    program = install(adapter.recipe, lambda _line: None)
    workspace, home = folder / "workspace", folder / "home"
    workspace.mkdir()
    home.mkdir()
    (workspace / "base.txt").write_text("one\n", encoding="utf-8")
    profile = forced(*({"tool": "bash", "match": f"marker-{kind}", "kind": kind} for kind in _KINDS))
    with (
        ThreadedScriptedModel(Script(tuple(call_turns(*_calls())))) as model,
        serving(folder / "log", profile, 7, model.url) as (server, _),
    ):
        job = Job(f"http://127.0.0.1:{server.port}", "Do the task.", workspace, home)
        outcome = adapter.launch(program, job).run(TIMEOUT_S)
        received = list(model.received)
    log = folder / "log" / "decisions.jsonl"
    return Played(outcome, received, log, workspace, read_log(log))


@pytest.mark.parametrize("api", ["openai-chat", "openai-responses", "anthropic"])
def test_no_withheld_command_runs_and_the_model_is_told_otherwise(tmp_path: Path, api: Api) -> None:
    played = _play(api, tmp_path)
    assert played.outcome.exit_code == 0, played.outcome.stderr
    assert not played.of("error")
    assert sorted(path.name for path in played.workspace.iterdir()) == ["base.txt", "ran.txt"]
    assert (played.workspace / "ran.txt").read_text() == "one\n", "what is not withheld runs once"
    assert len(played.turns) == len(_calls())
    for number, kind in enumerate(_KINDS):
        (decision,) = [record for record in played.of("decision") if record["kind"] == kind]
        assert (decision["wire_name"], decision["skipped"]) == ("bash", None)
        later = played.turns[number + 1 :]
        shown = {result_of(request, number).text for request in later}
        assert len(later) == len(_calls()) - 1 - number
        assert [hashlib.sha256(text.encode()).hexdigest() for text in shown] == [decision["payload_sha256"]]
        assert _WORDS[kind] in next(iter(shown))
    _assert_own_arguments(played, api)
    assert verify_log(played.log).differences == ()


def _assert_own_arguments(played: Played, api: Api) -> None:
    """In every request every call has the arguments that the model gave it, in the model's spelling where
    the wire carries it as a text."""
    wire = next(wire for wire in WIRES if wire.name == api)
    for turn, request in enumerate(played.turns):
        parsed = wire.parse_request(request.plain_body, None)
        calls = [call for item in parsed.items for call in item.calls]
        spelled = [wire.call_arguments(parsed, call).decode() for call in calls]
        assert len(calls) == len({call.call_id for call in calls}) == turn
        assert [call.tool for call in calls] == ["bash"] * turn
        assert spelled[: len(_KINDS)] == [_spelled(_command(kind)) for kind in _KINDS][:turn]
        assert b'\\":\\"' not in request.plain_body
        assert b'": ":"' not in request.plain_body
        results = [result for item in parsed.items for result in item.results]
        assert len(results) == turn


@pytest.mark.parametrize(("last", "claimed"), [("All is fixed.", "done"), ("I was unable to.", "gave_up")])
def test_a_session_that_ends_itself_with_a_call_is_complete(tmp_path: Path, last: str, claimed: str) -> None:
    """Each answer has to call a tool: its last one says so by a command, and its words are the last."""
    look = Turn("Looking.", (ToolCall("bash", {"command": "cat notes.txt"}),))
    submit = Turn(last, (ToolCall("bash", {"command": _SUBMIT}),))
    bench = Bench(tmp_path / "out", script(look, submit), {"harness": "mini-swe-agent", "timeout": 120})
    bench.run()
    (line,) = bench.first
    assert (line.ended, line.passed, line.claimed) == ("complete", False, claimed), line.reason
