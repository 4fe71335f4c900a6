"""What an agent said in the end, heard on the wire: only what it comes down to is ever written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.turns import ToolCall, Turn
from proxy.exchange import Exchange
from tests.proxy.protocols.kits import KITS, Kit, answer
from tests.proxy.stage import Stage, force

_PATHS = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/m:generateContent",
}
every_wire = pytest.mark.parametrize("kit", KITS.values(), ids=KITS.keys())
either_way = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
# With a kind that keeps calls from running, answers go another way through the proxy.
either_profile = pytest.mark.parametrize("kind", ["empty", "locked"])


def play(scene: Stage, kit: Kit, turn: Turn, *, streamed: bool) -> Exchange:
    said = answer(turn)
    path = _PATHS[kit.wire.name]
    exchange = scene.post(kit.body([]), {"user-agent": "anything"}, path=path)
    kind = kit.endpoint.stream_type if streamed else "application/json"
    pieces = list(kit.endpoint.streamed(said)) if streamed else [kit.endpoint.whole(said)]
    scene.injector.on_response_head(exchange, 200, {"content-type": kind})
    for piece in pieces:
        scene.injector.on_response_chunk(exchange, piece)
    scene.injector.on_response_chunk(exchange, b"")
    scene.injector.on_response_end(exchange)
    return exchange


@every_wire
@either_way
@either_profile
@pytest.mark.parametrize(
    ("text", "claimed"),
    [
        ("The bug in the pager is fixed and all tests pass.", "done"),
        ("I was unable to edit the pager, so nothing is fixed.", "gave_up"),
        ("Here is what the pager does.", None),
        ("", None),
    ],
)
def test_what_is_said_in_the_end(
    tmp_path: Path, kit: Kit, streamed: bool, kind: str, text: str, claimed: str | None
) -> None:
    scene = Stage(tmp_path, force({"tool": "read", "nth": 1, "kind": kind}))
    exchange = play(scene, kit, Turn(text), streamed=streamed)
    assert exchange.heard == []
    assert scene.injector.runs.get("default").claimed == claimed
    scene.end()
    (end,) = scene.records("end")
    assert end.get("claimed") == claimed
    for file in tmp_path.iterdir():
        assert b"pager" not in file.read_bytes(), "the words themselves are kept nowhere"
    assert not scene.records("error")


@every_wire
@either_way
def test_words_beside_a_call_are_not_the_last(tmp_path: Path, kit: Kit, streamed: bool) -> None:
    scene = Stage(tmp_path, force({"tool": "read", "nth": 1, "kind": "empty"}))
    call = ToolCall("bash", {}, "c1", '{"command":"make"}')
    exchange = play(scene, kit, Turn("That is done, now the tests.", (call,)), streamed=streamed)
    assert exchange.heard == []
    assert scene.injector.runs.get("default").claimed is None


@every_wire
def test_an_answer_that_is_cut_claims_nothing(tmp_path: Path, kit: Kit) -> None:
    scene = Stage(tmp_path, force({"tool": "read", "nth": 1, "kind": "empty"}))
    play(scene, kit, Turn("All is fixed."), streamed=True)
    assert scene.injector.runs.get("default").claimed == "done"
    said = b"".join(kit.endpoint.streamed(answer(Turn("All is fixed."))))
    exchange = scene.post(kit.body([]), {"user-agent": "anything"}, path=_PATHS[kit.wire.name])
    scene.injector.on_response_head(exchange, 200, {"content-type": kit.endpoint.stream_type})
    scene.injector.on_response_chunk(exchange, said[: len(said) // 2])
    scene.injector.on_response_end(exchange)
    assert scene.injector.runs.get("default").claimed is None
