"""The walk over the new items of a history: which call is which, decide what is fresh, replay what is not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from ledger.memory import CallRow
from ledger.records import Decision
from proxy.conversation import Asked, Conversation, Counts, call_of, decode_draw
from proxy.deciding import Earlier, Identified, NewCall, Result, decide, draw_call, identify, record_of
from proxy.findings import Findings, lost_arguments, no_call
from proxy.flattened import mark_of
from proxy.observer import Answered
from proxy.protocols.wire import (
    REMOVE,
    Edit,
    Flag,
    Item,
    ParsedRequest,
    Part,
    SeenCall,
    SeenResult,
    WireFormat,
)
from proxy.remembered import alike_before, of_its_arguments, only_one_of_its_id
from proxy.rewriting import own_output, plan_text
from proxy.runs import RunSettings
from proxy.withholding import (
    as_named,
    by_harmless_arguments,
    by_wire_name,
    is_harmless,
    let_run,
    may_withhold,
    retold,
    withhold,
)
from scheduler.dialect import Dialect
from scheduler.faults import KINDS
from scheduler.wire_names import split_wire_name


class _Visit(NamedTuple):
    """One item on the walk: what is done to it, and whose payload it carries."""

    at: int
    item: Item
    edits: list[Edit]
    carried: list[CallRow]


class _Found(NamedTuple):
    """A result and its call; ``is_first``: it is the first of this call in the present history."""

    asked: Asked
    is_first: bool
    result: SeenResult


class Walk:
    """One ``request`` of one conversation. ``arguments_of`` gives a call's arguments as the model wrote
    them."""

    def __init__(
        self,
        settings: RunSettings,
        wire: WireFormat,
        dialect: Dialect,
        conversation: Conversation,
        request: ParsedRequest,
        *,
        log_texts: bool,
        arguments_of: Callable[[CallRow], bytes],
    ) -> None:
        self._settings = settings
        self._wire = wire
        self._dialect = dialect
        self._conversation = conversation
        self.request = request
        self._log_texts = log_texts
        self._found = Findings()
        self._unrelayed: set[CallRow] = set()
        self._edits: list[Edit] = []
        self._carried: list[CallRow] = []
        self._of_one_answer: list[CallRow] = []
        self._uncalled: list[str] = []
        self._arguments_of = arguments_of
        roles = [item.role for item in request.items[request.shared :]]
        new_assistants = [i for i, role in enumerate(roles) if role == "assistant"]
        self._last_assistant = request.shared + new_assistants[-1] if new_assistants else -1

    def run(self, *, orphans: bool) -> Findings:
        """Walks every item that is not shared with the last request; ``orphans`` gives up the calls that it
        went past."""
        for visits in self._between_answers():
            results = [(visit, found) for visit in visits for found in self._seen(visit)]
            # Results come in whatever order the tools finished; they are decided in the model's order.
            for visit, found in sorted(results, key=lambda entry: entry[1].asked.row.position):
                self._edits, self._carried = visit.edits, visit.carried
                self._result(visit.at, found)
            for visit in visits:
                self._conversation.close_item(visit.edits, visit.carried)
        if orphans:
            self._orphans()
            if self._uncalled:
                self._found.doubts.append(no_call(self._uncalled))
        return self._found

    def _between_answers(self) -> Iterator[list[_Visit]]:
        """The new items, those together that stand between two answers of the model."""
        visits: list[_Visit] = []
        items = self.request.items
        for index in range(self.request.shared, len(items)):
            if items[index].role == "assistant" and visits:
                yield visits
                visits = []
            visits.append(_Visit(index, items[index], [], []))
        yield visits

    def _seen(self, visit: _Visit) -> list[_Found]:
        """Takes one item into the present history; gives back the results in it."""
        index, item = visit.at, visit.item
        self._edits, self._carried = visit.edits, visit.carried
        if item.role != "assistant":
            self._of_one_answer = []
        if item.calls:
            self._calls(index, item.calls)
        found: list[_Found] = []
        for result in item.results:
            answered = self._conversation.answer(result, index)
            if answered is not None:
                found.append(_Found(*answered, result))
            else:
                self._uncalled.append(result.call_id)
        ids = tuple(call.call_id for call in item.calls)
        first = tuple(one.asked for one in found if one.is_first)
        self._conversation.open_item(ids, first)
        return found

    def _calls(self, index: int, calls: Sequence[SeenCall]) -> None:
        """Finds each call in the memory; one that was never relayed is drawn here."""
        conversation = self._conversation
        counts: Counts | None = None
        # Where every call is an item of its own, those before it can be of the same answer.
        before = self._of_one_answer
        for seen in calls:
            row = self._withheld(index, seen, before)
            if row is not None:
                conversation.ask(index, row, seen)
                before.append(row)
                continue
            row = only_one_of_its_id(conversation, seen)
            row = row or of_its_arguments(conversation, seen, self._identify(seen)[1].digest)
            if row is not None and not row.answered:
                let_run(row)
            if row is None:
                self._doubt(seen)
                counts = counts or self._counts_before(before)
                row = self._draw(seen, counts, index)
            elif counts is not None and not row.answered:
                counts.add(self._settings.profile, call_of(row), decode_draw(row.draw))
            conversation.ask(index, row, seen)
            before.append(row)

    def _withheld(self, index: int, seen: SeenCall, before: Sequence[CallRow]) -> CallRow | None:
        """The call that was kept from running and is here under its wire name, or under the name that the
        harness gives a call of a tool that it does not have. It gets its own name back, and its arguments
        where the harness lost them."""
        lost = seen.tool in self._dialect.unknown_tool_names
        named = split_wire_name(seen.tool)
        if not lost and named is None:
            return self._swapped(index, seen)
        row = by_wire_name(self._conversation, seen, self._dialect.unknown_tool_names)
        if row is None:
            if named is None:
                return None
            row = self._as_named(index, seen, before, *named)
        self._give_back(seen, row, self._arguments_of(row) if lost else None)
        return row

    def _swapped(self, index: int, seen: SeenCall) -> CallRow | None:
        """The call that went on with harmless arguments, which gets its own back."""
        if self._dialect.withhold != "swap":
            return None
        row = by_harmless_arguments(self._conversation, seen, index, lambda: self._is_harmless(seen))
        if row is not None:
            self._give_back(seen, row, self._arguments_of(row))
        return row

    def _is_harmless(self, seen: SeenCall) -> bool:
        arguments = self._wire.call_arguments(self.request, seen)
        return is_harmless(self._dialect, seen.tool, arguments)

    def _doubt(self, seen: SeenCall) -> None:
        """A call that has harmless arguments and that nothing remembers was withheld, it seems."""
        profile, gaps = self._settings.profile, self._settings.gaps
        if self._dialect.withhold != "swap" or not may_withhold(profile, gaps, self._dialect, seen.tool):
            return
        if self._is_harmless(seen):
            self._found.doubts.append(lost_arguments(seen.tool))

    def _give_back(self, seen: SeenCall, row: CallRow, arguments: bytes | None) -> None:
        """Gives a withheld call its own name, and its ``arguments`` where the harness has not got them."""
        self._edit(self._wire.edit_call(self.request, seen, row.tool, arguments))

    def _edit(self, edits: Sequence[Edit]) -> None:
        """Takes up edits of the present item; they count from the first byte of the history."""
        base = self.request.base
        self._edits += (Edit(edit.start - base, edit.end - base, edit.new) for edit in edits)

    def _as_named(
        self, index: int, seen: SeenCall, before: Sequence[CallRow], tool: str, kind: str
    ) -> CallRow:
        """A call that was kept from running and that nothing remembers: its name says what was decided."""
        row = self._draw(seen._replace(tool=tool), self._counts_before(before), index)
        self._unrelayed.remove(row)
        as_named(row, kind)
        arguments = self._wire.call_arguments(self.request, seen)
        self._found.decisions.append(
            withhold(
                self._settings,
                self._dialect,
                self._conversation,
                row,
                arguments,
                seen.tool,
                log_texts=self._log_texts,
            )
        )
        return row

    def _identify(self, seen: SeenCall) -> tuple[NewCall, Identified]:
        new = NewCall(seen.call_id, seen.tool, self._wire.call_arguments(self.request, seen))
        return new, identify(self._settings, self._dialect, self._conversation, new)

    def _draw(self, seen: SeenCall, counts: Counts, index: int) -> CallRow:
        """Draws a call that was never relayed."""
        began = time.perf_counter_ns()
        conversation = self._conversation
        new, identified = self._identify(seen)
        nth = conversation.nth(seen.call_id, identified.digest)
        row = draw_call(
            self._settings,
            self._dialect,
            conversation,
            new,
            identified,
            counts,
            nth,
            conversation.before + index,
            began,
        )
        conversation.remember(row)
        self._unrelayed.add(row)
        self._found.added.append(row)
        return row

    def _counts_before(self, earlier: Sequence[CallRow]) -> Counts:
        """The counts at a call: what was answered, and what stands before it in its own response."""
        counts = self._conversation.counts.layer()
        for row in earlier:
            if not row.answered:
                counts.add(self._settings.profile, call_of(row), decode_draw(row.draw))
        return counts

    def arguments_of(self, asked: Asked) -> bytes:
        """The arguments of a call of the present history, as the harness sent them back, if it did."""
        if asked.seen is None:
            return self._arguments_of(asked.row)
        return self._wire.call_arguments(self.request, asked.seen)

    def _result(self, index: int, found: _Found) -> None:
        asked, is_first, result = found
        row = asked.row
        if row.answered and row.payload is None:
            return
        began = time.perf_counter_ns()
        parts = self._wire.result_parts(self.request, result)
        text = own_output(self._dialect, parts).text
        if row.answered:
            # What comes under the id of a call that has its result is that result once more, or is none:
            # a note of the harness stays what it is.
            if is_first or text == row.original or self._is_superseding(text):
                self._replay(row, result, parts)
            return
        if row.wire_name is not None:
            self._never_ran(row, text)
            self._replay(row, result, parts)
            return
        if row in self._unrelayed and index <= self._last_assistant:
            # The model answered it already, through some other way than this proxy.
            row.skipped = "already_answered"
            drawn = decode_draw(row.draw)
            record = record_of(self._settings, self._conversation, row, drawn, None, text)
        else:
            record = self._fresh(row, self.arguments_of(asked), text, result.is_error)
        self._conversation.note_printed(row, text, result.is_error)
        if row.payload is not None:
            self._replay(row, result, parts)
        self._settle(row, text, record, began)

    def told(self, rows: Sequence[CallRow], texts: Sequence[str]) -> Findings:
        """Decides on the results of ``rows``, which the harness retells before it has sent them: their texts
        are all that is known of them."""
        for row, text in zip(rows, texts, strict=True):
            began = time.perf_counter_ns()
            if row.wire_name is not None:
                self._never_ran(row, text)
            else:
                self._settle(row, text, self._fresh(row, self._arguments_of(row), text, None), began)
        return self._found

    def _fresh(self, row: CallRow, arguments: bytes, text: str | None, is_error: bool | None) -> Decision:
        """Decides on a result that is here for the first time."""
        row.skipped = None  # it may have been given up as an orphan
        self._found.answered.append(Answered(row, arguments, text, is_error))
        verdict = decide(
            self._settings,
            self._dialect,
            self._conversation,
            row,
            arguments,
            Result(text, is_error),
            lambda: self._earlier(row),
            log_texts=self._log_texts,
        )
        self._found.wait_s += verdict.wait_s
        return verdict.record

    def _settle(self, row: CallRow, text: str | None, record: Decision, began_ns: int) -> None:
        """The call is answered, and what was decided goes to the log."""
        self._mark(row, text)
        if row not in self._unrelayed:
            self._found.changed.append(row)
        self._conversation.settle(row)
        spent_us = (time.perf_counter_ns() - began_ns) / 1e3
        self._found.decisions.append(
            msgspec.structs.replace(record, latency_us=round(row.draw_us + spent_us, 1))
        )

    def _never_ran(self, row: CallRow, text: str | None) -> None:
        """The harness has no such tool, or did nothing; the model is to be told what was decided."""
        given_up = row.skipped == "orphaned"
        row.original, row.skipped = text or "", None
        if row not in self._found.added:
            self._found.changed.append(row)
        if self._is_superseding(text):
            self._superseded(row, text)
        else:
            self._mark(row, text)
            if given_up:
                self._found.decisions.append(
                    retold(self._settings, self._dialect, self._conversation, row, log_texts=self._log_texts)
                )
        self._conversation.settle(row)

    def _mark(self, row: CallRow, text: str | None) -> None:
        """By what its result is known again when the harness retells it inside a text."""
        flattened = self._dialect.identify.flattened
        if flattened is not None and text is not None:
            shown = row.payload if row.skipped == "dereferenced" else text
            row.mark = mark_of(flattened, shown or "")

    def _replay(self, row: CallRow, result: SeenResult, parts: Sequence[Part]) -> None:
        """Puts the remembered payload in the result's place, unless the harness took the result back."""
        output = own_output(self._dialect, parts)
        if row.skipped == "superseded" or (output.text != row.original and self._is_superseding(output.text)):
            self._supersede(row, result, output.text)
            return
        drawn = decode_draw(row.draw)
        kind = KINDS.get(drawn.kind) if drawn.kind is not None and row.skipped is None else None
        plan = plan_text(output, parts, row.payload or "", keep_images=kind is None or kind.keeps_images)
        # What the harness says of a tool that it does not have is an error, whatever the call is told to be.
        withheld = row.wire_name is not None
        flag: Flag = REMOVE if withheld and row.payload_error is None else row.payload_error
        edits = self._wire.edit_result(self.request, result, parts, plan, flag)
        if withheld:
            edits += self._wire.edit_result_tool(self.request, result, row.tool)
        self._edit(edits)
        self._carried.append(row)

    def _is_superseding(self, text: str | None) -> bool:
        """Whether the harness took a result back in its own words."""
        return text is not None and self._dialect.is_superseding(text)

    def _supersede(self, row: CallRow, result: SeenResult, text: str | None) -> None:
        """Leaves a result as the harness has it now; of a withheld call, with the call's own name."""
        if row.wire_name is not None:
            self._edit(self._wire.edit_result_tool(self.request, result, row.tool))
        if row.skipped != "superseded":
            self._superseded(row, text)

    def _superseded(self, row: CallRow, text: str | None) -> None:
        """Notes that the harness put its own words in a result's place."""
        row.skipped = "superseded"
        self._found.changed.append(row)
        self._found.decisions.append(
            record_of(self._settings, self._conversation, row, decode_draw(row.draw), None, text)
        )

    def _earlier(self, row: CallRow) -> list[Earlier]:
        """The answered calls before ``row`` of its tool with its arguments or its target, latest first."""
        return [
            Earlier(other, *self._true_result(other), other.call_digest == row.call_digest)
            for other in alike_before(self._conversation, row)
        ]

    def _true_result(self, row: CallRow) -> tuple[str | None, bool | None]:
        """(text, error flag) of what the tool truly printed; None where that is not known any more."""
        if row.payload is not None:
            # What had failed is never replaced.
            return (row.payload if row.skipped == "dereferenced" else row.original), None
        if row in self._conversation.printed:
            return self._conversation.printed[row]
        for asked in self._conversation.asked.get(row.call_id, ()):
            if asked.row is row and asked.result is not None:
                parts = self._wire.result_parts(self.request, asked.result)
                return own_output(self._dialect, parts).text, asked.result.is_error
        return None, None

    def _orphans(self) -> None:
        """Calls that the conversation went past without a result."""
        for row in list(self._conversation.pending):
            gone_past = self._conversation.before + len(self.request.items) > row.depth + 1
            if gone_past and row not in self._conversation.present and row.skipped != "orphaned":
                self._found.decisions.append(orphan(self._settings, self._conversation, row))
                self._found.changed.append(row)


def orphan(settings: RunSettings, conversation: Conversation, row: CallRow) -> Decision:
    """Marks a call that nobody answered."""
    row.skipped = "orphaned"
    return record_of(settings, conversation, row, decode_draw(row.draw), None, None)
