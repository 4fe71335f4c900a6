"""locked: something else holds what the call needs, it seems; the tool never runs."""

from __future__ import annotations

from scheduler.faults.registry import Kind, Rewrite, Withheld, explicit, register
from scheduler.faults.wordings import answer_text


def answer(call: Withheld) -> Rewrite:
    return answer_text("locked", call)


register(
    Kind(
        name="locked",
        summary="the tool never ran: something else holds its target",
        timing="before",
        families=frozenset({"read", "write", "edit", "shell", "other"}),
        mode=explicit,
        answer=answer,
    )
)
