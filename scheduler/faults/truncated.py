"""truncated: a cut result, with the harness's own notice where it has one."""

from __future__ import annotations

from scheduler.dialect import Form, Shown
from scheduler.faults.registry import TEXT_FAMILIES, Kind, Mode, Rewrite, Scene, Skip, register


def mode(form: Form) -> Mode:
    return "explicit" if form.notice is not None else "implicit"


def rewrite(scene: Scene) -> Rewrite | Skip:
    if scene.is_empty or scene.points_back:
        return Skip("no_change")
    body = scene.shown.body
    lines = body.removesuffix("\n").split("\n")
    keep = scene.lines if scene.lines is not None else _share(len(lines), scene.stream.next())
    if scene.shown.numbering is None:
        # Blank lines alone would be an empty result, unless their numbers show.
        while keep < len(lines) and not any(line.strip() for line in _kept(scene.form, lines, keep)):
            keep += 1
    if keep < len(lines):
        return _cut_lines(scene, lines, keep)
    if len(lines) == 1 and scene.lines is None and len(body.strip()) > 1:
        return _cut_in_line(scene, lines[0])
    return Skip("no_change")


def _kept(form: Form, lines: list[str], keep: int) -> list[str]:
    return lines[len(lines) - keep :] if form.keep == "tail" else lines[:keep]


def _cut_lines(scene: Scene, lines: list[str], keep: int) -> Rewrite:
    kept = "\n".join(_kept(scene.form, lines, keep))
    if scene.shown.notice is not None:
        return Rewrite(scene.shown.cut(kept, _numbers(scene.form, scene.shown, keep)), mode="explicit")
    if scene.shown.numbering is None and scene.shown.body.endswith("\n"):
        kept += "\n"
    return Rewrite(scene.shown.wrap(kept), mode="explicit" if scene.shown.is_cut else "implicit")


def _cut_in_line(scene: Scene, line: str) -> Rewrite:
    """Half of a lone line. A notice that speaks of lines by number has nothing to say of it."""
    half = len(line.strip()) // 2
    start = len(line) - len(line.lstrip())
    kept = line[start + half :] if scene.form.keep == "tail" else line[: start + half]
    notice = scene.shown.notice
    if notice is not None and "{last}" not in notice and "{next}" not in notice:
        return Rewrite(scene.shown.cut(kept, {"left": 1, "shown": 1, "total": 1}), mode="explicit")
    return Rewrite(scene.shown.wrap(kept), mode="explicit" if scene.shown.is_cut else "implicit")


def _share(lines: int, u: float) -> int:
    """Between a fifth and three fifths of the lines, one at least."""
    return max(1, int(lines * (0.2 + 0.4 * u)))


def _numbers(form: Form, shown: Shown, keep: int) -> dict[str, int]:
    """What the harness's notice tells of a result of which ``keep`` lines are left."""
    total = shown.line_count(shown.body)
    first = shown.first + total - keep if form.keep == "tail" else shown.first
    return {
        "first": first,
        "last": first + keep - 1,
        "next": first + keep,
        "shown": keep,
        "total": shown.first + total - 1,
        "left": total - keep,
    }


register(
    Kind(
        name="truncated",
        summary="a cut result, with the harness's notice where it has one",
        timing="after",
        families=TEXT_FAMILIES,
        mode=mode,
        rewrite=rewrite,
        on_text=True,
        keeps_images=True,
        settings=frozenset({"lines"}),
    )
)
