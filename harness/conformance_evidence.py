"""What one session shows of one cell, beside a session of the same calls without any fault."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

import msgspec
import msgspec.structs

from harness.conformance_disk import Disk
from harness.conformance_plan import Placed
from harness.conformance_session import Session, view_of
from harness.received import Received
from harness.turns import ToolCall
from ledger.records import Decision, Delivery
from scheduler.dialect import Dialect
from scheduler.faults import KINDS

# A shorter line can stand anywhere by chance.
_LEAST_CHARS = 8

_BEFORE_KINDS = "|".join(kind.name for kind in KINDS.values() if kind.timing == "before")
_WIRE_NAME = re.compile(rf"\w_{{2,}}(?:{_BEFORE_KINDS})\b")
# What harnesses say of a tool that they do not have, and what says outright where a text comes from.
_TOLD = re.compile(
    r"(?i)no such tool|tool \S+ not found|unsupported call|unavailable tool|not found in registry"
    r"|unknown tool|\binject(?:ed|ion|or)\b|chaosproxy|fault[- ]inject|\bsimulated (?:error|failure|fault)"
)
_PLAIN_WORDS = re.compile(r"(?i)\b(?:inject\w*|chaos\w*|faults?|faulty|simulated?|proxy)\b")


class Sighting(msgspec.Struct, frozen=True):
    """A result as the endpoint received it, in so many requests in a row: the tool's own output, and what the
    harness put behind it."""

    own: str
    appended: str
    is_error: bool | None
    times: int = 1


class Retry(msgspec.Struct, frozen=True):
    """The same call once more, with no fault on it. ``truth``: the digest of what the harness sent."""

    shown: Sighting
    truth: str | None
    skipped: str | None
    fired: bool


class Evidence(msgspec.Struct, frozen=True):
    """All that is known of one cell in one repeat.

    - ``shown``: the faulted result as the requests had it; ``true``: the same without faults.
    - ``calls``: the call itself, as (name, arguments as JSON), in every way that the requests had it;
      ``right_calls``: as the model said it, and as the harness words it without faults.
    - ``answers``: how many results for it there were in a request, every number that was seen.
    - ``said``: other texts that came with the result.
    - ``leaked``: lines of the true result that the endpoint was sent and that are no part of the payload.
    - ``told``: words that give the fault away.
    - ``disk``, ``true_disk``: before and after the call, with and without the fault.
    - ``waited_s``: from the request before to the one with the result.
    - ``turns``: how many steps the session came to, of ``turns_due``.
    - ``requests``: digests of the bodies that had the result.
    - ``asked``: how many starts it took, see ``says_nothing``.
    """

    cell: str
    repeat: int
    decision: Decision | None
    deliveries: tuple[Delivery, ...]
    shown: tuple[Sighting, ...]
    true: Sighting | None
    calls: tuple[tuple[str, str], ...]
    right_calls: tuple[tuple[str, str], ...]
    answers: tuple[int, ...]
    said: tuple[str, ...]
    leaked: tuple[str, ...]
    told: tuple[str, ...]
    disk: tuple[Disk, Disk] | None
    true_disk: tuple[Disk, Disk] | None
    waited_s: float | None
    retry: Retry | None
    turns: int
    turns_due: int
    exit_code: int
    true_exit_code: int
    timed_out: bool
    errors: tuple[str, ...]
    requests: tuple[str, ...]
    asked: int = 1

    @property
    def seen(self) -> int:
        """In how many requests the result was."""
        return sum(sighting.times for sighting in self.shown)

    @property
    def digest(self) -> str:
        """SHA-256 of the evidence as JSON."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


def sha256_of(text: str) -> str:
    """As the log has it of payloads and originals."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def gather(placed: Placed, session: Session, clean: Session, dialect: Dialect, repeat: int) -> Evidence:
    """The evidence on one cell of ``session``; ``clean`` played the same plan without faults."""
    carrying = _carrying(session, placed.target)
    clean_carrying = _carrying(clean, placed.target)
    shown = tuple(_in_a_row(sighting_in(request, placed.target, dialect) for request in carrying))
    true = next((sighting_in(request, placed.target, dialect) for request in clean_carrying), None)
    first = session.with_call(placed.target)
    return Evidence(
        cell=placed.cell.name,
        repeat=repeat,
        decision=decision_of(session, placed.target),
        deliveries=tuple(d for d in session.deliveries if _step_of(d.call_id) == placed.target),
        shown=shown,
        true=true,
        calls=tuple(dict.fromkeys(_call(request, placed.target) for request in carrying)),
        right_calls=(
            _spelled(session.plan.script.turns[placed.target].calls[0]),
            *(_call(request, placed.target) for request in clean_carrying[:1]),
        ),
        answers=tuple(sorted({_answers(request, placed.target) for request in carrying})),
        said=tuple(view_of(carrying[0]).turns[placed.target].said) if carrying else (),
        leaked=tuple(_leaks(placed, session, shown[0] if shown else None, true)),
        told=tuple(_told(placed, session, clean, first, shown)),
        disk=_around(session, placed),
        true_disk=_around(clean, placed),
        waited_s=_waited(session, first),
        retry=_retry(placed, session, dialect),
        turns=max((len(view_of(request).calls) for request in session.main), default=0),
        turns_due=session.plan.steps,
        exit_code=session.outcome.exit_code,
        true_exit_code=clean.outcome.exit_code,
        timed_out=session.outcome.timed_out,
        errors=tuple(f"{error.where}: {error.reason}" for error in session.errors),
        requests=tuple(hashlib.sha256(request.body).hexdigest() for request in carrying),
    )


def _carrying(session: Session, step: int) -> tuple[Received, ...]:
    first = session.with_call(step)
    return () if first is None else session.main[first:]


_STEP = re.compile(r"_step(\d+)$")


def _step_of(call_id: str) -> int | None:
    match = _STEP.search(call_id)
    return int(match[1]) if match else None


def decision_of(session: Session, step: int) -> Decision | None:
    """The last decision on a step's call that is not only the harness's own word over it."""
    found = [d for d in session.decisions if _step_of(d.call_id) == step and d.role == "main"]
    return next((d for d in reversed(found) if d.skipped != "superseded"), found[-1] if found else None)


def call_at(request: Received, step: int) -> ToolCall:
    """The call of a step: by the id that the model gave it, or, where the harness made its own, by place."""
    calls = view_of(request).calls
    return next((call for call in calls if _step_of(call.call_id or "") == step), calls[step])


def sighting_in(request: Received, step: int, dialect: Dialect) -> Sighting | None:
    """The result of a step's call as it stands in a request, or None."""
    call = call_at(request, step)
    result = next((r for r in view_of(request).results if r.call_id == call.call_id), None)
    if result is None:
        return None
    pieces = [dialect.split_appended(block) for block in result.blocks or (result.text,)]
    # A block of a reminder alone is not the tool's.
    owns = [own for own, appended in pieces if own or not appended or len(pieces) == 1]
    return Sighting("\n".join(owns), "".join(appended for _, appended in pieces), result.is_error)


def _in_a_row(sightings: Iterable[Sighting | None]) -> Iterator[Sighting]:
    for sighting, same in groupby(sightings):
        if sighting is not None:
            yield msgspec.structs.replace(sighting, times=len(list(same)))


def _call(request: Received, step: int) -> tuple[str, str]:
    return _spelled(call_at(request, step))


def _spelled(call: ToolCall) -> tuple[str, str]:
    return call.tool, json.dumps(dict(call.arguments), sort_keys=True, ensure_ascii=False)


def _answers(request: Received, step: int) -> int:
    wanted = call_at(request, step).call_id
    return sum(result.call_id == wanted for result in view_of(request).results)


def _around(session: Session, placed: Placed) -> tuple[Disk, Disk] | None:
    before = session.disk.get(placed.target, {}).get(placed.cell.name)
    after = session.disk.get(placed.target + 1, {}).get(placed.cell.name)
    return None if before is None or after is None else (before, after)


def _waited(session: Session, first: int | None) -> float | None:
    if not first:
        return None
    return round(session.main[first].at_s - session.main[first - 1].at_s, 3)


def _retry(placed: Placed, session: Session, dialect: Dialect) -> Retry | None:
    if placed.retry is None:
        return None
    carrying = _carrying(session, placed.retry)
    shown = sighting_in(carrying[0], placed.retry, dialect) if carrying else None
    decision = decision_of(session, placed.retry)
    if shown is None or decision is None:
        return None
    return Retry(shown, decision.original_sha256, decision.skipped, decision.fired)


def _leaks(placed: Placed, session: Session, shown: Sighting | None, true: Sighting | None) -> Iterator[str]:
    """Lines of the true result that reach the endpoint, whatever stands around them.

    A line with the cell's word may be in no body until the same call is made again, unless it was in one
    before the call was answered. Of any other line no more may come with the result. What the model wrote
    itself in the call is no secret: it may stand there, and nowhere else.
    """
    first = session.with_call(placed.target)
    if not first or shown is None or true is None:
        return
    again = session.with_call(placed.retry) if placed.retry is not None else None
    before, bodies = session.texts[first - 1], session.texts[first:again]
    arguments = call_at(session.main[first], placed.target).arguments
    # Some tools answer in JSON, in which a line's end is spelled.
    for line in dict.fromkeys(line.strip() for line in re.split(r"\n|\\n", true.own)):
        if len(line) < _LEAST_CHARS or line in shown.own:
            continue
        spelled = _spelling(line)
        written = _times_written(spelled, arguments, bodies[0])
        if placed.cell.word in line and spelled not in before:
            leaked = any(body.count(spelled) > written for body in bodies)
        else:
            leaked = bodies[0].count(spelled) > before.count(spelled) + written
        if leaked:
            yield line


def _times_written(spelled: str, arguments: Mapping[str, Any], body: str) -> int:
    """How often a line stands in a call's arguments, as ``body`` spells them."""
    # Some protocols have the arguments as a text of their own, so that they are spelled twice.
    for separators in ((", ", ": "), (",", ":")):
        text = _spelling(json.dumps(arguments, ensure_ascii=False, separators=separators))
        if text in body:
            return text.count(spelled)
    once = [_spelling(text) for text in _texts_in(arguments)]
    return sum((_spelling(text) if _spelling(text) in body else text).count(spelled) for text in once)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts_in(item)


def _spelling(text: str) -> str:
    """As it stands inside a JSON string, without the spellings that differ from writer to writer."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _told(
    placed: Placed, session: Session, clean: Session, first: int | None, shown: Sequence[Sighting]
) -> Iterator[str]:
    """Words in the result itself, the call's name on the wire in any body, and phrases that came with the
    result, where none came without the fault."""
    for sighting in shown[:1]:
        yield from sorted(set(_PLAIN_WORDS.findall(sighting.own)))
    for name in _wire_names(session):
        tool, _, kind = name.partition("__")
        if placed.cell.tool.startswith(tool) and kind.lstrip("_") == placed.cell.kind:
            yield name
    calm = clean.with_call(placed.target)
    if first is not None and calm is not None:
        usual = _new_phrases(clean, calm)
        yield from (phrase for phrase, count in _new_phrases(session, first).items() if count > usual[phrase])


@lru_cache(maxsize=4)
def _wire_names(session: Session) -> tuple[str, ...]:
    texts = (*session.texts, *session.other_texts)
    found = {_word_before(text, match) + match[0] for text in texts for match in _WIRE_NAME.finditer(text)}
    return tuple(sorted(found))


def _word_before(text: str, match: re.Match[str]) -> str:
    before = re.search(r"\w*\Z", text[max(0, match.start() - 64) : match.start()])
    return before[0] if before else ""


def _new_phrases(session: Session, index: int) -> Counter[str]:
    """What a body says that could tell and that the one before did not say, and how often."""
    now = Counter(_TOLD.findall(session.texts[index]))
    return now - Counter(_TOLD.findall(session.texts[index - 1])) if index else now
