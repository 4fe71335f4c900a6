"""Error texts: the dialect's own for this kind, or a plain one that any tool could have printed."""

from __future__ import annotations

from scheduler.dialect import Wording, can_fill, fill
from scheduler.faults.registry import Rewrite, Scene

_PLAIN = {
    "post_effect_error": Wording(text="Error: {tool} failed: Input/output error", error=True),
    "timeout_after_effect": Wording(text="Error: {tool} timed out after {seconds} seconds", error=True),
}


def error_text(kind: str, scene: Scene) -> Rewrite:
    """One of the form's wordings of ``kind``, picked by the payload stream."""
    fitting = [wording for wording in scene.form.errors.get(kind, ()) if can_fill(wording, scene.arguments)]
    wordings = fitting or [_PLAIN[kind]]
    wording = wordings[scene.stream.below(len(wordings))]
    return Rewrite(fill(wording, scene.tool, scene.rule, scene.arguments), wording.error)
