"""`chaosproxy explain`: a call as JSON in, what the schedule says of it out."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import orjson

from configs import (
    ConfigError,
    capability_names,
    dialect,
    gaps_in_common,
    load_capability,
    load_profile,
    read_capability,
)
from proxy.usage import UsageError
from scheduler.dialect import Dialect
from scheduler.explain import Explanation, explain
from scheduler.fitting import Gaps, gaps_of
from scheduler.nearest import unknown

_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Query(msgspec.Struct, forbid_unknown_fields=True):
    tool: str
    arguments: msgspec.Raw
    harness: str = "generic"
    task_id: str = "default"
    role: str = "main"
    occurrence: _Count = 0
    k: _Count = 0
    result: str | None = None


def explain_text(
    seed: int, profile: str, query: bytes, capabilities: tuple[str, ...] = (), *, as_json: bool
) -> str:
    """Explains one call, as it is drawn when the gaps of ``capabilities`` are left out.

    Raises ``UsageError`` for a query that is none, and the errors of its parts.
    """
    try:
        asked = msgspec.json.decode(query, type=_Query)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(
            f"expected one call as JSON on standard input, such as"
            f' {{"tool": "Read", "arguments": {{"file_path": "a.txt"}}}}: {error}'
        ) from None
    arguments = bytes(asked.arguments)
    if arguments.startswith(b'"'):
        # Arguments as a string are the raw text that the model wrote.
        arguments = msgspec.json.decode(arguments, type=str).encode("utf-8", "surrogatepass")
    harness, known = _harness(asked.harness)
    shared = gaps_in_common(read_capability(name) for name in capabilities)
    loaded = load_profile(profile)
    found = explain(
        seed,
        loaded,
        harness,
        asked.tool,
        arguments,
        task_id=asked.task_id,
        role=asked.role,
        occurrence=asked.occurrence,
        k=asked.k,
        result=asked.result,
        gaps=gaps_of(harness, loaded, known, shared),
    )
    fields = _fields(found)
    if as_json:
        return orjson.dumps(fields, option=orjson.OPT_INDENT_2).decode()
    return "\n".join(f"{name:<12} {_shown(value)}" for name, value in fields.items() if value is not None)


def _harness(named: str) -> tuple[Dialect, Gaps]:
    """The dialect of a harness, or of one version of it, and the known gaps of that."""
    name, at, version = named.partition("@")
    known = dialect(name)
    capability = load_capability(name, version) if at else None
    if at and capability is None:
        raise ConfigError(unknown("capability file", named, capability_names()))
    return known, capability.gaps() if capability is not None else {}


def _fields(found: Explanation) -> dict[str, Any]:
    return {
        "key": list(found.key),
        "u": found.u,
        "rate": found.rate,
        "fired": found.fired,
        "kind": found.kind,
        "timing": found.timing,
        "mode": found.mode,
        "persistence": found.persistence,
        "forced": found.forced,
        "family": found.family,
        "arguments": found.canonical.decode("utf-8", "replace"),
        "call_digest": found.call_digest,
        "skipped": found.skipped,
        "wait_s": found.wait_s,
        "payload": found.payload,
        "is_error": found.is_error,
    }


def _shown(value: object) -> str:
    if isinstance(value, list):
        return " | ".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
