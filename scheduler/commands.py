"""What a shell command is about: whether it only searches or lists, and which program of it could fail.

A call whose whole command only searches or only lists, filters behind a pipe aside, counts as that family.
A command that chains, redirects into a file, substitutes another command or lets ``find`` act is neither.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

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


def command_text(value: object) -> str | None:
    """A shell command as text; some harnesses send the words of it as a list, some behind ``bash -lc``."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        words = [str(word) for word in value]
        if (
            len(words) >= 3
            and words[0].rsplit("/", 1)[-1] in {"bash", "sh", "zsh"}
            and words[1] in {"-c", "-lc"}
        ):
            return words[2]
        return " ".join(words)
    return None


_SEPARATOR = re.compile(r"&&|\|\||[;|&\n]")
_PROGRAM = re.compile(r"[\w.+-]*[A-Za-z][\w.+-]*")


def last_program(command: str) -> str:
    """The last program that ``command`` runs, or ``bash`` when that is not plain to see."""
    for part in reversed(_SEPARATOR.split(command)):
        words = [word for word in part.split() if "=" not in word]
        if words:
            name = words[0].rsplit("/", 1)[-1]
            return name if _PROGRAM.fullmatch(name) else "bash"
    return "bash"


class Step(NamedTuple):
    """The part of a command that can fail so that nothing else of it is seen, and what it is about.

    ``program``: as it was typed; None when the shell does it itself. ``redirected``: the file that its output
    goes to. ``directory``: where the command changes to before it.
    """

    program: str | None
    redirected: str | None
    directory: str | None


_LONGEST = 4096
_OPERATORS = frozenset("();<>|&\n")
_BY_THE_SHELL = frozenset(
    """. : [ alias bg break cd command continue declare echo eval exec exit export false fg getopts hash
    jobs kill let local popd printf pushd pwd read readonly return set shift source test times trap true type
    typeset ulimit umask unalias unset wait""".split()  # noqa: SIM905
)
_COMPOUND = frozenset(
    "if then else elif fi for while until do done case esac select function { } ! [[ time".split()  # noqa: SIM905
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_PLAIN_WORD = re.compile(r"[\w.+/@:~-]+")


def first_step(command: str) -> Step | None:
    """The step of ``command`` that stops it when it fails; None when that is not plain to see.

    Of a list with ``;`` the last entry, since the shell goes on after the others; in it the first part before
    ``&&`` that is a program's; of a pipe the last, whose exit code is the command's.
    """
    tokens = _tokens(command.strip())
    if tokens is None:
        return None
    entry: list[str] = []
    for token in tokens:
        if token == ";":
            entry = []
        elif _is_operator(token) and token not in _SIMPLE:
            return None
        else:
            entry.append(token)
    steps = [_step(_split(part, "|")[-1]) for part in _split(entry, "&&")]
    if None in steps:
        return None
    whole = [step for step in steps if step is not None]
    found = next((step for step in whole if step.program is not None), whole[0])
    return found._replace(directory=whole[0].directory)


# What another command puts there, and operators that are none since they are quoted.
_UNCLEAR = re.compile(r"`|\$\(|(['\"])[();<>|&\n]+\1|\\[();<>|&\n]")
_SIMPLE = frozenset({"|", "&&", ">", ">>", "<", ">&", "&>"})


def _tokens(command: str) -> list[str] | None:
    if len(command) > _LONGEST or _UNCLEAR.search(command):
        return None
    lexer = shlex.shlex(command, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:  # a quote that is not closed
        return None


def _is_operator(token: str) -> bool:
    return bool(token) and _OPERATORS.issuperset(token)


def _split(tokens: list[str], at: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for token in tokens:
        if token == at:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _step(tokens: list[str]) -> Step | None:
    """One simple command; None when it is none."""
    words: list[str] = []
    redirected = None
    rest = iter(tokens)
    for token in rest:
        if _is_operator(token):
            file = next(rest, "")
            if token in {">", ">>"} and _PLAIN_WORD.fullmatch(file) and file != "/dev/null":
                # The file of a descriptor of its own (2>) is as good: it is opened before anything runs.
                redirected = file
        elif words or not _ASSIGNMENT.match(token):
            words.append(token)
    if not words or words[0] in _COMPOUND or not _PLAIN_WORD.fullmatch(words[0]):
        return None
    is_cd = words[0] == "cd" and len(words) == 2 and bool(_PLAIN_WORD.fullmatch(words[1]))
    return Step(
        program=None if words[0] in _BY_THE_SHELL else words[0],
        redirected=redirected,
        directory=words[1] if is_cd and words[1] != "-" else None,
    )
