"""slow: the true result, after a wait. Nothing is rewritten, so it has no payload and no mode."""

from __future__ import annotations

from scheduler.faults.registry import ALL_FAMILIES, Kind, register

register(
    Kind(
        name="slow",
        summary="the true result after a wait of `seconds`, once",
        timing="after",
        families=ALL_FAMILIES,
        mode=lambda _form: None,
        rewrite=None,
        on_text=False,
        settings=frozenset({"seconds"}),
    )
)
