"""stale: an earlier, different result for the same target, as if a cache had answered."""

from __future__ import annotations

from scheduler.faults.registry import Kind, Rewrite, Scene, Skip, implicit, register
from scheduler.form import has_failed, points_back


def rewrite(scene: Scene) -> Rewrite | Skip:
    contents = [
        text
        for text in scene.earlier
        if not points_back(scene.form, text) and not has_failed(scene.form, text, None)
    ]
    # A result that points back says that the latest content still stands.
    now = contents[0] if scene.points_back and contents else scene.shown.text
    for text in contents:
        if text.rstrip() != now.rstrip():
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
