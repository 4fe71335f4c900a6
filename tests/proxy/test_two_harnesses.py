"""Whose gaps a run is drawn by: one harness's, the tested version's, or what several leave out together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from configs import gaps_in_common, load_profile, read_capability
from proxy.options import InjectorOptions
from scoring.verify import verify_log
from tests.proxy.build import body, user
from tests.proxy.stage import CLAUDE, Stage, force, only, read

_OTHER = {"user-agent": "curl/8"}


def starts(scene: Stage) -> list[tuple[str | None, str | None, Any]]:
    return [
        (start["harness"], start["harness_version"], start.get("untested", False))
        for start in scene.records("start")
    ]


def test_a_run_is_one_harnesss_and_another_ones_request_never_looks_clean(tmp_path: Path) -> None:
    weights = {"read": {"empty": 1}, "other": {"not_found": 1}}
    scene = Stage(tmp_path, only("empty", weights=weights))
    claude = scene.claude()
    claude.turn(*read("t1"), "1\tline one")
    claude.ask()
    pi = scene.pi()
    pi.turn(*read("p1", tool="read"), "line one")
    sent = pi.ask()
    assert sent.left == sent.came
    assert "line one" in json.dumps(sent.messages)
    errors = scene.records("error")
    assert len(errors) == 2
    assert "claude-code's" in errors[0]["reason"]
    assert "a run of its own" in errors[0]["reason"]
    assert scene.injector.runs.get("default").invalid
    # What was the first one's goes on.
    claude.messages.append(user("on"))
    assert "line one" not in json.dumps(claude.ask().messages)
    assert verify_log(tmp_path / "decisions.jsonl").ok


def test_two_harnesses_with_the_same_gaps_can_share_a_run(tmp_path: Path) -> None:
    scene = Stage(tmp_path, only("empty"))
    for agent, tool in ((scene.claude(), "Read"), (scene.pi(), "read")):
        agent.turn(*read(tool, tool=tool), "line one")
        assert "line one" not in json.dumps(agent.ask().messages)
    assert not scene.records("error")
    assert verify_log(tmp_path / "decisions.jsonl").ok


def test_in_runs_of_their_own_each_has_its_own_gaps(tmp_path: Path) -> None:
    scene = Stage(tmp_path, load_profile("severe"))
    for run, headers in (("a", CLAUDE), ("b", {"user-agent": "pi (linux)"})):
        exchange = scene.post(body([user("go")]), headers, run=run)
        scene.answer(exchange, None)
    one, other = (start["profile"]["gaps"] for start in scene.records("start"))
    assert one != other
    assert not scene.records("error")


def test_a_run_that_nobody_known_began_is_begun_again_by_its_harness(tmp_path: Path) -> None:
    """A title, say, that is asked for in another way than the agent's turns are."""
    scene = Stage(tmp_path, load_profile("severe"))
    title = json.dumps({"model": "m", "messages": [user("a title")]}).encode()
    scene.answer(scene.post(title, _OTHER), None)
    claude = scene.claude()
    claude.turn(*read("t1"), "1\tline one")
    claude.ask()
    assert starts(scene) == [(None, None, True), ("claude-code", "2.1.289", False)]
    assert not scene.records("error")
    assert verify_log(tmp_path / "decisions.jsonl").ok
    scene.restart()
    claude.messages.append(user("on"))
    claude.ask()
    assert len(scene.records("start")) == 3
    assert not scene.records("error")


def test_only_tested_versions_where_that_is_asked_for(tmp_path: Path) -> None:
    scene = Stage(tmp_path, load_profile("severe"), options=InjectorOptions(tested_only=True))
    newer = CLAUDE | {"user-agent": "claude-cli/9.9.9 (external, sdk-cli)"}
    for _ in range(2):
        exchange = scene.post(body([user("go")]), newer)
        assert exchange.refusal is not None
        assert exchange.refusal.status == 400
        assert "9.9.9 has no capability file" in json.loads(exchange.refusal.body)["error"]["message"]
        scene.injector.on_response_end(exchange)
    assert len(scene.told) == 1
    assert scene.records() == []
    assert scene.post(body([user("go")]), CLAUDE, run="tested").refusal is None
    unnamed = scene.post(body([user("go")]), {"user-agent": "pi (linux)"}, run="unnamed")
    assert unnamed.refusal is not None
    assert b"does not say which version" in unnamed.refusal.body


def test_what_one_of_two_harnesses_cannot_do_is_drawn_for_neither(tmp_path: Path) -> None:
    codex = read_capability("codex@0.171.0")
    (missing,) = gaps_in_common([codex])
    kind = gaps_in_common([codex])[missing][0]
    shared = gaps_in_common([codex, read_capability("claude-code@2.1.289")])
    assert {*gaps_in_common([codex])[missing]} <= {*shared[missing]}
    rule = {"tool": "Unheard", "match": ".", "kind": kind}
    drawn: list[Any] = []
    for name, gaps in (("without", {}), ("with", shared)):
        folder = tmp_path / name
        folder.mkdir()
        scene = Stage(folder, force(rule), options=InjectorOptions(shared_gaps=gaps))
        claude = scene.claude()
        claude.turn("t1", "Unheard", {"x": 1}, "done")
        claude.ask()
        drawn.append(scene.records("start")[0]["profile"]["gaps"])
        assert verify_log(folder / "decisions.jsonl").ok
    assert f"@{missing}" not in drawn[0]
    assert kind in drawn[1][f"@{missing}"]
