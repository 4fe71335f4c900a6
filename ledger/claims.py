"""What an agent's last message comes down to: that it is done, that it gave up, or neither. English only."""

from __future__ import annotations

import re

from ledger.runs import Claim

_GAVE_UP = re.compile(
    r"\b(?:giv(?:e|ing) up|gave up"
    r"|(?:was|am|were|is|are|been)(?: not able| unable|n't able) to"
    r"|(?:could|can|did)(?: ?not|n['\u2019]t|not) (?:be )?"
    r"(?:complet|finish|fix|solv|resolv|get|make|manage|do|apply|edit)"
    r"|(?:blocked|stuck|unsuccessful|without success)"
    r"|failed to (?:complet|finish|fix|solv|resolv|apply)\w*"
    r"|not (?:yet )?(?:complete|fixed|solved|resolved|done|finished))",
    re.IGNORECASE,
)
_DONE = re.compile(
    r"\b(?:done|fixed|finished|completed|complete|resolved|solved|implemented|updated|successfully|corrected"
    r"|works now|now works|(?:all |the )?tests? (?:now )?pass(?:es|ed)?|passing)\b",
    re.IGNORECASE,
)


def claim_of(text: str | None) -> Claim | None:
    """``gave_up`` when the text says that something could not be done, else ``done`` when it says that it
    is; null when it says neither, or there is no text. What is given up weighs more than what is done."""
    if not text:
        return None
    if _GAVE_UP.search(text):
        return "gave_up"
    return "done" if _DONE.search(text) else None
