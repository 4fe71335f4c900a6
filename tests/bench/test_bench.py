"""The bench works from end to end. What it measures is not looked at: it is a number of one moment."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.client import BenchError, Client
from bench.conversation import Conversation, Harness
from bench.effort import KB, Effort
from bench.endpoint import answer_events
from bench.figures import Figure, quantile, spread
from bench.processes import ROOT, endpoint, running
from bench.run import MEASURES, keep, run, show
from bench.supply import send
from proxy.protocols.anthropic_responses import StreamReader
from proxy.protocols.wire import CallDone

TINY = Effort(
    sizes=(10 * KB, 110 * KB),
    blocks=2,
    rounds=3,
    share_sizes=(100 * KB,),
    turns=6,
    sessions=1,
    session_turns=24,
    streams=2,
    stream_rounds=1,
    stream_events=5,
    post_bytes=110 * KB,
    requests=60,
    starts=1,
)


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_gives_finite_figures(name: str, tmp_path: Path) -> None:
    said: list[str] = []
    figures = list(run(TINY, [name], said.append))
    assert figures
    assert said
    for figure in figures:
        assert figure.measure == name
        assert all(math.isfinite(number) for number in figure.value)
        assert figure.value.low <= figure.value.median <= figure.value.high
    show(figures, {"cores": "2"})
    keep(figures, {"cores": "2"}, tmp_path / "figures.json")
    kept = orjson.loads((tmp_path / "figures.json").read_bytes())
    assert len(kept["figures"]) == len(figures)


def test_an_unknown_measure_is_refused_with_those_that_there_are() -> None:
    command = [sys.executable, "-m", "bench", "--only", "speed"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "startup" in done.stderr


def test_a_program_that_does_not_start_is_named_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such luck')"]
    with pytest.raises(BenchError, match="no such luck"), running(command, tmp_path):
        pass


@pytest.mark.parametrize("harness", ["claude-code", "pi"])
def test_a_conversation_sends_all_of_itself_again_and_answers_every_call(harness: Harness) -> None:
    conversation = Conversation(harness, seed=1)
    turns = [conversation.next(calls, result_bytes=600) for calls in (1, 4, 0, 1, 1)]
    histories = [_plain(orjson.loads(turn.body)["messages"]) for turn in turns]
    for shorter, longer in pairwise(histories):
        assert longer[: len(shorter)] == shorter
        assert len(longer) == len(shorter) + 2
    blocks = [block for message in histories[-1] for block in message["content"]]
    asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
    answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    assert asked == answered
    assert asked == [call.call_id for turn in turns[:-1] for call in turn.answer]


def test_the_same_seed_gives_the_same_bodies() -> None:
    one, two, other = (Conversation("pi", seed=seed).next().body for seed in (1, 1, 2))
    assert one == two
    assert one != other


def _plain(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for message in messages:
        for block in message["content"]:
            block.pop("cache_control", None)
    return messages


def test_an_answer_asks_for_its_calls() -> None:
    calls = Conversation("claude-code", seed=3).next(calls=3).answer
    frames = StreamReader().feed(answer_events(calls))
    done = [event for frame in frames for event in frame.events if isinstance(event, CallDone)]
    assert [(call.call_id, call.tool, orjson.loads(call.arguments)) for call in done] == list(calls)


@pytest.mark.parametrize("harness", ["claude-code", "pi"])
def test_a_tool_whose_name_was_changed_on_the_way_is_not_there(harness: Harness) -> None:
    conversation = Conversation(harness, seed=4)
    (call,) = conversation.next().answer
    conversation.heard(answer_events([call._replace(tool=f"{call.tool}__locked")]))
    said, told = orjson.loads(conversation.next().body)["messages"][1:]
    assert said["content"][-1]["name"] == f"{call.tool}__locked"
    assert said["content"][-1]["input"] == call.arguments
    assert told["content"][0]["is_error"]
    assert f"{call.tool}__locked" in told["content"][0]["content"]


def test_the_endpoint_answers_one_request_after_the_other(tmp_path: Path) -> None:
    with endpoint(tmp_path) as model, Client(model.port) as client:
        conversation = Conversation("pi", seed=1)
        for size in (100, 70_000, 300):
            assert send(client, conversation.next(result_bytes=size)).ns > 0
            assert client.post((), b"{}").status == 200


def test_quartiles_and_quantiles_are_of_what_was_measured() -> None:
    assert spread([3.0]) == (3.0, 3.0, 3.0, 1)
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == (3.0, 2.0, 4.0, 5)
    assert quantile(list(range(100)), 0.99) == 99
    assert quantile([7], 0.99) == 7


@pytest.mark.parametrize(("median", "met"), [(0.3, True), (0.35, True), (0.36, False)])
def test_a_target_is_met_up_to_its_own_value(median: float, met: bool) -> None:
    assert Figure("share", "1 MB", "x", spread([median]), 0.35, "").met is met
    assert Figure("share", "1 MB", "x", spread([median]), None, "").met is None
