"""The injector over every wire: what moves the schedule, what does not, and what a protocol cannot carry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from harness.turns import ToolCall, Turn
from proxy.exchange import Exchange
from tests.proxy.build import dumps
from tests.proxy.protocols.kits import KITS, Call, Kit, Round, answer
from tests.proxy.stage import PI, Stage, force, only, profile

every_wire = pytest.mark.parametrize("kit", KITS.values(), ids=KITS.keys())
PATHS = {
    "anthropic": ("/v1/messages", "/v1/messages/count_tokens"),
    "openai-chat": ("/v1/chat/completions", None),
    "openai-responses": ("/v1/responses", "/v1/responses/input_tokens"),
    "gemini": ("/v1beta/models/m:streamGenerateContent?alt=sse", "/v1beta/models/m:countTokens"),
}
OTHER = {"user-agent": "something of its own"}


def asks(call_id: str, tool: str = "read", **arguments: Any) -> Call:
    return Call(call_id, tool, json.dumps(arguments))


def turn_of(*calls: Call, results: Sequence[str], order: Sequence[int] | None = None) -> Round:
    """One answer and its results, which stand in ``order``."""
    order = tuple(order or range(len(calls)))
    return Round("Next.", calls, tuple(results[number] for number in order), order, "")


@dataclass
class Speaker:
    """A harness without a header of its own, in one wire format."""

    scene: Stage
    kit: Kit
    headers: dict[str, str] = field(default_factory=lambda: dict(OTHER))
    sent: list[bytes] = field(default_factory=list)

    def post(self, body: bytes, *, count: bool = False) -> Exchange:
        path = PATHS[self.kit.wire.name][count]
        assert path is not None
        exchange = self.scene.post(body, self.headers, path=path)
        assert exchange.refusal is None
        self.sent.append(exchange.body)
        return exchange

    def answered(self, exchange: Exchange, *calls: Call, lost: bool = False) -> None:
        turn = Turn("Next.", tuple(ToolCall(c.tool, {}, c.call_id, c.arguments) for c in calls))
        said = replace(answer(turn), message_id=f"msg_{len(self.sent)}")
        injector = self.scene.injector
        if not lost:
            injector.on_response_head(exchange, 200, {"content-type": self.kit.endpoint.stream_type})
            for piece in self.kit.endpoint.streamed(said):
                injector.on_response_chunk(exchange, piece)
        injector.on_response_end(exchange)

    def play(self, rounds: Sequence[Round]) -> list[bytes]:
        """A whole session, the model asking what the rounds say; what the endpoint received."""
        for number in range(len(rounds) + 1):
            exchange = self.post(self.kit.body(rounds[:number]))
            self.answered(exchange, *(rounds[number].calls if number < len(rounds) else ()))
        return self.sent

    def shown(self, body: bytes) -> list[tuple[str, str]]:
        """(call id, text) of every result that a request has."""
        request = self.kit.wire.parse_request(body, None)
        found = []
        for item in request.items:
            for result in item.results:
                parts = self.kit.wire.result_parts(request, result)
                found.append((result.call_id, "".join(part.text or "" for part in parts)))
        return found


def decided(scene: Stage) -> list[tuple[Any, ...]]:
    return [
        (d["call_id"], d["occurrence"], d["ordinal"], d["u"], d["kind"], d["skipped"], d["payload_sha256"])
        for d in scene.decisions()
    ]


BATCH = [asks("c1", path="a"), asks("c2", path="a"), asks("c3", "bash", command="x"), asks("c4", path="a")]
RESULTS = ["text one", "text two", "1 2 3", "text three"]


@every_wire
def test_decisions_follow_the_model_whatever_order_results_come_in(tmp_path: Path, kit: Kit) -> None:
    """A stale result shows the one that stands before it, also when that one comes behind it."""
    rule = force(
        {"tool": "read", "nth": 2, "kind": "stale"},
        {"tool": "read", "nth": 3, "kind": "wrong_data"},
        {"tool": "bash", "nth": 1, "kind": "wrong_data"},
    )
    found = []
    for number, order in enumerate(permutations(range(4))):
        speaker = Speaker(Stage(tmp_path / str(number), rule), kit)
        last = speaker.play([turn_of(*BATCH, results=RESULTS, order=order)])[-1]
        found.append((decided(speaker.scene), sorted(speaker.shown(last))))
        assert dict(speaker.shown(last))["c2"] == "text one"
        assert [call_id for call_id, _ in speaker.shown(last)] == [f"c{n + 1}" for n in order]
    assert all(one == found[0] for one in found)
    assert [d[0] for d in found[0][0]] == ["c1", "c2", "c3", "c4"]


@every_wire
def test_calls_that_were_never_relayed_are_counted_as_they_were_made(tmp_path: Path, kit: Kit) -> None:
    """Where every call is an item of its own, too."""
    scene = Stage(tmp_path, only("wrong_data", "read", "shell"))
    rounds = [turn_of(*BATCH, results=RESULTS, order=(3, 1, 0, 2))]
    speaker = Speaker(scene, kit)
    speaker.answered(speaker.post(kit.body(rounds)))
    assert [(d["call_id"], d["occurrence"], d["ordinal"]) for d in scene.decisions()] == [
        ("c1", 0, 0),
        ("c2", 1, 1),
        ("c3", 0, 0),
        ("c4", 2, 2),
    ]


SESSION = [
    turn_of(asks("c1", path="a"), results=["one\n1\n2"]),
    turn_of(asks("c2", path="b"), asks("c3", path="a"), results=["two\n3\n4", "three\n5\n6"]),
    turn_of(asks("c4", "bash", command="x"), results=["four\n7\n8"]),
    turn_of(asks("c5", path="a"), results=["five\n9\n10"]),
]


@every_wire
@pytest.mark.parametrize("identity", ["content", "ordinal"])
def test_side_requests_do_not_move_the_schedule(tmp_path: Path, kit: Kit, identity: str) -> None:
    """Retries, lost answers, token counts, titles, and summaries asked for on the way."""
    weights = {"read": {"wrong_data": 1, "empty": 1}, "shell": {"wrong_data": 1}}
    chosen = profile(rate=0.6, weights=weights, identity=identity)
    plain = Speaker(Stage(tmp_path / "plain", chosen), kit)
    last = plain.play(SESSION)[-1]
    noisy = Speaker(Stage(tmp_path / "noisy", chosen), kit)
    for number in range(len(SESSION) + 1):
        rounds = SESSION[:number]
        calls = SESSION[number].calls if number < len(SESSION) else ()
        body = kit.body(rounds)
        if PATHS[kit.wire.name][1] is not None:
            noisy.answered(noisy.post(body, count=True), lost=True)
        noisy.answered(noisy.post(_without_tools(kit, "A title for this")))
        if number == 2:
            # It sums up, with the newest result that the model has not seen yet.
            summary = noisy.post(_without_tools(kit, "Sum up", rounds))
            noisy.answered(summary)
        noisy.answered(noisy.post(body), *calls, lost=True)
        noisy.answered(noisy.post(body), *calls)
        noisy.answered(noisy.post(body), *calls)
    assert decided(noisy.scene) == decided(plain.scene)
    assert noisy.shown(noisy.sent[-1]) == plain.shown(last)
    assert any(d["kind"] for d in plain.scene.decisions())
    assert not noisy.scene.records("error")


def _without_tools(kit: Kit, text: str, rounds: Sequence[Round] = ()) -> bytes:
    said = Round("", (), (), (), text)
    history = kit.history([*rounds, said], True)
    if not rounds:
        history = [item for item in history if item.get("role") == "user"][-1:]
    return dumps({"model": "m", kit.array: history})


@every_wire
def test_a_result_that_is_first_seen_in_a_summary_is_decided_there(tmp_path: Path, kit: Kit) -> None:
    scene = Stage(tmp_path, only("post_effect_error"))
    speaker = Speaker(scene, kit)
    speaker.answered(speaker.post(kit.body([])), *SESSION[0].calls)
    speaker.answered(speaker.post(_without_tools(kit, "Sum up", SESSION[:1])))
    speaker.answered(speaker.post(kit.body(SESSION[:1])))
    first, second = (speaker.shown(body) for body in speaker.sent[1:])
    assert first == second
    assert "one" not in first[0][1]
    (decision,) = scene.decisions()
    assert (decision["kind"], decision["skipped"]) == ("post_effect_error", None)


@every_wire
@pytest.mark.parametrize("known", [True, False])
def test_a_result_without_its_call_is_no_clean_run(tmp_path: Path, kit: Kit, known: bool) -> None:
    """What the model asked for is known when the answer was seen; else nothing can be said of it."""
    scene = Stage(tmp_path, only("wrong_data"))
    speaker = Speaker(scene, kit)
    if known:
        speaker.answered(speaker.post(kit.body([])), *SESSION[0].calls)
    history = kit.history(SESSION[:1], True)
    left = [item for item in history if not _asks(item)]
    speaker.answered(speaker.post(kit.around(dumps(left))))
    errors = [e["reason"] for e in scene.records("error")]
    if known:
        assert not errors
        assert [d["kind"] for d in scene.decisions()] == ["wrong_data"]
    else:
        assert len(errors) == 1
        assert "neither in the request nor in any answer" in errors[0]
        assert "c1" in errors[0]


def _asks(item: dict[str, Any]) -> bool:
    spelled = json.dumps(item)
    return any(
        word in spelled for word in ('"tool_use"', '"tool_calls"', '"function_call"', '"functionCall"')
    )


@every_wire
def test_results_that_a_harness_tells_as_plain_text_are_skipped(tmp_path: Path, kit: Kit) -> None:
    """As smolagents does: calls and results become words, so that nothing can be put in a result's place."""
    scene = Stage(tmp_path, only("wrong_data"))
    speaker = Speaker(scene, kit)
    speaker.answered(speaker.post(kit.body([])), *SESSION[0].calls)
    told = Round("Calling tools: [read]", (), (), (), "Call id: c1\nObservation:\none\n1\n2")
    body = kit.body([told])
    exchange = speaker.post(body)
    assert exchange.body is body
    speaker.answered(exchange)
    (decision,) = scene.decisions()
    assert (decision["call_id"], decision["kind"], decision["skipped"]) == ("c1", "wrong_data", "orphaned")


PI_COMPACTED = (
    "The conversation history before this point was compacted into the following summary:"
    "\n\n<summary>\nS\n</summary>"
)


@every_wire
def test_a_summary_behind_what_a_harness_always_says_first(tmp_path: Path, kit: Kit) -> None:
    """On Chat a system message stands before everything, on Responses the developer's."""
    scene = Stage(tmp_path, only("wrong_data"))
    speaker = Speaker(scene, kit, dict(PI))
    speaker.play(SESSION[:2])
    history = kit.history([], True)
    first = history[-1]
    spelled = json.dumps(first).replace('"go"', json.dumps(PI_COMPACTED))
    always = list(history[:-1])
    if kit.wire.name == "openai-responses":
        always = [{"role": "developer", "content": "You help."}]
    after = [*always, json.loads(spelled)]
    speaker.answered(speaker.post(kit.around(dumps(after))), asks("c9", path="a"))
    rest = kit.history([turn_of(asks("c9", path="a"), results=["nine\n1\n2"])], True)[len(history) :]
    speaker.answered(speaker.post(kit.around(dumps([*after, *rest]))))
    last = scene.decisions()[-1]
    assert (last["conversation"], last["call_id"], last["occurrence"], last["ordinal"]) == ("c0", "c9", 2, 3)
