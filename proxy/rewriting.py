"""The tool's own output in a result, what the harness put around it, and the plan that replaces it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from proxy.protocols.wire import KEEP, REMOVE, Part, PartPlan
from scheduler.dialect import Dialect


class OwnOutput(NamedTuple):
    """``text``: the tool's own output, or None when it has no text. ``pieces[i]``: (own, appended) of part i,
    None for a part that is no text of the tool."""

    text: str | None
    pieces: tuple[tuple[str, str] | None, ...]


def own_output(dialect: Dialect, parts: Sequence[Part]) -> OwnOutput:
    """Tells the tool's own text from what the harness appended to it."""
    pieces: list[tuple[str, str] | None] = []
    for part in parts:
        if part.text is None:
            pieces.append(None)
            continue
        own, appended = dialect.split_appended(part.text)
        # A block that is nothing but an appendix is not the tool's, unless it is all there is.
        pieces.append(None if appended and not own and len(parts) > 1 else (own, appended))
    texts = [piece[0] for piece in pieces if piece is not None]
    return OwnOutput("\n".join(texts) if texts else None, tuple(pieces))


def plan_text(output: OwnOutput, parts: Sequence[Part], text: str, *, keep_images: bool) -> list[PartPlan]:
    """What to do with each part so that the tool's own output becomes ``text``.

    Appendices stay, byte for byte. Images and the like stay only with ``keep_images``.
    """
    plan: list[PartPlan] = []
    placed = False
    for part, piece in zip(parts, output.pieces, strict=True):
        if piece is not None:
            appended = piece[1]
            if not placed:
                plan.append(text + appended)
                placed = True
            else:
                plan.append(appended or REMOVE)
        elif part.text is not None or keep_images:
            plan.append(KEEP)
        elif not placed and output.text is None:
            plan.append(text)
            placed = True
        else:
            plan.append(REMOVE)
    if not placed:
        plan.append(text)
    return plan
