"""Token budgets, and the quota errors of providers: ours, when a budget is spent, and theirs."""

from __future__ import annotations

import re
from collections.abc import Mapping

import orjson

from proxy.encoding import CodingError, coding_of, decode
from proxy.exchange import Exchange, Refusal
from proxy.runs import Run

# What stops a client at once: the SDKs of Anthropic and OpenAI obey it before they look at the status.
_STOP: Mapping[str, str] = {"x-should-retry": "false"}

# Harnesses that try a 429 again whatever else it says, and the status on which they give up.
_GIVE_UP_ON: Mapping[str | None, int] = {"pi": 402, "opencode": 402, "qwen-code": 402, "mini-swe-agent": 401}

ERROR_BYTES_KEPT = 1 << 16


def is_spent(run: Run) -> bool:
    """Whether nothing is left of the run's token budget."""
    budget = run.settings.token_budget
    return budget is not None and run.tokens >= budget


def quota_refusal(protocol: str, harness: str | None, *, budget: int, used: int) -> Refusal:
    """The provider's own quota error, in the form that makes this harness stop rather than try again.

    Anthropic: https://docs.anthropic.com/en/api/errors (402 ``billing_error``). OpenAI:
    https://platform.openai.com/docs/guides/error-codes (429 ``insufficient_quota``). Gemini:
    https://ai.google.dev/gemini-api/docs/troubleshooting (429 ``RESOURCE_EXHAUSTED``; a quota per day is what
    its client does not wait for).
    """
    spent = f"{used} of {budget} tokens are used up"
    match protocol:
        case "anthropic":
            said = f"Your credit balance is too low to access the API: {spent}."
            error = {"type": "billing_error", "message": said}
            return Refusal(402, orjson.dumps({"type": "error", "error": error}), _STOP)
        case "gemini":
            return Refusal(429, orjson.dumps(_gemini(spent)), _STOP)
        case _:
            said = f"You exceeded your current quota, please check your plan and billing details: {spent}."
            kind = "insufficient_quota"
            body = {"error": {"message": said, "type": kind, "param": None, "code": kind}}
            return Refusal(_GIVE_UP_ON.get(harness, 429), orjson.dumps(body), _STOP)


def _gemini(spent: str) -> dict[str, object]:
    violation = {
        "quotaMetric": "generativelanguage.googleapis.com/generate_content_paid_tier_input_token_count",
        "quotaId": "GenerateContentPaidTierInputTokensPerModelPerDay",
    }
    detail = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]}
    said = f"You exceeded your current quota, please check your plan and billing details: {spent}."
    return {"error": {"code": 429, "message": said, "status": "RESOURCE_EXHAUSTED", "details": [detail]}}


_QUOTA_WORDS = re.compile(
    r"insufficient_quota|billing|credit balance|usage limit|exceeded your current quota|quota exceeded"
    r"|spend(?:ing)? limit|PerDay|out of (?:credits|tokens)|monthly limit|weekly limit|plan limit",
    re.IGNORECASE,
)


def is_quota_error(status: int | None, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether a provider's answer says that the allowance is used up (not merely: too fast).

    402 always is; 429, 403 and 400 by their words (Anthropic says 400 at a usage limit that was set by hand);
    429 also by the header of Anthropic's subscriptions.
    """
    if status == 402:
        return True
    if status not in (400, 403, 429):
        return False
    if status == 429 and headers.get("anthropic-ratelimit-unified-status") == "rejected":
        return True
    try:
        plain = decode(body, coding_of(headers.get("content-encoding")))
    except CodingError:
        return False
    return _QUOTA_WORDS.search(plain.decode("utf-8", "replace")) is not None


def missing_usage(exchange: Exchange) -> str | None:
    """What is wrong with an answered request that did not say what it used, when that must be known."""
    run = exchange.run
    if run.settings.token_budget is None or run.stopped or not exchange.answered:
        return None
    if any(count is not None for count in exchange.usage):
        return None
    return (
        "the answer did not say how many tokens it used, so the token budget cannot be held"
        " (OpenAI's streams say it only when they are asked to: stream_options.include_usage)"
    )
