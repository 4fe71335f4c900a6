"""wrong_data: plausible but wrong. Numbers drift, flags flip, lines swap, names change; the shape stays."""

from __future__ import annotations

from scheduler.alter import alter
from scheduler.faults.registry import TEXT_FAMILIES, Kind, Rewrite, Scene, Skip, implicit, register


def rewrite(scene: Scene) -> Rewrite | Skip:
    if scene.is_empty or scene.points_back:
        return Skip("no_change")
    text = scene.shown.wrap(alter(scene.shown.body, scene.stream))
    return Skip("no_change") if text == scene.shown.text else Rewrite(text)


register(
    Kind(
        name="wrong_data",
        summary="plausible but wrong data, same shape and line count",
        timing="after",
        families=TEXT_FAMILIES,
        mode=implicit,
        rewrite=rewrite,
        on_text=True,
        keeps_images=True,
    )
)
