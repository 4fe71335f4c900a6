"""Texts of faults: the dialect's own for a kind, or a plain one that any tool could have printed."""

from __future__ import annotations

from scheduler.faults.registry import Rewrite, Scene, Withheld
from scheduler.filling import fill, fitting_wordings, words_of
from scheduler.form import Wording

_PLAIN = {
    "post_effect_error": Wording(text="Error: {tool} failed: Input/output error", error=True),
    "timeout_after_effect": Wording(text="Error: {tool} timed out after {seconds} seconds", error=True),
}


def error_text(kind: str, scene: Scene) -> Rewrite:
    """One of the form's wordings of the after-kind ``kind``, picked by the payload stream."""
    words = scene.words
    wordings = fitting_wordings(scene.form.errors.get(kind, ()), words) or [_PLAIN[kind]]
    wording = wordings[scene.stream.below(len(wordings))]
    return Rewrite(fill(wording, words, scene.stream, scene.form.frame), wording.error)


def answer_text(kind: str, call: Withheld) -> Rewrite:
    """One of the form's wordings of the before-kind ``kind``, picked by the payload stream.

    Raises ``ValueError`` when the form has none: such a kind does not fit the tool.
    """
    words = words_of(call.tool, call.rule, call.arguments, call.workspace, call.session)
    wordings = fitting_wordings(call.form.errors.get(kind, ()), words)
    if not wordings:
        raise ValueError(f"no wording of {kind} for the tool {call.tool}")
    wording = wordings[call.stream.below(len(wordings))]
    return Rewrite(fill(wording, words, call.stream, call.form.frame), wording.error)
