"""Error texts: the dialect's own for this kind, or a plain one that any tool could have printed."""

from __future__ import annotations

from scheduler.dialect import Wording, fill
from scheduler.faults.registry import Rewrite, Scene

_PLAIN = {
    "post_effect_error": Wording(text="Error: {tool} failed: Input/output error", error=True),
    "timeout_after_effect": Wording(text="Error: {tool} timed out after {seconds} seconds", error=True),
}


def error_text(kind: str, scene: Scene) -> Rewrite:
    """One of the form's wordings of ``kind``, picked by the payload stream."""
    wordings = scene.form.errors.get(kind) or (_PLAIN[kind],)
    wording = wordings[scene.stream.below(len(wordings))]
    text = fill(wording, scene.tool, scene.rule, scene.arguments, seconds=_seconds(scene))
    return Rewrite(text, wording.error)


def _seconds(scene: Scene) -> str:
    """The call's own timeout in seconds where it set one (harnesses take seconds or milliseconds)."""
    for name in ("timeout", "timeout_ms", "timeout_s", "timeoutMs"):
        value = scene.arguments.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            seconds = value / 1000 if value >= 1000 or name.lower().endswith("ms") else value
            return f"{seconds:g}"
    return "120"
