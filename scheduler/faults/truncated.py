"""truncated: a cut result, with the harness's own notice where it has one."""

from __future__ import annotations

from scheduler.dialect import Form, Shown
from scheduler.faults.registry import TEXT_FAMILIES, Kind, Mode, Rewrite, Scene, Skip, register


def mode(form: Form) -> Mode:
    return "explicit" if form.notice is not None else "implicit"


def rewrite(scene: Scene) -> Rewrite | Skip:
    body = scene.shown.body
    trailing = body.endswith("\n")
    lines = body.removesuffix("\n").split("\n")
    keep = scene.lines if scene.lines is not None else _share(len(lines), scene.stream.next())
    if keep >= len(lines):
        if len(lines) > 1 or scene.lines is not None or len(body.strip()) < 2:
            return Skip("no_change")
        kept = [body[: max(1, len(body.strip()) // 2)]]
        trailing = False
    elif scene.form.keep == "tail":
        kept = lines[len(lines) - keep :]
    else:
        kept = lines[:keep]
    cut = "\n".join(kept)
    if trailing and kept and scene.form.notice is None:
        cut += "\n"
    text = scene.shown.wrap(cut) + _notice(scene.form, scene.shown, len(kept), len(lines))
    return Skip("no_change") if text == scene.shown.text else Rewrite(text)


def _share(lines: int, u: float) -> int:
    """Between a fifth and three fifths of the lines, one at least."""
    return max(1, int(lines * (0.2 + 0.4 * u)))


def _notice(form: Form, shown: Shown, kept: int, total: int) -> str:
    if form.notice is None:
        return ""
    if form.keep == "tail":
        first, last = shown.first + total - kept, shown.first + total - 1
    else:
        first, last = shown.first, shown.first + kept - 1
    return form.notice.format(
        first=first, last=last, next=last + 1, shown=kept, total=shown.first + total - 1, left=total - kept
    )


register(
    Kind(
        name="truncated",
        summary="a cut result, with the harness's notice where it has one",
        timing="after",
        families=TEXT_FAMILIES,
        mode=mode,
        rewrite=rewrite,
        on_text=True,
    )
)
