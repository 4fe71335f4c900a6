"""Each after-kind on a read and on a shell call of each harness, with the endpoint as witness."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

import pytest

from configs import dialect
from harness.turns import ToolCall
from scheduler.faults import KINDS
from tests.e2e.stage import SPEECHES, Played, Speech, Stage, call_turns, forced, result_of

_TEXT = "def rate():\n    return 41  # marker-7391\n\n\nenabled = True\nlimit = 250\n" + "".join(
    f"row {n} of the table\n" for n in range(30)
)
_EFFECT = "echo done >> effect.txt; cat table.txt"

_CELLS = [
    (harness, family, kind.name)
    for harness in SPEECHES
    for family in ("read", "shell")
    for kind in KINDS.values()
    if family in kind.families and kind.timing == "after" and kind.name not in {"slow", "stale"}
]


def _target(speech: Speech, family: str) -> ToolCall:
    return speech.reads("table.txt") if family == "read" else speech.runs(_EFFECT)


def _play(stage: Stage, family: str, kind: str) -> Played:
    stage.write({"table.txt": _TEXT, "other.txt": "nothing much\n"})
    speech = stage.speech
    return stage.play(
        call_turns(
            _target(speech, family),
            speech.runs("echo between"),
            speech.reads("other.txt"),
        ),
        forced({"tool": speech.tool(family), "nth": 1, "kind": kind}),
    )


@pytest.mark.parametrize(("harness", "family", "kind"), _CELLS)
def test_the_payload_reaches_the_model_and_stays(
    stage: Callable[[str], Stage], harness: str, family: str, kind: str
) -> None:
    played = _play(stage(harness), family, kind)
    assert played.outcome.exit_code == 0, played.outcome.stderr
    assert not played.of("error")

    decision = played.decisions_of(SPEECHES[harness].tool(family))[0]
    assert (decision["fired"], decision["kind"], decision["skipped"]) == (True, kind, None)
    assert decision["latency_us"] > 0

    later = played.turns[1:]
    assert len(later) == 3
    shown = [result_of(request, 0).text for request in later]
    assert len(set(shown)) == 1, "the payload differs from turn to turn"
    # The endpoint received what the log says that it was sent, and never what the tool printed.
    own, _ = dialect(harness).split_appended(shown[0])
    assert hashlib.sha256(own.encode()).hexdigest() == decision["payload_sha256"]
    assert decision["payload_sha256"] != decision["original_sha256"]
    for request in later:
        assert _as_json(_TEXT) not in request.body.decode()
        assert _as_json("".join(f"{n}\t{x}" for n, x in enumerate(_TEXT.splitlines(True), 1))) not in (
            request.body.decode()
        )
    for word in ("inject", "chaos", "fault"):
        assert word not in shown[0].lower()

    deliveries = [r for r in played.of("delivery") if r["call_id"] == decision["call_id"]]
    assert [r["first"] for r in deliveries] == [True, False, False]
    assert {r["payload_sha256"] for r in deliveries} == {decision["payload_sha256"]}
    assert all("latency_us" in record for record in played.of("decision"))
    if family == "shell":
        effect = played.workspace / "effect.txt"
        assert effect.read_text() == "done\n", "an after-fault lets the tool do its work, once"


def _as_json(text: str) -> str:
    return json.dumps(text.strip())[1:-1]


@pytest.mark.parametrize("harness", SPEECHES)
def test_what_the_harness_appended_stays_byte_for_byte(stage: Callable[[str], Stage], harness: str) -> None:
    """With and without the fault, the same session appends the same reminders."""
    scene = stage(harness)
    scene.write({"table.txt": _TEXT})
    turns = call_turns(scene.speech.reads("table.txt"), scene.speech.runs("echo between"))
    faulted = scene.play(turns, forced({"tool": scene.speech.read, "nth": 1, "kind": "empty"}), log="a")
    clean = scene.play(turns, "off", log="b")
    shown, true = (result_of(played.turns[1], 0).text for played in (faulted, clean))
    appended = true[true.find("\n\n<system-reminder>") :] if "\n\n<system-reminder>" in true else ""
    if harness == "claude-code":
        assert "total_tokens" in appended
    assert len(appended.split()) == len(
        shown[shown.rfind("\n\n<system-reminder>") :].split() if appended else []
    )
    assert shown.endswith("</system-reminder>") == true.endswith("</system-reminder>")
    if harness == "claude-code":
        assert shown.startswith(
            "<system-reminder>Warning: the file exists but the contents are empty.</system-reminder>"
        )


@pytest.mark.parametrize("harness", SPEECHES)
def test_stale_shows_the_earlier_result(stage: Callable[[str], Stage], harness: str) -> None:
    scene = stage(harness)
    scene.write({"table.txt": "first content\n"})
    speech = scene.speech
    played = scene.play(
        call_turns(
            speech.reads("table.txt"),
            speech.runs("sleep 0.05; echo second content > table.txt"),
            speech.reads("table.txt"),
            speech.runs("echo between"),
        ),
        forced({"tool": speech.read, "nth": 2, "kind": "stale"}),
    )
    assert "first content" in result_of(played.turns[-1], 2).text
    for request in played.turns:
        assert b"second content" not in request.body.replace(b"echo second content", b"")
    assert played.decisions_of(speech.read)[1]["skipped"] is None


@pytest.mark.parametrize("harness", SPEECHES)
def test_slow_changes_no_byte_of_the_result(stage: Callable[[str], Stage], harness: str) -> None:
    scene = stage(harness)
    scene.write({"table.txt": _TEXT})
    played = scene.play(
        call_turns(scene.speech.reads("table.txt"), scene.speech.runs("echo between")),
        forced({"tool": scene.speech.read, "nth": 1, "kind": "slow"}, kinds={"slow": {"seconds": 0.2}}),
    )
    decision = played.decisions_of(scene.speech.read)[0]
    assert (decision["kind"], decision["payload_sha256"], decision["skipped"]) == ("slow", None, None)
    assert "marker-7391" in result_of(played.turns[1], 0).text
    assert not played.of("delivery")
    assert all(r["bytes_in"] == r["bytes_out"] for r in played.of("request"))
