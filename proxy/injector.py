"""One request and one response through schedule and ledger. Knows no HTTP server and no clock but a counter.

Every public method is an outer edge: what goes wrong inside is written down as an ``error`` record, and the
traffic goes on unchanged (or is refused, when the run asks for that). Nothing is sent before it is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from configs import dialects
from ledger.decisions import DecisionLog, LedgerError, timestamp
from ledger.identity import boot_id, package_version
from ledger.memory import Memory
from ledger.records import AnyRecord, Delivery, End, Error, Request, Start
from proxy.conversation import Conversation, Counts, call_of, decode_draw
from proxy.deciding import NewCall, digest_of, draw_call
from proxy.encoding import CodingError, coding_of, decode, encode, stream_decoder
from proxy.exchange import Exchange, Head, Refusal
from proxy.flattened import rewrite_flattened
from proxy.locate import Locator
from proxy.protocols.wire import (
    CallDone,
    Edit,
    Finished,
    Frame,
    ParsedRequest,
    UsageSeen,
    WireError,
    WireFormat,
    splice,
)
from proxy.recognise import could_be_an_agents, dialect_of, wire_of
from proxy.runs import Conversations, Run, RunBook
from proxy.walk import Walk, orphan
from scheduler.dialect import Dialect


@dataclass(frozen=True, slots=True)
class InjectorOptions:
    """How the injector behaves when something is wrong, and what it writes down.

    ``crash_at`` makes it crash on purpose, to show that a crash cannot look like a clean run.
    """

    on_error: Literal["forward", "block"] = "forward"
    log_payloads: bool = False
    crash_at: Literal["request", "response"] | None = None


class CrashedOnPurpose(RuntimeError):
    """Raised where ``crash_at`` says."""


class Injector:
    """The heart of the proxy. One thread; ``started`` is RFC 3339, the time at which the process began."""

    def __init__(
        self,
        runs: RunBook,
        log: DecisionLog,
        memory: Memory,
        options: InjectorOptions,
        *,
        pid: int,
        tell: Callable[[str], None],
    ) -> None:
        self.runs = runs
        self._log = log
        self._memory = memory
        self._options = options
        self._pid = pid
        self._tell = tell
        self._started = timestamp()
        self._conversations = Conversations(memory)
        self._locator = Locator(memory, self._conversations)
        self._dialects = dialects()
        self._tools_digests: dict[bytes, str] = {}
        self._unwritable: str | None = None

    # -- the request --

    def on_request(self, run_id: str, head: Head, body: bytes) -> Exchange:
        """Takes a whole request in; the exchange says what goes upstream, or what is answered instead."""
        began = time.perf_counter_ns()
        run = self.runs.get(run_id)
        exchange = Exchange(run, head, body, len(body))
        try:
            if self._unwritable is not None:
                raise LedgerError(self._unwritable)
            self._request(exchange)
        except LedgerError as error:
            self._refuse_unwritten(exchange, error)
        except (WireError, CodingError) as error:
            self._failed(exchange, "request", str(error))
        except Exception as error:  # noqa: BLE001 - the outer edge: recorded, never silent
            self._failed(exchange, "injector", f"{type(error).__name__}: {error}")
        exchange.spent_ns += time.perf_counter_ns() - began
        exchange.sent_ns = time.perf_counter_ns()
        return exchange

    def _request(self, exchange: Exchange) -> None:
        run, head = exchange.run, exchange.head
        recognised = wire_of(head)
        coding = coding_of(head.headers.get("content-encoding"))
        dialect, version = dialect_of(self._dialects.values(), head.headers)
        if recognised is None:
            body = decode(exchange.body, coding) if head.method == "POST" else b""
            if could_be_an_agents(head, body):
                self._start(run, dialect, version)
                raise WireError(
                    f"a request to {head.path.partition('?')[0]} looks like an agent's, but no protocol that"
                    " this version speaks has that path: nothing was injected into it"
                )
            return
        self._start(run, dialect, version)
        wire, asks_for = recognised
        exchange.wire = wire
        exchange.generates = asks_for == "generate"
        exchange.dialect = dialect or self._dialects["generic"]
        if self._options.crash_at == "request":
            raise CrashedOnPurpose("the injector was made to crash on a request")
        plain = decode(exchange.body, coding)
        edited = self._inject(exchange, wire, exchange.dialect, plain)
        if edited is not plain:
            exchange.body = encode(edited, coding)

    def _inject(self, exchange: Exchange, wire: WireFormat, dialect: Dialect, body: bytes) -> bytes:
        run = exchange.run
        conversation, request = self._locator.locate(run, wire, dialect, dict(exchange.head.headers), body)
        if conversation is None:
            return rewrite_flattened(wire, dialect, request, lambda: self._memory.rewritten(run.run_id))
        exchange.conversation = conversation.id
        exchange.depth = len(request.items)
        exchange.tools_digest = self._tools_digest(request)
        try:
            self._decide(exchange, wire, dialect, conversation, request)
        except BaseException:
            self._conversations.forget(run, conversation.id)
            raise
        exchange.carried = list(conversation.carried)
        base = request.base
        return splice(body, [Edit(e.start + base, e.end + base, e.new) for e in conversation.edits])

    def _decide(
        self,
        exchange: Exchange,
        wire: WireFormat,
        dialect: Dialect,
        conversation: Conversation,
        request: ParsedRequest,
    ) -> None:
        """Walks what is new and writes down what was decided, the log first: a crash between the two is
        mended by deciding the same again."""
        run = exchange.run
        found = Walk(
            run.settings, wire, dialect, conversation, request, log_texts=self._options.log_payloads
        ).run()
        exchange.wait_s = found.wait_s
        self._log.write(found.decisions)
        if found.added or found.changed:
            with self._memory.transaction():
                self._memory.add_calls(run.run_id, conversation.id, found.added)
                self._memory.update_calls(run.run_id, conversation.id, found.changed)
            for row in found.added:
                row.arguments = b""

    def _tools_digest(self, request: ParsedRequest) -> str | None:
        if not request.has_tools:
            return None
        found = self._tools_digests.get(request.tools)
        if found is None:
            if len(self._tools_digests) >= 64:
                self._tools_digests.clear()
            found = self._tools_digests[request.tools] = sha256(request.tools).hexdigest()
        return found

    # -- the response --

    def on_response_head(self, exchange: Exchange, status: int, headers: Mapping[str, str]) -> None:
        """The response begins. ``headers`` have lower-case names."""
        exchange.status = status
        if exchange.wire is None or not exchange.generates or exchange.broken or not 200 <= status < 300:
            return
        try:
            exchange.decoder = stream_decoder(coding_of(headers.get("content-encoding")))
        except CodingError as error:
            self._response_failed(exchange, "response", str(error))
            return
        exchange.reader = exchange.wire.reader(headers.get("content-type", ""))

    def on_response_chunk(self, exchange: Exchange, chunk: bytes) -> bytes:
        """Some bytes of the response, none at its end; gives back what may go on to the harness."""
        if exchange.reader is None or exchange.decoder is None or not chunk:
            return chunk
        began = time.perf_counter_ns()
        try:
            if self._options.crash_at == "response":
                raise CrashedOnPurpose("the injector was made to crash on a response")
            self._frames(exchange, exchange.reader.feed(exchange.decoder(chunk)))
        except WireError as error:
            self._response_failed(exchange, "response", str(error))
        except Exception as error:  # noqa: BLE001 - the outer edge: recorded, never silent
            self._response_failed(exchange, "injector", f"{type(error).__name__}: {error}")
        exchange.spent_ns += time.perf_counter_ns() - began
        return chunk

    def on_response_end(self, exchange: Exchange) -> None:
        """The response is whole, or the connection is gone: writes what came of the request, once."""
        if exchange.done:
            return
        exchange.done = True
        began = time.perf_counter_ns()
        upstream_ms = None if exchange.sent_ns is None else (began - exchange.sent_ns) / 1e6
        try:
            if exchange.reader is not None:
                self._frames(exchange, exchange.reader.close())
        except WireError as error:
            self._response_failed(exchange, "response", str(error))
        except Exception as error:  # noqa: BLE001 - the outer edge: recorded, never silent
            self._response_failed(exchange, "injector", f"{type(error).__name__}: {error}")
        exchange.reader = None
        if exchange.run.started:
            self._close(exchange, began, upstream_ms)

    def _frames(self, exchange: Exchange, frames: list[Frame]) -> None:
        calls: list[CallDone] = []
        for frame in frames:
            for event in frame.events:
                match event:
                    case CallDone():
                        calls.append(event)
                    case UsageSeen(usage):
                        exchange.usage = usage
                    case Finished(asked):
                        exchange.asked_for_tools = asked
        if calls:
            self._remember(exchange, calls)

    def _remember(self, exchange: Exchange, calls: list[CallDone]) -> None:
        """Draws the calls of a response and remembers them before the harness can run them."""
        if exchange.conversation is None or exchange.dialect is None:
            raise WireError("the model asked for a tool in answer to a request that offered none")
        run, dialect = exchange.run, exchange.dialect
        conversation = self._conversations.get(run, exchange.conversation)
        counts = self._counts(conversation, exchange)
        rows = []
        for call in calls:
            new = NewCall(call.call_id, call.tool, call.arguments)
            nth = self._nth(run, dialect, conversation, exchange, new)
            row = draw_call(run.settings, dialect, conversation, new, counts, nth, exchange.depth)
            known = conversation.by_pair.get((row.call_id, row.call_digest, row.nth))
            if known is not None and known.answered:
                raise WireError(f"the model used the call id {call.call_id!r} again")
            conversation.remember(row)
            exchange.asked.append(row)
            rows.append(row)
        with self._memory.transaction():
            self._memory.add_calls(run.run_id, conversation.id, rows)
        for row in rows:
            row.arguments = b""

    def _counts(self, conversation: Conversation, exchange: Exchange) -> Counts:
        """What was answered, and what stands earlier in this response."""
        counts = conversation.counts.copy()
        for row in exchange.asked:
            counts.add(exchange.run.settings.profile, call_of(row), decode_draw(row.draw))
        return counts

    def _nth(
        self, run: Run, dialect: Dialect, conversation: Conversation, exchange: Exchange, new: NewCall
    ) -> int:
        _, digest = digest_of(run.settings, dialect, conversation, new)
        earlier = sum((row.call_id, row.call_digest) == (new.call_id, digest) for row in exchange.asked)
        return conversation.nth(new.call_id, digest) + earlier

    def _close(self, exchange: Exchange, began: int, upstream_ms: float | None) -> None:
        """Deliveries and the request record."""
        run = exchange.run
        answered = exchange.status is not None and 200 <= exchange.status < 300
        if exchange.generates and exchange.conversation is not None:
            run.complete = answered and exchange.asked_for_tools is False
        records: list[AnyRecord] = []
        if answered and exchange.generates and not exchange.broken:
            records += self._deliveries(exchange)
        usage = exchange.usage
        run.tokens += sum(count or 0 for count in usage)
        exchange.spent_ns += time.perf_counter_ns() - began
        records.append(
            Request(
                ts=timestamp(),
                run_id=run.run_id,
                path=exchange.head.path.partition("?")[0],
                protocol=exchange.wire.name if exchange.wire is not None else None,
                bytes_in=exchange.bytes_in,
                bytes_out=len(exchange.body),
                faults=sum(row.skipped is None for row in exchange.carried),
                tools_digest=exchange.tools_digest,
                overhead_us=round(exchange.spent_ns / 1e3, 1),
                upstream_ms=None if upstream_ms is None else round(upstream_ms, 3),
                status=exchange.status,
                input_tokens=usage.input_tokens,
                cache_read_tokens=usage.cache_read_tokens,
                cache_write_tokens=usage.cache_write_tokens,
                output_tokens=usage.output_tokens,
            )
        )
        self._write(records)

    def _deliveries(self, exchange: Exchange) -> list[AnyRecord]:
        run = exchange.run
        records: list[AnyRecord] = []
        firsts = []
        for row in exchange.carried:
            records.append(
                Delivery(
                    ts=timestamp(),
                    run_id=run.run_id,
                    conversation=exchange.conversation or "",
                    call_id=row.call_id,
                    call_digest=row.call_digest,
                    nth=row.nth,
                    payload_sha256=_sha256(row.payload or ""),
                    upstream_status=exchange.status or 0,
                    first=not row.delivered,
                )
            )
            if not row.delivered:
                row.delivered = True
                firsts.append(row)
        if firsts:
            with self._memory.transaction():
                self._memory.update_calls(run.run_id, exchange.conversation or "", firsts)
        return records

    # -- runs and errors --

    def _start(self, run: Run, dialect: Dialect | None, version: str | None) -> None:
        if run.started:
            return
        settings = run.settings
        self._log.write(
            [
                Start(
                    ts=timestamp(),
                    run_id=run.run_id,
                    version=package_version(),
                    seed=settings.seed,
                    profile=settings.profile_record(),
                    profile_sha256=settings.profile_sha256,
                    identity=settings.profile.identity,
                    harness=settings.harness or (dialect.name if dialect is not None else None),
                    harness_version=version,
                    pid=self._pid,
                    boot_id=boot_id(),
                    started=self._started,
                    task_id=settings.task_id,
                    repeat=settings.repeat,
                    attempt=settings.attempt,
                    untested=True,
                )
            ]
        )
        run.started = True
        name = dialect.title if dialect is not None else "an unknown harness (generic wordings)"
        self._tell(f"run {run.run_id}: first request, from {name}{' ' + version if version else ''}")

    def _failed(self, exchange: Exchange, where: str, reason: str) -> None:
        """The request goes on unchanged, or is refused; either way the run is invalid."""
        exchange.broken = True
        exchange.carried = []
        if self._options.on_error == "block":
            exchange.refusal = self._refusal(
                exchange, 500, f"chaosproxy refused this request: {where}: {reason}"
            )
        self._record_error(exchange.run, where, reason)

    def _response_failed(self, exchange: Exchange, where: str, reason: str) -> None:
        exchange.broken = True
        exchange.reader = None
        self._record_error(exchange.run, where, reason)

    def _record_error(self, run: Run, where: str, reason: str) -> None:
        run.invalid = True
        self._start(run, None, None)
        self._tell(f"run {run.run_id}: error in {where}: {reason} (this run is invalid)")
        self._write([Error(ts=timestamp(), run_id=run.run_id, where=where, reason=reason)])

    def _write(self, records: list[AnyRecord]) -> None:
        """Writes what is known only after the fact; a log that fails here stops the next request."""
        try:
            self._log.write(records)
        except LedgerError as error:
            self._unwritable = str(error)
            self._tell(f"{error}: nothing more is let through")

    def _refuse_unwritten(self, exchange: Exchange, error: LedgerError) -> None:
        exchange.broken = True
        exchange.run.invalid = True
        self._tell(f"{error}: the request was refused")
        self._unwritable = str(error)
        exchange.refusal = self._refusal(exchange, 507, f"chaosproxy: {error}")

    def _refusal(self, exchange: Exchange, status: int, message: str) -> Refusal:
        recognised = wire_of(exchange.head)
        if recognised is None:
            return Refusal(status, message.encode())
        return Refusal(status, recognised[0].error_body(status, message))

    def end(self, run: Run, ended: str | None, passed: bool | None) -> None:
        """Closes a run: calls that nobody answered, then its end state. Safe to call for any run."""
        if not run.started or run.ended:
            return
        run.ended = True
        records: list[AnyRecord] = []
        for conversation_id in run.ids:
            conversation = self._conversations.get(run, conversation_id)
            left = [row for row in conversation.pending if row.skipped != "orphaned"]
            records += [orphan(run.settings, conversation, row) for row in left]
            with self._memory.transaction():
                self._memory.update_calls(run.run_id, conversation_id, left)
        records.append(End(ts=timestamp(), run_id=run.run_id, ended=ended, passed=passed))
        self._write(records)

    def close(self) -> None:
        """Ends every run that was served: complete when its last answer asked for no tool, else unsaid."""
        for run in self.runs.all():
            self.end(run, "complete" if run.complete else None, None)
        self._log.close()
        self._memory.close()


def _sha256(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
