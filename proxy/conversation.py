"""One message history and what is remembered of it: which call is which, what was decided, what to replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from ledger.memory import CallRow, ConversationRow
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


@dataclass(slots=True)
class Asked:
    """A call where it stands in the present history; ``answered_at`` is the item with its ``result``."""

    item: int
    row: CallRow
    seen: SeenCall
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
            found = self.asked.get(result.call_id, [])
        if not found:
            return None
        for asked in found:
            if asked.answered_at is None:
                asked.answered_at, asked.result = item, result
                return asked, True
        return found[-1], False

    def _at(self, place: Place) -> list[Asked]:
        """The call at a place of the present history."""
        ids = self._asked_ids[place.item]
        call_id = ids[place.call]
        alike = [asked for asked in self.asked[call_id] if asked.item == place.item]
        return [alike[ids[: place.call].count(call_id)]]

    def close_item(
        self, ids: tuple[str, ...], answers: tuple[Asked, ...], edits: list[Edit], carried: list[CallRow]
    ) -> None:
        """Ends one item of the walk. ``edits`` count from the first byte of the history."""
        self._asked_ids.append(ids)
        self._answers.append(answers)
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
    def cached_bytes(self) -> int:
        return len(self.last.body) if self.last is not None else 0


def call_of(row: CallRow) -> Call:
    """The call as the schedule counts it."""
    family: Family = row.family  # type: ignore[assignment]
    return Call(row.tool, family, row.call_digest, b"", row.occurrence, row.ordinal)
