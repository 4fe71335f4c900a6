"""The walk over the new items of a history: which call is which, decide what is fresh, replay what is not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from ledger.memory import CallRow
from ledger.records import Decision
from proxy.conversation import Asked, Conversation, Counts, call_of, decode_draw
from proxy.deciding import Earlier, NewCall, Result, decide, digest_of, draw_call, record_of
from proxy.protocols.wire import Edit, Item, ParsedRequest, SeenCall, SeenResult, WireFormat
from proxy.rewriting import own_output, plan_text
from proxy.runs import RunSettings
from scheduler.dialect import Dialect
from scheduler.faults import KINDS


@dataclass(slots=True)
class Findings:
    """What a walk came to: records for the log, rows for the memory, and how long to hold the request."""

    decisions: list[Decision] = field(default_factory=list)
    added: list[CallRow] = field(default_factory=list)
    changed: list[CallRow] = field(default_factory=list)
    wait_s: float = 0.0


class Walk:
    """One request of one conversation."""

    def __init__(
        self,
        settings: RunSettings,
        wire: WireFormat,
        dialect: Dialect,
        conversation: Conversation,
        request: ParsedRequest,
        *,
        log_texts: bool,
    ) -> None:
        self._settings = settings
        self._wire = wire
        self._dialect = dialect
        self._conversation = conversation
        self._request = request
        self._log_texts = log_texts
        self._found = Findings()
        self._unrelayed: set[int] = set()
        self._edits: list[Edit] = []
        self._carried: list[CallRow] = []
        self._settled: list[tuple[CallRow, Decision]] = []
        roles = [item.role for item in request.items[request.shared :]]
        new_assistants = [i for i, role in enumerate(roles) if role == "assistant"]
        self._last_assistant = request.shared + new_assistants[-1] if new_assistants else -1

    def run(self) -> Findings:
        """Walks every item that is not shared with the last request."""
        request = self._request
        for index in range(request.shared, len(request.items)):
            self._item(index, request.items[index])
        self._orphans()
        return self._found

    def _item(self, index: int, item: Item) -> None:
        self._edits, self._carried, self._settled = [], [], []
        if item.calls:
            self._calls(index, item.calls)
        answers: list[Asked] = []
        for result in item.results:
            asked = self._conversation.answer(result.call_id, index)
            if asked is not None:
                answers.append(asked)
                self._result(index, asked.row, result)
        # Results come in whatever order the tools finished; calls are counted in the model's order.
        for row, record in sorted(self._settled, key=lambda entry: entry[0].position):
            self._conversation.settle(row)
            self._found.decisions.append(record)
        ids = tuple(call.call_id for call in item.calls)
        self._conversation.close_item(ids, tuple(answers), self._edits, self._carried)

    def _calls(self, index: int, calls: Sequence[SeenCall]) -> None:
        """Finds each call in the memory; one that was never relayed is drawn here."""
        conversation = self._conversation
        counts: Counts | None = None
        for i, seen in enumerate(calls):
            new = NewCall(seen.call_id, seen.tool, self._wire.call_arguments(self._request, seen))
            _, digest = digest_of(self._settings, self._dialect, conversation, new)
            nth = conversation.nth(seen.call_id, digest)
            row = conversation.by_pair.get((seen.call_id, digest, nth)) or self._rewritten_by_harness(seen)
            if row is None:
                counts = counts or self._counts_before(calls[:i])
                row = draw_call(self._settings, self._dialect, conversation, new, counts, nth, depth=index)
                conversation.remember(row)
                self._unrelayed.add(id(row))
                self._found.added.append(row)
            elif counts is not None and not row.answered:
                counts.add(self._settings.profile, call_of(row), decode_draw(row.draw))
            conversation.ask(index, row)

    def _rewritten_by_harness(self, seen: SeenCall) -> CallRow | None:
        """A relayed call with this id whose arguments the harness wrote in another way."""
        present = {id(asked.row) for asked in self._conversation.asked.get(seen.call_id, ())}
        for row in self._conversation.by_id.get(seen.call_id, ()) if seen.call_id else ():
            if row.tool == seen.tool and id(row) not in present:
                return row
        return None

    def _counts_before(self, earlier: Sequence[SeenCall]) -> Counts:
        """The counts at a call: what was answered, and what stands before it in its own response."""
        counts = self._conversation.counts.copy()
        for seen in earlier:
            row = self._conversation.asked[seen.call_id][-1].row
            if not row.answered:
                counts.add(self._settings.profile, call_of(row), decode_draw(row.draw))
        return counts

    def _result(self, index: int, row: CallRow, result: SeenResult) -> None:
        if row.answered or any(row is settled for settled, _ in self._settled):
            if row.payload is not None:
                self._replay(row, result)
            return
        began = time.perf_counter_ns()
        parts = self._wire.result_parts(self._request, result)
        text = own_output(self._dialect, parts).text
        if id(row) in self._unrelayed and index <= self._last_assistant:
            # The model answered it already, through some other way than this proxy.
            row.skipped = "already_answered"
            drawn = decode_draw(row.draw)
            record = record_of(self._settings, self._conversation, row, drawn, None, text)
        else:
            row.skipped = None  # it may have been given up as an orphan
            seen = self._seen_call(row)
            verdict = decide(
                self._settings,
                self._dialect,
                self._conversation,
                row,
                seen,
                Result(text, result.is_error),
                lambda: self._earlier(row),
                log_texts=self._log_texts,
            )
            record = verdict.record
            self._found.wait_s += verdict.wait_s
        if id(row) not in self._unrelayed:
            self._found.changed.append(row)
        if row.payload is not None:
            self._replay(row, result)
        spent_us = (time.perf_counter_ns() - began) / 1e3
        self._settled.append(
            (row, msgspec.structs.replace(record, latency_us=round(row.draw_us + spent_us, 1)))
        )

    def _seen_call(self, row: CallRow) -> bytes:
        """The arguments of ``row`` as the present history has them."""
        for asked in reversed(self._conversation.asked[row.call_id]):
            if asked.row is row:
                for seen in self._request.items[asked.item].calls:
                    if seen.call_id == row.call_id:
                        return self._wire.call_arguments(self._request, seen)
        return b"{}"

    def _replay(self, row: CallRow, result: SeenResult) -> None:
        """Puts the remembered payload in the result's place, unless the harness took the result back."""
        parts = self._wire.result_parts(self._request, result)
        output = own_output(self._dialect, parts)
        if row.skipped == "superseded" or (
            output.text is not None
            and output.text != row.original
            and self._dialect.is_superseding(output.text)
        ):
            self._supersede(row, output.text)
            return
        drawn = decode_draw(row.draw)
        kind = KINDS.get(drawn.kind) if drawn.kind is not None and row.skipped is None else None
        plan = plan_text(output, parts, row.payload or "", keep_images=kind is None or kind.keeps_images)
        base = self._request.base
        self._edits += (
            Edit(edit.start - base, edit.end - base, edit.new)
            for edit in self._wire.edit_result(self._request, result, parts, plan, row.payload_error)
        )
        self._carried.append(row)

    def _supersede(self, row: CallRow, text: str | None) -> None:
        if row.skipped != "superseded":
            row.skipped = "superseded"
            self._found.changed.append(row)
            drawn = decode_draw(row.draw)
            self._found.decisions.append(
                record_of(self._settings, self._conversation, row, drawn, None, text)
            )

    def _earlier(self, row: CallRow) -> list[Earlier]:
        """The answered calls before ``row`` with its tool and arguments, latest first."""
        found: list[tuple[int, Earlier]] = []
        for asked_calls in self._conversation.asked.values():
            for asked in asked_calls:
                other = asked.row
                if (
                    other is not row
                    and other.answered
                    and asked.answered_at is not None
                    and (other.tool, other.call_digest) == (row.tool, row.call_digest)
                ):
                    found.append((other.position, Earlier(other, self._true_text(asked))))
        return [entry for _, entry in sorted(found, key=lambda pair: -pair[0])]

    def _true_text(self, asked: Asked) -> str | None:
        row = asked.row
        if row.payload is not None:
            return row.payload if row.skipped == "dereferenced" else row.original
        for result in self._request.items[asked.answered_at or 0].results:
            if result.call_id == row.call_id:
                return own_output(self._dialect, self._wire.result_parts(self._request, result)).text
        return None

    def _orphans(self) -> None:
        """Calls that the conversation went past without a result."""
        for row in list(self._conversation.pending):
            gone_past = len(self._request.items) > row.depth + 1
            asked = any(entry.row is row for entry in self._conversation.asked.get(row.call_id, ()))
            if gone_past and not asked and row.skipped != "orphaned":
                self._found.decisions.append(orphan(self._settings, self._conversation, row))
                self._found.changed.append(row)


def orphan(settings: RunSettings, conversation: Conversation, row: CallRow) -> Decision:
    """Marks a call that nobody answered."""
    row.skipped = "orphaned"
    return record_of(settings, conversation, row, decode_draw(row.draw), None, None)
