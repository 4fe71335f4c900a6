"""Token budgets, quota errors of both sides, observers, and runs that a restart knows again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from configs import load_profile
from ledger.memory import CallRow
from ledger.records import Checkpoint
from proxy.conversation import Conversation
from proxy.exchange import Exchange, Head
from proxy.injector import Injector
from proxy.observer import AgentRequest, Unobserved
from proxy.quota import is_quota_error, quota_refusal
from proxy.runs import Run, RunSettings
from proxy.service import ServiceError, ServiceSettings, open_service
from proxy.upstream import parse_upstreams
from scheduler.dialect import Dialect
from tests.proxy.build import Answer, assistant, body, call, result, streamed, user

EVENTS = {"content-type": "text/event-stream"}
PI = {"user-agent": "pi (linux; x64)", "x-api-key": "sk-1"}


def opened(folder: Path, observer: Any = None, seed: int = 0) -> Injector:
    settings = ServiceSettings(seed, load_profile("off"), parse_upstreams([]), folder / "decisions.jsonl")
    return open_service(settings, lambda _line: None, observer)


def settings(**more: Any) -> RunSettings:
    return RunSettings(**{"run_id": "r1", "task_id": "t1", "seed": 3, "profile": load_profile("off")} | more)


def post(injector: Injector, messages: Sequence[Any], path: str = "/v1/messages", **more: Any) -> Exchange:
    return injector.on_request("r1", Head("POST", path, PI), body(messages, **more))


def answered(injector: Injector, exchange: Exchange, answer: Answer | None = None) -> Exchange:
    assert exchange.refusal is None
    injector.on_response_head(exchange, 200, EVENTS)
    injector.on_response_chunk(exchange, streamed(answer or Answer("Well.")))
    injector.on_response_end(exchange)
    return exchange


def refused(injector: Injector, exchange: Exchange) -> dict[str, Any]:
    assert exchange.refusal is not None
    injector.on_response_head(exchange, exchange.refusal.status, {})
    injector.on_response_end(exchange)
    said: dict[str, Any] = json.loads(exchange.refusal.body)
    return said


def records(folder: Path, event: str) -> list[dict[str, Any]]:
    lines = (folder / "decisions.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["event"] == event]


def test_past_the_budget_nothing_goes_upstream(tmp_path: Path) -> None:
    injector = opened(tmp_path)
    run = injector.register(settings(token_budget=100))
    # Uncached input, cache read, cache write and output, each once.
    answered(injector, post(injector, [user("a")]), Answer("x", usage=(10, 20, 30, 4)))
    assert run.tokens == 64
    # Counting tokens uses none, and is let through.
    counted = post(injector, [user("a")], path="/v1/messages/count_tokens")
    assert counted.refusal is None
    injector.on_response_head(counted, 200, EVENTS)
    injector.on_response_end(counted)
    answered(injector, post(injector, [user("b")], tools=None), Answer("y", usage=(30, 0, 0, 6)))
    assert (run.tokens, run.quota) == (100, None), "requests without tools count, too"
    exchange = post(injector, [user("c")])
    assert refused(injector, exchange)["error"]["type"] == "billing_error"
    assert exchange.refusal is not None
    assert (exchange.refusal.status, exchange.refusal.headers["x-should-retry"]) == (402, "false")
    assert run.quota == "ours"
    assert not run.complete
    refused(injector, post(injector, [user("c")]))
    (quota,) = records(tmp_path, "quota")
    assert (quota["budget"], quota["used"]) == (100, 100)
    assert not run.invalid


def test_what_is_decided_before_the_quota_error_is_replayed_later(tmp_path: Path) -> None:
    """The request that is refused brings a fresh result: it is decided, kept, and sent on the resume."""
    profile = load_profile("only-post_effect_error")
    injector = opened(tmp_path)
    injector.register(settings(token_budget=10, profile=profile))
    first = post(injector, [user("a")])
    answered(injector, first, Answer("", [("c1", "read", '{"path":"x"}')]))
    history = [user("a"), assistant(call("c1", "read", path="x")), user(result("c1", "line", is_error=False))]
    refused(injector, post(injector, history))
    injector.close()
    again = opened(tmp_path)
    again.register(settings(token_budget=None, profile=profile, attempt=2))
    sent = answered(again, post(again, history))
    assert b"EIO" in sent.body or b"EAGAIN" in sent.body or b"ENOMEM" in sent.body
    (decision,) = records(tmp_path, "decision")
    (delivery,) = records(tmp_path, "delivery")
    assert delivery["payload_sha256"] == decision["payload_sha256"]


def test_missing_usage_under_a_budget_is_an_error(tmp_path: Path) -> None:
    injector = opened(tmp_path)
    run = injector.register(settings(token_budget=100))
    exchange = post(injector, [user("a")])
    injector.on_response_head(exchange, 200, {"content-type": "application/json"})
    said = {"type": "message", "content": [{"type": "text", "text": "x"}], "stop_reason": "end_turn"}
    injector.on_response_chunk(exchange, json.dumps(said).encode())
    injector.on_response_end(exchange)
    (error,) = records(tmp_path, "error")
    assert error["where"] == "usage"
    assert run.invalid


def test_missing_usage_without_a_budget_is_none(tmp_path: Path) -> None:
    injector = opened(tmp_path)
    injector.register(settings())
    exchange = post(injector, [user("a")])
    injector.on_response_head(exchange, 200, {"content-type": "application/json"})
    injector.on_response_chunk(exchange, b'{"type":"message","content":[],"stop_reason":"end_turn"}')
    injector.on_response_end(exchange)
    assert not records(tmp_path, "error")


@pytest.mark.parametrize(
    ("protocol", "harness", "status", "place", "said"),
    [
        ("anthropic", "claude-code", 402, ("error", "type"), "billing_error"),
        ("openai-chat", None, 429, ("error", "code"), "insufficient_quota"),
        ("openai-responses", "codex", 429, ("error", "code"), "insufficient_quota"),
        ("openai-chat", "pi", 402, ("error", "code"), "insufficient_quota"),
        ("openai-chat", "qwen-code", 402, ("error", "code"), "insufficient_quota"),
        ("openai-chat", "mini-swe-agent", 401, ("error", "code"), "insufficient_quota"),
        ("gemini", "gemini-cli", 429, ("error", "status"), "RESOURCE_EXHAUSTED"),
    ],
)
def test_quota_errors_are_the_providers_own(
    protocol: str, harness: str | None, status: int, place: tuple[str, str], said: str
) -> None:
    refusal = quota_refusal(protocol, harness, budget=10, used=12)
    assert refusal.status == status
    assert refusal.headers["x-should-retry"] == "false"
    assert "retry-after" not in refusal.headers
    error = json.loads(refusal.body)
    assert error[place[0]][place[1]] == said
    assert "12 of 10 tokens" in error["error"]["message"]
    if status != 401:
        assert is_quota_error(refusal.status, refusal.headers, refusal.body)


def test_a_quota_per_day_is_what_gemini_cli_does_not_wait_for() -> None:
    error = json.loads(quota_refusal("gemini", None, budget=1, used=1).body)["error"]
    (violation,) = error["details"][0]["violations"]
    assert "PerDay" in violation["quotaId"]


@pytest.mark.parametrize(
    ("status", "headers", "text", "is_quota"),
    [
        (402, {}, "", True),
        (429, {}, '{"error":{"type":"rate_limit_error","message":"Too many requests"}}', False),
        (429, {}, '{"error":{"type":"insufficient_quota"}}', True),
        (429, {"anthropic-ratelimit-unified-status": "rejected"}, "", True),
        (429, {}, '{"error":{"message":"You exceeded your current quota"}}', True),
        (429, {}, '{"error":{"details":[{"quotaId":"GenerateRequestsPerMinutePerProject"}]}}', False),
        (400, {}, '{"error":{"message":"You have reached your specified API usage limits."}}', True),
        (400, {}, '{"error":{"message":"messages: roles must alternate"}}', False),
        (403, {}, '{"error":{"message":"your billing is not active"}}', True),
        (401, {}, "billing", False),
        (500, {}, "quota exceeded", False),
        (529, {}, "overloaded", False),
        (None, {}, "", False),
        (200, {}, "billing", False),
    ],
)
def test_quota_errors_of_providers(
    status: int | None, headers: dict[str, str], text: str, is_quota: bool
) -> None:
    assert is_quota_error(status, headers, text.encode()) is is_quota


def test_only_the_last_answer_says_whose_quota_is_out(tmp_path: Path) -> None:
    injector = opened(tmp_path)
    run = injector.register(settings())

    def failing(status: int, text: bytes) -> None:
        exchange = post(injector, [user("a")])
        injector.on_response_head(exchange, status, {"content-type": "application/json"})
        for at in range(0, len(text), 5):
            assert injector.on_response_chunk(exchange, text[at : at + 5]) == text[at : at + 5]
        injector.on_response_end(exchange)

    failing(429, b'{"error":{"type":"insufficient_quota"}}')
    assert (run.quota, run.complete) == ("theirs", False)
    answered(injector, post(injector, [user("a")]))
    assert (run.quota, run.complete) == (None, True)
    failing(429, b'{"error":{"type":"rate_limit_error"}}')
    assert (run.quota, run.complete) == (None, False)


class Watching(Unobserved):
    """Notes what it is told, and stops the run where it is asked to."""

    def __init__(self, stop_at: str | None = None) -> None:
        self.stop_at = stop_at
        self.results: list[tuple[str, str | None, bool | None]] = []
        self.calls: list[str] = []
        self.models: list[str | None] = []

    def _record(self, run: Run, name: str) -> list[Checkpoint]:
        run.stopped = run.stopped or name == self.stop_at
        return [Checkpoint(ts="2026-01-01T00:00:00Z", run_id=run.run_id, name=name, digest="d")]

    def on_agent_request(self, run: Run, turn: AgentRequest) -> Sequence[Checkpoint]:
        self.results += [(one.row.tool, one.text, one.is_error) for one in turn.answered]
        return self._record(run, "request")

    def on_calls(
        self, run: Run, conversation: Conversation, dialect: Dialect, calls: Sequence[CallRow]
    ) -> Sequence[Checkpoint]:
        self.calls += [row.tool for row in calls]
        return self._record(run, "calls")

    def on_answer(self, exchange: Exchange) -> str | None:
        self.models.append(exchange.model)
        return "the wrong model" if exchange.model == "bad" else None


def test_an_observer_sees_true_results_once_and_calls_before_the_harness_does(tmp_path: Path) -> None:
    watching = Watching()
    injector = opened(tmp_path, watching)
    injector.register(settings(profile=load_profile("only-empty")))
    answered(injector, post(injector, [user("a")]), Answer("", [("c1", "read", '{"path":"x"}')]))
    assert watching.calls == ["read"]
    history = [user("a"), assistant(call("c1", "read", path="x")), user(result("c1", "line", is_error=False))]
    sent = answered(injector, post(injector, history))
    assert b'"line"' not in sent.body
    assert watching.results == [("read", "line", False)]
    answered(injector, post(injector, history))
    assert len(watching.results) == 1
    assert watching.models == ["m", "m", "m"]
    assert [record["name"] for record in records(tmp_path, "checkpoint")] == [
        *("request", "calls", "request", "request"),
    ]


@pytest.mark.parametrize("stop_at", ["request", "calls"])
def test_a_stopped_run_lets_nothing_through(tmp_path: Path, stop_at: str) -> None:
    injector = opened(tmp_path, Watching(stop_at))
    run = injector.register(settings(token_budget=1000))
    first = post(injector, [user("a")])
    if stop_at == "calls":
        answered(injector, first, Answer("", [("c1", "read", "{}")]))
        first = post(injector, [user("a")])
    assert first.refusal is not None
    assert first.refusal.status == 503
    assert refused(injector, first)["type"] == "error"
    # An answer that the kill cut off says nothing of tokens, and that is no error of the run.
    assert not run.invalid
    assert not run.complete
    assert not records(tmp_path, "quota")


def test_what_is_wrong_with_an_answer_makes_the_run_invalid(tmp_path: Path) -> None:
    injector = opened(tmp_path, Watching())
    run = injector.register(settings())
    exchange = post(injector, [user("a")])
    injector.on_response_head(exchange, 200, {"content-type": "application/json"})
    injector.on_response_chunk(
        exchange, b'{"type":"message","model":"bad","content":[],"stop_reason":"end_turn"}'
    )
    injector.on_response_end(exchange)
    assert [error["reason"] for error in records(tmp_path, "error")] == ["the wrong model"]
    assert run.invalid


def test_a_run_can_begin_before_its_first_request(tmp_path: Path) -> None:
    injector = opened(tmp_path)
    run = injector.register(settings(harness="pi", harness_version="1.0.3", attempt=2, repeat=4))
    injector.begin(run)
    answered(injector, post(injector, [user("a")]))
    (start,) = records(tmp_path, "start")
    assert (start["harness"], start["harness_version"], start["attempt"], start["repeat"]) == (
        "pi",
        "1.0.3",
        2,
        4,
    )
    injector.end(run, "restart_cut", False)
    (end,) = records(tmp_path, "end")
    assert (end["ended"], end["passed"]) == ("restart_cut", False)


def test_a_restart_knows_registered_runs_and_what_they_used(tmp_path: Path) -> None:
    injector = opened(tmp_path)
    injector.register(settings(token_budget=100, profile=load_profile("moderate")))
    answered(injector, post(injector, [user("a")]), Answer("x", usage=(80, 0, 0, 30)))
    injector.close()
    again = opened(tmp_path)
    (run,) = again.runs.all()
    assert run.settings == settings(token_budget=100, profile=load_profile("moderate"))
    assert run.tokens == 110
    assert refused(again, post(again, [user("b")]))["error"]["type"] == "billing_error"


def test_a_run_cannot_be_registered_as_another(tmp_path: Path) -> None:
    injector = opened(tmp_path)
    injector.begin(injector.register(settings()))
    with pytest.raises(ValueError, match="has begun"):
        injector.register(settings())
    injector.close()
    again = opened(tmp_path)
    with pytest.raises(ValueError, match="was begun with seed 3 in this log, not 4"):
        again.register(settings(seed=4))
    with pytest.raises(ValueError, match="task_id t1 in this log, not t2"):
        again.register(settings(task_id="t2"))
    again.register(settings(attempt=2))


def test_a_run_that_nobody_registered_still_has_to_agree(tmp_path: Path) -> None:
    injector = opened(tmp_path, seed=1)
    injector.register(settings())
    answered(injector, post(injector, [user("a")]))
    injector.on_request("other", Head("POST", "/v1/messages", PI), body([user("a")]))
    injector.close()
    opened(tmp_path, seed=1).close()
    with pytest.raises(ServiceError, match="begun with seed 1"):
        opened(tmp_path, seed=2)
