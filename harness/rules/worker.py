"""The two ways of working: ``careful`` trusts nothing that it has not seen, ``naive`` everything.

Both are generators that yield an act and are sent what it brought, so that the same conversation always leads
to the same next act; they return their last words.
"""

from __future__ import annotations

import ast
import difflib
import re
import shlex
from collections.abc import Callable, Generator, Iterator

from harness.rules.goals import Assignment, Goal, Search
from harness.rules.hands import Act, Edit, Read, Seen, Shell, Write

Work = Generator[Act, Seen, str]
_Part = Generator[Act, Seen, str | None]

_ROUNDS = 4
# Where each round begins in the ways of looking at a file: reading, cat, sed, reading again.
_FIRST_WAYS = (0, 2, 3, 1)
_RAISED = re.compile(r"^\w+Error\b", re.MULTILINE)
_PASSED = re.compile(r"^\d+ tests passed$", re.MULTILINE)


def naive(assignment: Assignment) -> Work:
    """Does each thing once, once more when it is told that it failed, and says that it is done."""
    known: dict[str, str] = {}
    for goal in assignment.goals:
        plain = (yield from _naive_search(goal)) if isinstance(goal, Search) else goal
        for path in (*plain.sources, *((plain.target,) if plain.revises else ())):
            if path not in known:
                known[path] = (yield from _twice(Read(path))).text
        wanted = plain.wanted(known)
        if wanted is None:
            continue
        if plain.revises:
            for edit in _edits(plain.target, known[plain.target], wanted):
                yield from _twice(edit)
        else:
            yield from _twice(Write(plain.target, wanted))
        known[plain.target] = wanted
    return "Done: I made the changes that you asked for."


def _naive_search(search: Search) -> Generator[Act, Seen, Goal]:
    seen = yield from _twice(Shell(_search_command(search)))
    found = _paths_in(seen.text, search.folder)
    return search.goal(found[0] if found else search.folder)


def _twice(act: Act) -> Generator[Act, Seen, Seen]:
    seen = yield act
    if seen.failed:
        seen = yield act
    return seen


def careful(assignment: Assignment) -> Work:
    """Looks again, in another way, at what is failed, empty, cut or implausible; checks before it ends."""
    for round_number in range(_ROUNDS):
        # After a failed check nothing is known any more, and another way of looking comes first.
        known: dict[str, str] = {}
        complete = True
        for goal in assignment.goals:
            plain = (yield from _careful_search(goal, known)) if isinstance(goal, Search) else goal
            done = plain is not None and (yield from _fulfil(plain, known, round_number))
            complete = complete and done
        passed = yield from _checked(assignment.check)
        if complete and passed:
            return "Done: the changes are made and the check passes."
    return "I could not finish this: the check still does not pass, so the repair is not complete."


def _careful_search(search: Search, known: dict[str, str]) -> Generator[Act, Seen, Goal | None]:
    commands = (_search_command(search), _search_command(search), _slow_search_command(search))
    for command in commands:
        seen = yield Shell(command)
        found = _paths_in(seen.text, search.folder)
        if seen.failed or seen.partial or len(found) != 1:
            continue
        text = yield from _look(found[0], lambda text: search.key in text, 0)
        if text is not None:
            known[found[0]] = text
            return search.goal(found[0])
    return None


def _fulfil(goal: Goal, known: dict[str, str], round_number: int) -> Generator[Act, Seen, bool]:
    """Brings one file into shape and sees that it is; False when that did not work.

    ``known`` are the texts that were seen and still stand.
    """
    for source in goal.sources:
        if source not in known:
            text = yield from _look(source, lambda _: True, round_number)
            if text is None:
                return False
            known[source] = text
    holds = _holds(goal, known)
    for attempt in range(4):
        text = known.pop(goal.target, None)
        is_new = not goal.revises and attempt == 0 and round_number == 0
        if not is_new and (text is None or not holds(text)):
            text = yield from _look(goal.target, holds, round_number or min(attempt, 1))
        if text is None and (goal.revises or attempt > 0):
            return False
        wanted = goal.wanted(known | {goal.target: text or ""})
        if wanted is None:
            return False
        if text is not None and _same(text, wanted):
            known[goal.target] = text
            return True
        yield from _change(goal.target, text, wanted, attempt)
    return False


def _holds(goal: Goal, texts: dict[str, str]) -> Callable[[str], bool]:
    return lambda text: goal.wanted(texts | {goal.target: text}) is not None


def _change(path: str, text: str | None, wanted: str, attempt: int) -> Generator[Act, Seen, None]:
    """One way of making the change per attempt; what the tool says about it is not believed anyway."""
    if attempt >= 3:
        yield Shell(f"cat > {shlex.quote(path)} <<'END_OF_FILE'\n{wanted}END_OF_FILE")
    elif attempt == 2 or text is None:
        yield Write(path, wanted)
    else:
        yield from _edits(path, text, wanted)


def _look(path: str, expected: Callable[[str], bool], first: int) -> _Part:
    """A file's text, when a look at it brought one that can be true; ``first`` says which way comes first."""
    name = shlex.quote(path)
    ways: tuple[Act, ...] = (Read(path), Read(path), Shell(f"cat {name}"), Shell(f"sed -n '1,400p' {name}"))
    start = _FIRST_WAYS[first]
    for act in ways[start:] + ways[:start]:
        seen = yield act
        if seen.failed or seen.partial or not seen.text.strip():
            continue
        text = seen.text.rstrip("\n") + "\n"
        if _parses(path, text) and expected(text):
            return text
    return None


def _checked(command: str | None) -> Generator[Act, Seen, bool]:
    if command is None:
        return True
    # Told otherwise: what fails for one command need not fail for another that does the same.
    for run in (command, command, f"{command} 2>&1", f"({command}) 2>&1 | tail -n 20"):
        seen = yield Shell(run)
        if not seen.failed and _PASSED.search(seen.text):
            return True
        if seen.failed and _RAISED.search(seen.text):
            return False
    return False


def _edits(path: str, text: str, wanted: str) -> Iterator[Edit]:
    """The changed places as edits, each with as many lines around it as make it unique."""
    now = text if text.endswith("\n") else text + "\n"
    old_lines, new_lines = now.splitlines(keepends=True), wanted.splitlines(keepends=True)
    places = difflib.SequenceMatcher(None, old_lines, new_lines, autojunk=False).get_opcodes()
    for kind, first, last, new_first, new_last in places:
        if kind == "equal":
            continue
        before, after = first, last
        while _is_vague(old := "".join(old_lines[before:after]).removesuffix("\n"), now):
            if before == 0 and after == len(old_lines):
                break
            before, after = max(before - 1, 0), min(after + 1, len(old_lines))
        changed = [*old_lines[before:first], *new_lines[new_first:new_last], *old_lines[last:after]]
        new = "".join(changed).removesuffix("\n")
        yield Edit(path, old, new)
        now = now.replace(old, new, 1)


def _is_vague(old: str, text: str) -> bool:
    return not old or text.count(old) > 1


def _same(text: str, wanted: str) -> bool:
    return text.rstrip("\n") == wanted.rstrip("\n")


def _parses(path: str, text: str) -> bool:
    if not path.endswith(".py"):
        return True
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _search_command(search: Search) -> str:
    return f"grep -rl {shlex.quote(search.key)} {shlex.quote(search.folder)}"


def _slow_search_command(search: Search) -> str:
    return f"find {shlex.quote(search.folder)} -type f -exec grep -l {shlex.quote(search.key)} {{}} +"


def _paths_in(text: str, folder: str) -> list[str]:
    lines = (line.strip().removeprefix("./") for line in text.splitlines())
    return [line for line in lines if line.startswith(f"{folder}/") and " " not in line]
