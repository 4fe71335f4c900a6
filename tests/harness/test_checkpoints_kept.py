"""Checkpoints where the endpoint keeps the history: what is seen of a call is its result alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.turns import ToolCall
from tests.harness.test_checkpoints import Scene
from tests.proxy.kept import WAYS, Harness, Way, printed, runs, says, user

every_way = pytest.mark.parametrize("way", WAYS)
PATCHED = "Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess. Updated the following files:\nM a.txt\n"


def patch(call_id: str) -> ToolCall:
    return ToolCall(
        "apply_patch", {}, call_id, "*** Begin Patch\n*** Update File: a.txt\n-one\n+two\n*** End Patch"
    )


@every_way
def test_each_is_seen_once_and_in_its_order(tmp_path: Path, way: Way) -> None:
    scene = Scene(tmp_path)
    harness = Harness(scene, way, run="r1")
    if way == "socket":
        # What only makes the endpoint ready has loaded nothing.
        harness.ask(None)
        assert scene.reached == []
    harness.ask(says(runs("python -B test_a.py", "c1")))
    assert scene.reached == [("context_loaded", 1)]
    harness.answers(("c1", printed("1 failed")))
    harness.ask(says(patch("c2")))
    assert scene.reached == [("context_loaded", 1), ("tests_run", 1), ("patch_drafted", 1)]
    scene.write("a.txt", "two\n")
    harness.answers(("c2", PATCHED))
    harness.ask(says(runs("python -B test_a.py", "c3")))
    harness.answers(("c3", printed("1 passed")))
    harness.ask(says())
    assert scene.reached == [
        (name, 1) for name in ("context_loaded", "tests_run", "patch_drafted", "patch_applied")
    ]
    assert scene.calls == [("c1", False, False), ("c2", True, False), ("c3", False, False)]
    assert [record["name"] for record in scene.logged("checkpoint")] == [name for name, _ in scene.reached]
    assert not scene.logged("error")


@every_way
@pytest.mark.parametrize("at", ["patch_drafted", "patch_applied"])
def test_nothing_goes_on_after_a_kill(tmp_path: Path, way: Way, at: str) -> None:
    scene = Scene(tmp_path, kills=(at,))
    harness = Harness(scene, way, run="r1")
    scene.watched.running.set_result(_Killable())
    harness.ask(says(patch("c1")))
    scene.write("a.txt", "two\n")
    harness.answers(("c1", PATCHED))
    body = harness.body()
    if harness.socket is not None:
        passed = harness.socket.asked(body)
        assert not passed.on
        assert b'"status":503' in passed.back[0]
    else:
        exchange = harness.post(body)
        assert exchange.refusal is not None
        assert exchange.refusal.status == 503
    assert scene.watched.killed_at == at
    assert ("patch_applied" in dict(scene.reached)) == (at == "patch_applied")


@pytest.mark.parametrize("way", ["kept", "socket"])
def test_a_resumed_harness_that_says_everything_again_goes_on_from_there(tmp_path: Path, way: Way) -> None:
    scene = Scene(tmp_path)
    harness = Harness(scene, way, run="r1")
    harness.ask(says(patch("c1")))
    scene.write("a.txt", "two\n")
    harness.answers(("c1", PATCHED))
    harness.ask(says())
    scene.next_attempt()
    harness.answer_id, harness.socket = None, None
    harness.items.append(user("go on"))
    harness.ask(says(patch("c2")))
    harness.answers(("c2", PATCHED))
    harness.ask(says())
    assert [name for name, attempt in scene.reached if attempt == 2] == ["context_loaded"]


class _Killable:
    """Stands for the program."""

    def kill(self) -> None:
        """Ends at once."""
