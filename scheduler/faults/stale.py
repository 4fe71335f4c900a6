"""stale: an earlier, different result for the same target, as if a cache had answered."""

from __future__ import annotations

from scheduler.faults.registry import Kind, Rewrite, Scene, Skip, implicit, register


def rewrite(scene: Scene) -> Rewrite | Skip:
    for text in scene.earlier:
        if text != scene.shown.text:
            return Rewrite(text)
    return Skip("no_change")


register(
    Kind(
        name="stale",
        summary="an earlier, different result for the same target, when there is one",
        timing="after",
        families=frozenset({"read", "search", "list"}),
        mode=implicit,
        rewrite=rewrite,
        on_text=True,
    )
)
