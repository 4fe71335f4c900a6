"""not_found: the file, command or address is not there, it seems; the tool never runs."""

from __future__ import annotations

from scheduler.faults.registry import ALL_FAMILIES, Kind, Rewrite, Withheld, explicit, register
from scheduler.faults.wordings import answer_text


def answer(call: Withheld) -> Rewrite:
    return answer_text("not_found", call)


register(
    Kind(
        name="not_found",
        summary="the tool never ran: its target is not there",
        timing="before",
        families=ALL_FAMILIES - {"write", "task"},
        mode=explicit,
        answer=answer,
    )
)
