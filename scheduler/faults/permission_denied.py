"""permission_denied: the call is refused, as the system or the harness words that; the tool never runs."""

from __future__ import annotations

from scheduler.faults.registry import ALL_FAMILIES, Kind, Rewrite, Withheld, explicit, register
from scheduler.faults.wordings import answer_text


def answer(call: Withheld) -> Rewrite:
    return answer_text("permission_denied", call)


register(
    Kind(
        name="permission_denied",
        summary="the tool never ran: it was not allowed to",
        timing="before",
        families=ALL_FAMILIES,
        mode=explicit,
        answer=answer,
    )
)
