"""timeout_after_effect: the tool did its work, and the harness seems to have given up waiting for it."""

from __future__ import annotations

from scheduler.faults.registry import Kind, Rewrite, Scene, explicit, register
from scheduler.faults.wordings import error_text


def rewrite(scene: Scene) -> Rewrite:
    return error_text("timeout_after_effect", scene)


register(
    Kind(
        name="timeout_after_effect",
        summary="the work was done, the harness's own time-out comes back",
        timing="after",
        families=frozenset({"shell", "fetch", "other"}),
        mode=explicit,
        rewrite=rewrite,
        on_text=False,
    )
)
