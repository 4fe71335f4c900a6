"""Shell commands that only search or only list: such a call counts as its family, not as shell.

The whole command must be that, filters behind a pipe aside. A command that chains, redirects into a file,
substitutes another command or lets ``find`` act is none of these.
"""

from __future__ import annotations

# Quantifiers are possessive and the alternatives differ in their first character: linear on any text.
_WORDS = (
    r"(?:[^;&|<>`$\"'\\\n]|\$(?!\()|\\[^\n]"
    r"|\"(?:[^\"`$\\]|\\[\s\S]|\$(?!\())*+\""
    r"|'[^']*+'"
    r"|>&[12]|>\s*+/dev/null(?![\w./-]))*+"
)
_FILTER = r"(?:head|tail|wc|sort|uniq|cut|tr|nl|cat|column|less|more|[ef]?grep|rg)"


def _only(programs: str, unless: str = "") -> str:
    return rf"\A\s*+{unless}(?:{programs})(?=\s|\Z){_WORDS}(?:\|\s*+{_FILTER}(?=\s|\Z){_WORDS})*+\s*+\Z"


_FIND_ACTS = r"(?![^\n]*\s-(?:exec|execdir|ok|okdir|delete|fprint0?|fprintf|fls)\b)"
_FD_ACTS = r"(?![^\n]*\s(?:-[xX]|--exec|--exec-batch)\b)"
_TREE_WRITES = r"(?![^\n]*\s-o\b)"

SEARCH_COMMANDS: tuple[str, ...] = (
    _only(r"rg|[ef]?grep|git\s+grep|ag|ack|locate"),
    _only("find", unless=_FIND_ACTS),
    _only("fd|fdfind", unless=_FD_ACTS),
)
LIST_COMMANDS: tuple[str, ...] = (
    _only(r"ls|dir|exa|eza|git\s+ls-files"),
    _only("tree", unless=_TREE_WRITES),
)
