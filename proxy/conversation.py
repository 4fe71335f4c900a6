"""One message history and what is remembered of it: which call is which, what was decided, what to replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from ledger.memory import CallRow, ConversationRow, Tip
from proxy.protocols.wire import Edit, ParsedRequest, Place, SeenCall, SeenResult
from proxy.retelling import TextEdit
from scheduler.call import Call, Family
from scheduler.profile import Profile
from scheduler.schedule import Draw, Standing

_draws = msgspec.json.Decoder(Draw)
_encoder = msgspec.json.Encoder()


def encode_draw(draw: Draw) -> bytes:
    return _encoder.encode(draw)


@lru_cache(maxsize=1024)
def decode_draw(raw: bytes) -> Draw:
    # The draw of a call is asked for again and again, most of all when it is new.
    return _draws.decode(raw)


class Asked(msgspec.Struct, eq=False):
    """A call where it stands in the present history; ``answered_at`` is the item with its ``result``.

    ``seen`` None: the call itself is not in the request, since the endpoint keeps it; ``item`` is -1 then.
    """

    item: int
    row: CallRow
    seen: SeenCall | None
    answered_at: int | None = None
    result: SeenResult | None = None


@dataclass(slots=True)
class Counts:
    """How many calls of which sort stand before the next one; those in ``under`` stand before these."""

    under: Counts | None = None
    _identical: Counter[tuple[str, str]] = field(default_factory=Counter)
    _families: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    faults: int = 0
    since_fault: int | None = None
    rule_hits: list[int] = field(default_factory=list)
    _permanents: dict[tuple[str, str], Draw] = field(default_factory=dict)

    def layer(self) -> Counts:
        """Counts that go on from here and leave these as they are."""
        return Counts(
            under=self,
            calls=self.calls,
            faults=self.faults,
            since_fault=self.since_fault,
            rule_hits=self.rule_hits,
        )

    def identical(self, tool: str, digest: str) -> int:
        """How many calls of ``tool`` have these arguments."""
        below = self.under.identical(tool, digest) if self.under is not None else 0
        return below + self._identical[tool, digest]

    def family(self, family: str) -> int:
        """How many calls are of this family."""
        below = self.under.family(family) if self.under is not None else 0
        return below + self._families[family]

    def permanent(self, tool: str, digest: str) -> Draw | None:
        """The permanent fault that a call inherits under identity ``ordinal``."""
        found = self._permanents.get((tool, digest))
        if found is None and self.under is not None:
            return self.under.permanent(tool, digest)
        return found

    def add(self, profile: Profile, call: Call, draw: Draw) -> None:
        """Counts one call in."""
        self._identical[call.tool, call.digest] += 1
        self._families[call.family] += 1
        self.calls += 1
        if draw.fired and draw.limited is None:
            self.faults += 1
            self.since_fault = 0
            if draw.persistence == "permanent" and profile.identity == "ordinal":
                self._permanents.setdefault((call.tool, call.digest), draw)
        elif self.since_fault is not None:
            self.since_fault += 1
        if draw.rules:
            hits = self.rule_hits or [0] * len(draw.rules)
            self.rule_hits = [n + fits for n, fits in zip(hits, draw.rules, strict=True)]

    def standing(self) -> Standing:
        return Standing(self.calls, self.faults, self.since_fault, tuple(self.rule_hits))


class Conversation:
    """The state of one conversation. Everything in here can be built again from memory.db."""

    def __init__(self, row: ConversationRow, profile: Profile) -> None:
        self.row = row
        self.id = row.conversation
        self.role = row.role
        self.profile = profile
        self.rows: list[CallRow] = []
        self.by_pair: dict[tuple[str, str, int], CallRow] = {}
        self.by_id: dict[str, list[CallRow]] = {}
        self.pending: list[CallRow] = []
        self.counts = Counts()
        self.tip = b""
        self.in_flight = 0
        self.wire = ""
        self.tools = b""
        self.kept: Tip | None = None
        self.printed: dict[CallRow, tuple[str | None, bool | None]] = {}
        self._last_settled = -1
        self._forget_history()

    def _forget_history(self) -> None:
        self.last: ParsedRequest | None = None
        self.chain: list[bytes] = []
        self.asked: dict[str, list[Asked]] = {}
        self.present: set[CallRow] = set()
        self._asked_ids: list[tuple[str, ...]] = []
        self._answers: list[tuple[Asked, ...]] = []
        self._edits: list[Edit] = []
        self._edits_upto: list[int] = []
        self._text_edits: list[TextEdit] = []
        self._carried: list[CallRow] = []
        self._carried_upto: list[int] = []

    @property
    def session(self) -> str | None:
        """The harness's own name for the session, without that of a subagent; None where it gives none."""
        return self.row.header.split("/", 1)[0] if self.row.header is not None else None

    # -- memory --

    def remember(self, row: CallRow) -> None:
        """Adds a call that was drawn.

        One that was relayed before under the same key and never answered is replaced: the response did not
        arrive, and the model was asked again. One that was answered stays, and gives up its key: the history
        that it stood in is gone.
        """
        key = (row.call_id, row.call_digest, row.nth)
        old = self.by_pair.get(key)
        if old is not None and not old.answered:
            row.position = old.position
            self.rows[row.position] = row
            self.by_id[row.call_id].remove(old)
            self.pending.remove(old)
        else:
            row.position = len(self.rows)
            self.rows.append(row)
        self.by_pair[key] = row
        self.by_id.setdefault(row.call_id, []).append(row)
        if not row.answered:
            self.pending.append(row)

    def settle(self, row: CallRow) -> None:
        """The call has an answer: from now on it stands before the others."""
        row.answered = True
        self.pending.remove(row)
        if row.position < self._last_settled:
            # Results can come in any order; what stands before a call is counted in the model's.
            self._recount()
        else:
            self._count(row)

    def _count(self, row: CallRow) -> None:
        self.counts.add(self.profile, call_of(row), decode_draw(row.draw))
        self._last_settled = row.position

    def _recount(self) -> None:
        self.counts = Counts()
        for row in self.rows:
            if row.answered:
                self._count(row)

    def restore(self, rows: list[CallRow]) -> None:
        """Takes up what a store remembers, in order."""
        for row in rows:
            self.remember(row)
        self._recount()

    # -- the present history --

    def rewind(self, items: int) -> None:
        """Forgets all that stands at ``items`` or later in the history."""
        if self.kept is not None:
            self.kept = None
            self.printed = {}
            self._forget_history()
            return
        for ids in self._asked_ids[items:]:
            for call_id in ids:
                self.present -= {asked.row for asked in self.asked[call_id] if asked.item >= items}
                self.asked[call_id] = [asked for asked in self.asked[call_id] if asked.item < items]
        for answers in self._answers[items:]:
            for asked in answers:
                asked.answered_at = asked.result = None
        self._text_edits = [found for found in self._text_edits if found.item < items]
        del self._asked_ids[items:], self._answers[items:], self.chain[items:]
        del self._edits[self._edits_upto[items - 1] if items else 0 :], self._edits_upto[items:]
        del self._carried[self._carried_upto[items - 1] if items else 0 :], self._carried_upto[items:]

    def go_on(self, kept: Tip) -> None:
        """The present history goes on from the answer to ``kept``: up to there it is the endpoint's, and what
        is in it is known from memory alone."""
        self._forget_history()
        self.kept = kept
        # The calls of that answer were drawn after its request had gone on.
        answer = (row for row in self.rows[kept.calls :] if row.depth == kept.depth)
        self.present = {row for row in answer if not row.answered}

    def note_printed(self, row: CallRow, text: str | None, is_error: bool | None) -> None:
        """Keeps what a tool truly printed and its error flag, where no later request says it again."""
        if self.kept is not None and row.payload is None:
            self.printed[row] = text, is_error

    def is_past(self, kept: Tip) -> bool:
        """Whether the history went on from the answer to ``kept`` already, and has more than it behind it."""
        return any(row.answered and row.depth > kept.depth for row in self.rows)

    def offered(self, tools: bytes) -> bytes:
        """The tools that the model has when a request brings ``tools``: those of an earlier one can be part
        of the history that the endpoint keeps."""
        if tools or self.kept is None:
            self.tools = tools
        return self.tools

    @property
    def before(self) -> int:
        """How many items stand before the request's own, an answer of the model counted as one."""
        return 0 if self.kept is None else self.kept.depth + 1

    def first_asked(self) -> int:
        """The position of the first call in the present history; where the next one goes when it has none."""
        for ids in self._asked_ids:
            if ids:
                return min(asked.row.position for call_id in ids for asked in self.asked[call_id])
        return len(self.rows)

    def nth(self, call_id: str, digest: str) -> int:
        """How many such pairs stand in the present history."""
        return sum(asked.row.call_digest == digest for asked in self.asked.get(call_id, ()))

    def ask(self, item: int, row: CallRow, seen: SeenCall) -> None:
        """The call stands in ``item`` of the present history."""
        self.asked.setdefault(seen.call_id, []).append(Asked(item, row, seen))
        self.present.add(row)

    def answer(self, result: SeenResult, item: int) -> tuple[Asked, bool] | None:
        """The call that a result in ``item`` belongs to, and whether this is its first result: the one whose
        place it names, else the first call of this id without one, else the last."""
        if result.answers is not None:
            found = self._at(result.answers)
        else:
            found = self.asked.get(result.call_id) or self._kept_calls(result.call_id)
        if not found:
            return None
        for asked in found:
            if asked.answered_at is None:
                asked.answered_at, asked.result = item, result
                return asked, True
        return found[-1], False

    def _kept_calls(self, call_id: str) -> list[Asked]:
        """The calls of this id that the model made and the request does not repeat: first those of the answer
        that it goes on from, then those without a result, the latest first."""
        depth = None if self.kept is None else self.kept.depth
        rows = self.by_id.get(call_id, ()) if call_id else ()
        ranked = sorted(rows, key=lambda row: (row.depth != depth, row.answered, -row.position))
        found = [Asked(-1, row, None) for row in ranked]
        if found:
            self.asked[call_id] = found
            self.present |= {asked.row for asked in found}
        return found

    def _at(self, place: Place) -> list[Asked]:
        """The call at a place of the present history."""
        ids = self._asked_ids[place.item]
        call_id = ids[place.call]
        alike = [asked for asked in self.asked[call_id] if asked.item == place.item]
        return [alike[ids[: place.call].count(call_id)]]

    def open_item(self, ids: tuple[str, ...], answers: tuple[Asked, ...]) -> None:
        """One more item of the present history: the ids of its calls, and the calls that it answers first."""
        self._asked_ids.append(ids)
        self._answers.append(answers)

    def close_item(self, edits: list[Edit], carried: list[CallRow]) -> None:
        """Ends the next of the opened items. ``edits`` count from the first byte of the history."""
        self._edits += edits
        self._edits_upto.append(len(self._edits))
        self._carried += carried
        self._carried_upto.append(len(self._carried))

    def retell(self, edits: Sequence[TextEdit], base: int) -> None:
        """Takes up edits of texts in the present history, whose offsets are absolute."""
        self._text_edits += (
            TextEdit(item, Edit(edit.start - base, edit.end - base, edit.new)) for item, edit in edits
        )

    @property
    def edits(self) -> list[Edit]:
        """All edits of the present history; they count from its first byte."""
        return [*self._edits, *(found.edit for found in self._text_edits)]

    @property
    def carried(self) -> list[CallRow]:
        """The calls whose payload the present history carries."""
        return self._carried

    @property
    def prepared(self) -> list[CallRow]:
        """The calls whose payload the endpoint keeps since the request before, which asked for no answer."""
        if self.kept is None:
            return []
        return [
            row
            for row in self.rows[: self.kept.calls]
            if row.answered
            and row.payload is not None
            and not row.delivered
            and row.skipped != "superseded"
            and row not in self._carried
        ]

    @property
    def cached_bytes(self) -> int:
        return len(self.last.body) if self.last is not None else 0


def call_of(row: CallRow) -> Call:
    """The call as the schedule counts it."""
    family: Family = row.family  # type: ignore[assignment]
    return Call(row.tool, family, row.call_digest, b"", row.occurrence, row.ordinal)
