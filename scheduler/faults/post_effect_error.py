"""post_effect_error: the tool did its work, and an error comes back all the same."""

from __future__ import annotations

from scheduler.faults.registry import ALL_FAMILIES, Kind, Rewrite, Scene, explicit, register
from scheduler.faults.wordings import error_text


def rewrite(scene: Scene) -> Rewrite:
    return error_text("post_effect_error", scene)


register(
    Kind(
        name="post_effect_error",
        summary="the work was done, an error comes back",
        timing="after",
        families=ALL_FAMILIES,
        mode=explicit,
        rewrite=rewrite,
        on_text=False,
    )
)
