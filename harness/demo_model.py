"""A rule-based policy for the scripted model: it solves the shipped tasks from what it is sent alone.

It understands the sentences of ``harness.rules.goals``, works with the read, write, edit and shell tools of
the reference agent, Claude Code or Pi, and knows nothing of the task files on disk. It stands in for a model
where there is none; it is no measure of any.
"""

from __future__ import annotations

import re
from typing import Literal

from harness.rules.goals import assignment_in
from harness.rules.hands import Act, Hands, Read, Shell, Write
from harness.rules.worker import Work, careful, naive
from harness.script import Policy
from harness.turns import Conversation, Turn

Manner = Literal["careful", "naive"]

_MANNER = re.compile(r"^Policy: (careful|naive)$", re.MULTILINE)
_WORKERS = {"careful": careful, "naive": naive}


def demo_policy(manner: Manner = "careful") -> Policy:
    """A policy for ``ScriptedModel``.

    ``careful`` looks again, in another way, when a result is an error, empty, cut or implausible, and checks
    before it says that it is done; ``naive`` takes everything at face value, never checks, and says that it
    is done. A system text with the line ``Policy: careful`` or ``Policy: naive`` overrides ``manner``.
    """

    def policy(view: Conversation) -> Turn:
        return _next_turn(view, manner)

    return policy


def _next_turn(view: Conversation, manner: Manner) -> Turn:
    assignment = assignment_in(view.user_texts)
    hands = Hands(view)
    if assignment is None:
        return Turn("I see nothing here that I know how to do.")
    if not hands.usable:
        return Turn("I cannot do this without tools to read, write, edit and run commands.")
    told = _MANNER.search(view.system)
    worker = _WORKERS[told.group(1) if told else manner](assignment)
    act = _caught_up(worker, view, hands)
    return Turn(act) if isinstance(act, str) else Turn(_words(act), (hands.call(act),))


def _caught_up(worker: Work, view: Conversation, hands: Hands) -> Act | str:
    """Tells the worker what its earlier acts brought; gives its next act, or its last words.

    Calls that it would not have made are passed over: they were made before a compaction, or by another.
    """
    try:
        act = next(worker)
        for past in view.turns:
            for call in past.calls:
                if hands.is_call_of(act, call):
                    act = worker.send(hands.seen(act, past.result_of(call)))
    except StopIteration as stop:
        return str(stop.value)
    return act


def _words(act: Act) -> str:
    match act:
        case Read():
            return f"I read {act.path}."
        case Write():
            return f"I write {act.path}."
        case Shell():
            return "I run a command."
        case _:
            return f"I edit {act.path}."
