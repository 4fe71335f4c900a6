"""The harnesses that we can start, by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from harness.adapter import Adapter, HarnessError
from harness.claude_code import ClaudeCode
from harness.codex import Codex
from harness.gemini_cli import GeminiCli
from harness.mini_swe_agent import MiniSweAgent
from harness.opencode import OpenCode
from harness.pi import Pi
from harness.qwen_code import QwenCode
from harness.reference import Reference

_ADAPTERS: dict[str, Callable[[], Adapter]] = {
    "claude-code": ClaudeCode,
    "pi": Pi,
    "codex": Codex,
    "opencode": OpenCode,
    "gemini-cli": GeminiCli,
    "qwen-code": QwenCode,
    "mini-swe-agent": MiniSweAgent,
    "reference": Reference,
}


def adapter_names() -> tuple[str, ...]:
    """Every name that ``adapter_named`` takes."""
    return tuple(_ADAPTERS)


def adapter_named(name: str) -> Adapter:
    """The adapter of that name; HarnessError names the nearest one."""
    if name in _ADAPTERS:
        return _ADAPTERS[name]()
    near = difflib.get_close_matches(name, _ADAPTERS, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(_ADAPTERS)}"
    raise HarnessError(f"unknown harness {name!r}{hint}")
