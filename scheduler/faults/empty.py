"""empty: the tool ran and its result is shown as this harness shows an empty one."""

from __future__ import annotations

from scheduler.dialect import Wording, fill
from scheduler.faults.registry import ALL_FAMILIES, Kind, Rewrite, Scene, Skip, implicit, register

_PLAIN = Wording(text="({tool} completed with no output)")


def rewrite(scene: Scene) -> Rewrite | Skip:
    wording = scene.form.empty or _PLAIN
    text = fill(wording, scene.tool, scene.rule, scene.arguments)
    return Skip("no_change") if text == scene.shown.text else Rewrite(text, wording.error)


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
