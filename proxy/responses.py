"""One response on its way through: every call that the model asks for is drawn and remembered before the
harness can run it, and one that is not to run goes on under a name that no tool has, or with arguments that
do nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from ledger.claims import claim_of
from ledger.decisions import DecisionLog, LedgerError
from ledger.memory import CallRow, Memory, Tip
from ledger.records import AnyRecord
from ledger.runs import Claim
from proxy.conversation import Conversation, Counts, call_of, decode_draw
from proxy.deciding import NewCall, draw_call, identify
from proxy.encoding import CodingError, coding_of, stream_decoder
from proxy.exchange import Exchange
from proxy.holding import Holder
from proxy.observer import Observer
from proxy.options import CrashedOnPurpose, InjectorOptions
from proxy.protocols.last_words import last_words
from proxy.protocols.wire import CallDone, Finished, Frame, UsageSeen, WireError, WireFormat
from proxy.quota import ERROR_BYTES_KEPT, is_quota_error, missing_usage
from proxy.recording import Recorder
from proxy.runs import Conversations
from proxy.withholding import harmless_text, is_to_withhold, may_withhold, withhold
from scheduler.apply import lacks_target
from scheduler.wire_names import wire_name


class Responses:
    """The injector's half that reads answers. Every public method is an outer edge, as the injector's are."""

    def __init__(
        self,
        log: DecisionLog,
        memory: Memory,
        conversations: Conversations,
        recorder: Recorder,
        observer: Observer,
        options: InjectorOptions,
    ) -> None:
        self._log = log
        self._memory = memory
        self._conversations = conversations
        self._recorder = recorder
        self._observer = observer
        self._options = options
        self._tools: dict[tuple[str, bytes], frozenset[str]] = {}

    def head(self, exchange: Exchange, status: int, headers: Mapping[str, str]) -> None:
        """The response begins. ``headers`` have lower-case names."""
        if exchange.refusal is not None:
            return  # our own answer
        exchange.status = status
        if status >= 400:
            exchange.error_headers = headers
        is_read = exchange.generates or exchange.message is not None
        if exchange.wire is None or not is_read or exchange.broken or not 200 <= status < 300:
            return
        try:
            exchange.decoder = stream_decoder(coding_of(headers.get("content-encoding")))
        except CodingError as error:
            self._failed(exchange, "response", str(error))
            return
        socket = exchange.wire.socket if exchange.message is not None else None
        exchange.content_type = headers.get("content-type", "")
        exchange.reader = exchange.wire.reader(exchange.content_type) if socket is None else socket.reader()
        if exchange.conversation is not None and self._is_to_hold(exchange):
            exchange.holder = Holder(partial(self._may_withhold, exchange))

    def _is_to_hold(self, exchange: Exchange) -> bool:
        """Whether a call of any tool on offer could be kept from running."""
        offered = self._offered(exchange.wire, exchange.tools) if exchange.wire is not None else ()
        return any(self._may_withhold(exchange, tool) for tool in offered)

    def _offered(self, wire: WireFormat, tools: bytes) -> frozenset[str]:
        """The names of the tools on offer. They are the same in every turn, and there is much to read."""
        found = self._tools.get((wire.name, tools))
        if found is None:
            if len(self._tools) >= 32:
                self._tools.clear()
            found = self._tools[wire.name, tools] = wire.offered(tools)
        return found

    def _may_withhold(self, exchange: Exchange, tool: str) -> bool:
        dialect, run = exchange.dialect, exchange.run
        if dialect is None:
            return False
        key = (dialect.name, tool)
        if key not in run.withholdable:
            run.withholdable[key] = may_withhold(run.settings.profile, run.settings.gaps, dialect, tool)
        return run.withholdable[key]

    def chunk(self, exchange: Exchange, chunk: bytes) -> bytes:
        """Some bytes of the response, none at its end; gives back what may go on to the harness."""
        return b"".join(self.pieces(exchange, chunk))

    def pieces(self, exchange: Exchange, chunk: bytes) -> Sequence[bytes]:
        """As ``chunk``, one piece for each that came: of a message, the messages that may go on."""
        if exchange.status is not None and exchange.status >= 400:
            exchange.error_body = (exchange.error_body + chunk)[:ERROR_BYTES_KEPT]
        if exchange.holder is not None:
            return self._hold_chunk(exchange, exchange.holder, chunk)
        if exchange.reader is None or exchange.decoder is None or not chunk:
            return (chunk,)
        began = time.perf_counter_ns()
        try:
            if self._options.crash_at == "response":
                raise CrashedOnPurpose("the injector was made to crash on a response")
            for frame in exchange.reader.feed(exchange.decoder(chunk)):
                self._frame(exchange, frame)
        except (WireError, CodingError) as error:
            self._failed(exchange, "response", str(error))
        except Exception as error:  # noqa: BLE001 - the outer edge: recorded, never silent
            self._failed(exchange, "injector", f"{type(error).__name__}: {error}")
        exchange.spent_ns += time.perf_counter_ns() - began
        return (chunk,)

    def _hold_chunk(self, exchange: Exchange, holder: Holder, chunk: bytes) -> list[bytes]:
        """As ``pieces`` where calls may have to be held; what goes on is in no coding."""
        began = time.perf_counter_ns()
        released: list[bytes] = []
        try:
            plain = exchange.decoder(chunk) if exchange.decoder is not None and chunk else b""
            exchange.unframed += plain
            if exchange.reader is not None:
                if self._options.crash_at == "response":
                    raise CrashedOnPurpose("the injector was made to crash on a response")
                frames = exchange.reader.feed(plain) if chunk else exchange.reader.close()
                for frame in frames:
                    self._frame(exchange, frame)
                    released += holder.take(frame)
                    del exchange.unframed[: len(frame.raw)]
        except (WireError, CodingError) as error:
            self._failed(exchange, "response", str(error))
        except Exception as error:  # noqa: BLE001 - the outer edge: recorded, never silent
            self._failed(exchange, "injector", f"{type(error).__name__}: {error}")
        if exchange.reader is None or not chunk:
            # Nothing is decided any more: what was held goes on as it came.
            exchange.reader = None
            released += (*holder.release(), bytes(exchange.unframed))
            exchange.unframed.clear()
        exchange.spent_ns += time.perf_counter_ns() - began
        return [piece for piece in released if piece]

    def unreadable(self, exchange: Exchange, reason: str) -> Sequence[bytes]:
        """The answer cannot be read any further; gives back what was held of it, as it came."""
        self._failed(exchange, "response", reason)
        return exchange.holder.release() if exchange.holder is not None else ()

    def end(self, exchange: Exchange) -> None:
        """The response is whole, or the connection is gone: writes what came of the request, once."""
        if exchange.done:
            return
        exchange.done = True
        exchange.run.open_requests -= 1
        began = time.perf_counter_ns()
        try:
            if exchange.reader is not None:
                for frame in exchange.reader.close():
                    self._frame(exchange, frame)
            self._judge(exchange)
        except WireError as error:
            self._failed(exchange, "response", str(error))
        except Exception as error:  # noqa: BLE001 - the outer edge: recorded, never silent
            self._failed(exchange, "injector", f"{type(error).__name__}: {error}")
        exchange.reader = None
        if exchange.pinned is not None:
            exchange.pinned.in_flight -= 1
        if exchange.run.started:
            self._close(exchange, began)

    def _frame(self, exchange: Exchange, frame: Frame) -> None:
        calls: list[CallDone] = []
        for event in frame.events:
            exchange.answered = exchange.generates
            match event:
                case CallDone():
                    calls.append(event)
                case UsageSeen(usage):
                    exchange.usage = usage
                case Finished(asked, model, answer_id):
                    exchange.asked_for_tools, exchange.model = asked, model
                    self._remember_answer(exchange, answer_id)
        if calls:
            self._remember(exchange, frame, calls)
        if exchange.generates and exchange.conversation is not None and _could_be_last(exchange):
            exchange.heard.append(frame.raw)
        else:
            exchange.heard.clear()

    def _remember_answer(self, exchange: Exchange, answer_id: str | None) -> None:
        """Remembers what a later request can go on from, before the harness knows that it can."""
        if answer_id is None or exchange.depth is None:
            return
        with self._memory.transaction():
            self._memory.add_answer(
                exchange.run.run_id,
                answer_id,
                Tip(exchange.conversation or "", exchange.depth, exchange.calls, 0),
            )

    def _remember(self, exchange: Exchange, frame: Frame, calls: list[CallDone]) -> None:
        """Draws the calls of a response and remembers them before the harness can run them. One that is not
        to run is decided here, and goes on under a name that no tool has or with harmless arguments."""
        if exchange.conversation is None or exchange.dialect is None:
            raise WireError("the model asked for a tool in answer to a request that offered none")
        run, dialect = exchange.run, exchange.dialect
        conversation = self._conversations.get(run, exchange.conversation)
        depth = exchange.depth or 0
        counts = self._counts(conversation, exchange)
        rows: list[CallRow] = []
        decisions: list[AnyRecord] = []
        withheld: list[tuple[str, CallRow]] = []
        for call in calls:
            began = time.perf_counter_ns()
            new = NewCall(call.call_id, call.tool, call.arguments)
            identified = identify(run.settings, dialect, conversation, new)
            nth = _nth(conversation, exchange, call.call_id, identified.digest)
            row = draw_call(run.settings, dialect, conversation, new, identified, counts, nth, depth, began)
            if self._can_withhold(exchange, frame, call, row):
                decisions.append(self._withhold(exchange, conversation, call, row, began))
                withheld.append((call.ref, row))
            conversation.remember(row)
            exchange.asked.append(row)
            rows.append(row)
        self._log.write(decisions)
        with self._memory.transaction():
            self._memory.add_calls(run.run_id, conversation.id, rows)
        for row in rows:
            row.arguments = b""
            run.replaced = run.replaced or row.payload is not None
        self._log.write(self._observer.on_calls(run, conversation, dialect, rows))
        # Only now, when everything is written down, does it go on as another.
        for ref, row in withheld:
            _disguise(exchange, ref, row)

    def _can_withhold(self, exchange: Exchange, frame: Frame, call: CallDone, row: CallRow) -> bool:
        """Whether the call is not to run, would run at all, and has not gone on yet."""
        holder, dialect = exchange.holder, exchange.dialect
        if holder is None or dialect is None or not is_to_withhold(decode_draw(row.draw)):
            return False
        if lacks_target(dialect, call.tool, dialect.arguments(call.tool, call.arguments)):
            return False
        if harmless_text(dialect, call.tool) is not None:
            return holder.can_swap(call.ref, [frame], call.arguments)
        return holder.can_rename(call.ref, [frame])

    def _withhold(
        self, exchange: Exchange, conversation: Conversation, call: CallDone, row: CallRow, began: int
    ) -> AnyRecord:
        wire, dialect = exchange.wire, exchange.dialect
        assert wire is not None
        assert dialect is not None
        kind = decode_draw(row.draw).kind or ""
        if harmless_text(dialect, call.tool) is not None:
            name = call.tool
        else:
            name = wire_name(call.tool, kind, self._offered(wire, exchange.tools))
        record = withhold(
            exchange.run.settings,
            dialect,
            conversation,
            row,
            call.arguments,
            name,
            log_texts=self._options.log_payloads,
        )
        return replace(record, latency_us=round((time.perf_counter_ns() - began) / 1e3, 1))

    def _judge(self, exchange: Exchange) -> None:
        """What an answer says of the run besides its calls."""
        wrong = missing_usage(exchange) if exchange.generates and not exchange.broken else None
        if wrong is not None:
            self._recorder.error(exchange.run, "usage", wrong)
        wrong = self._observer.on_answer(exchange)
        if wrong is not None:
            self._recorder.error(exchange.run, "answer", wrong)

    def _counts(self, conversation: Conversation, exchange: Exchange) -> Counts:
        """What was answered, and what stands earlier in this response."""
        counts = conversation.counts.layer()
        for row in exchange.asked:
            counts.add(exchange.run.settings.profile, call_of(row), decode_draw(row.draw))
        return counts

    def _close(self, exchange: Exchange, began: int) -> None:
        run = exchange.run
        if exchange.generates and exchange.conversation is not None:
            run.complete = exchange.answered and _asks_for_nothing(exchange)
            run.claimed = _claimed(exchange) if run.complete else None
            exchange.heard.clear()
            if exchange.refusal is None:
                theirs = is_quota_error(exchange.status, exchange.error_headers, exchange.error_body)
                run.quota = "theirs" if theirs else None
        run.tokens += sum(count or 0 for count in exchange.usage)
        try:
            self._recorder.closed(exchange, began)
        except LedgerError as error:
            self._recorder.unwritable = str(error)

    def _failed(self, exchange: Exchange, where: str, reason: str) -> None:
        exchange.broken = True
        exchange.reader = None
        self._recorder.error(exchange.run, where, reason)


def _could_be_last(exchange: Exchange) -> bool:
    """Whether nothing was asked for as yet but, perhaps, the end of the session."""
    dialect = exchange.dialect
    return not exchange.asked or (dialect is not None and dialect.finishes is not None)


def _asks_for_nothing(exchange: Exchange) -> bool:
    """Whether a whole answer leaves the harness nothing to do but end."""
    if exchange.asked_for_tools is not True:
        return exchange.asked_for_tools is False
    dialect = exchange.dialect
    return dialect is not None and any(
        row.wire_name is None and dialect.is_finishing(row.target) for row in exchange.asked
    )


def _claimed(exchange: Exchange) -> Claim | None:
    """What the words of an answer come down to; the words themselves are kept nowhere."""
    if exchange.wire is None or exchange.broken:
        return None
    try:
        return claim_of(last_words(exchange.wire, exchange.content_type, exchange.heard))
    except WireError:
        return None  # words that cannot be read claim nothing


def _disguise(exchange: Exchange, ref: str, row: CallRow) -> None:
    """Lets a call that is not to run go on as one that does nothing."""
    if exchange.holder is None or exchange.dialect is None:
        return
    harmless = harmless_text(exchange.dialect, row.tool) if row.is_swapped else None
    if harmless is not None:
        exchange.holder.swap(ref, harmless)
    elif row.wire_name is not None:
        exchange.holder.rename(ref, row.wire_name)


def _nth(conversation: Conversation, exchange: Exchange, call_id: str, digest: str) -> int:
    """How many such pairs stand before the next call of this response."""
    earlier = sum((row.call_id, row.call_digest) == (call_id, digest) for row in exchange.asked)
    return conversation.nth(call_id, digest) + earlier
