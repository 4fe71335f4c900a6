"""timeout: the call took too long, it seems; the tool never runs."""

from __future__ import annotations

from scheduler.faults.registry import ALL_FAMILIES, Kind, Rewrite, Withheld, explicit, register
from scheduler.faults.wordings import answer_text


def answer(call: Withheld) -> Rewrite:
    return answer_text("timeout", call)


register(
    Kind(
        name="timeout",
        summary="the tool never ran: it took too long, it seems",
        timing="before",
        families=ALL_FAMILIES,
        mode=explicit,
        answer=answer,
    )
)
