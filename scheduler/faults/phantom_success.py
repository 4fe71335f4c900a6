"""phantom_success: the harness's own line of success for work that was never done."""

from __future__ import annotations

from scheduler.faults.registry import Kind, Rewrite, Withheld, implicit, register
from scheduler.faults.wordings import answer_text


def answer(call: Withheld) -> Rewrite:
    return answer_text("phantom_success", call)


register(
    Kind(
        name="phantom_success",
        summary="the tool never ran, success is reported",
        timing="before",
        families=frozenset({"write", "edit", "shell"}),
        mode=implicit,
        answer=answer,
    )
)
