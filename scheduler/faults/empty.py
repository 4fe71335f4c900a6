"""empty: the tool ran and its result is shown as this harness shows an empty one."""

from __future__ import annotations

from scheduler.faults.registry import ALL_FAMILIES, Kind, Rewrite, Scene, Skip, implicit, register


def rewrite(scene: Scene) -> Rewrite | Skip:
    if scene.is_empty:
        return Skip("no_change")
    return Rewrite(scene.empty_text, scene.empty_wording.error)


register(
    Kind(
        name="empty",
        summary="an empty result, as this harness shows one",
        timing="after",
        families=ALL_FAMILIES,
        mode=implicit,
        rewrite=rewrite,
        on_text=True,
    )
)
