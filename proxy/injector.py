"""One request and one response through schedule and ledger. Knows no HTTP server and no clock but a counter.

Every public method is an outer edge: what goes wrong inside is written down as an ``error`` record, and the
traffic goes on unchanged (or is refused, when the run asks for that). Nothing is sent before it is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

from configs import dialects
from ledger.decisions import DecisionLog, LedgerError
from ledger.memory import Memory
from proxy.conversation import Conversation
from proxy.encoding import CodingError, coding_of, decode, encode
from proxy.exchange import Exchange, Head, Refusal
from proxy.locate import Locator
from proxy.observer import AgentRequest, Observer, Unobserved
from proxy.options import CrashedOnPurpose, InjectorOptions
from proxy.protocols.errors import error_document
from proxy.protocols.wire import (
    Asked,
    ParsedRequest,
    WireError,
    WireFormat,
    is_tool_list,
    splice,
)
from proxy.quota import is_spent, quota_refusal
from proxy.recognise import could_be_an_agents, dialect_of, wire_of
from proxy.recording import Recorder
from proxy.registering import kept
from proxy.responses import Responses
from proxy.runs import Conversations, Run, RunBook, RunSettings
from proxy.summaries import Summaries
from proxy.walk import Walk
from scheduler.dialect import Dialect


class Injector:
    """The heart of the proxy. One thread."""

    def __init__(
        self,
        runs: RunBook,
        log: DecisionLog,
        memory: Memory,
        options: InjectorOptions,
        *,
        pid: int,
        tell: Callable[[str], None],
        conversations: Conversations | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.runs = runs
        self._log = log
        self._memory = memory
        self._options = options
        self._tell = tell
        self._observer = observer or Unobserved()
        self._recorder = Recorder(log, memory, pid=pid, tell=tell, options=options)
        self._conversations = conversations or Conversations(memory)
        self._responses = Responses(log, memory, self._conversations, self._recorder, self._observer, options)
        self._locator = Locator(memory, self._conversations)
        self._summaries = Summaries(log, memory, self._conversations, self._recorder, self._observer, options)
        self._dialects = dialects()
        self._tools_digests: dict[bytes, str] = {}
        self.untested: dict[str, None] = {}

    # -- the request --

    def on_request(self, run_id: str, head: Head, body: bytes, message: Asked | None = None) -> Exchange:
        """Takes a whole request in; the exchange says what goes upstream, or what is answered instead.

        ``message``: what it asks for, when it came as a message of a socket.
        """
        began = time.perf_counter_ns()
        run = self.runs.get(run_id)
        exchange = Exchange(run, head, body, len(body), message)
        run.open_requests += 1
        try:
            if self._recorder.unwritable is not None:
                raise LedgerError(self._recorder.unwritable)
            self._request(exchange)
        except LedgerError as error:
            self._refuse_unwritten(exchange, str(error))
        except (WireError, CodingError) as error:
            self._failed(exchange, "request", str(error))
        except Exception as error:  # noqa: BLE001 - the outer edge: recorded, never silent
            self._failed(exchange, "injector", f"{type(error).__name__}: {error}")
        exchange.spent_ns += time.perf_counter_ns() - began
        exchange.sent_ns = time.perf_counter_ns()
        return exchange

    def on_unreadable(self, run_id: str, head: Head, message: bytes, reason: str) -> Exchange:
        """A message of a harness on a socket that is not understood: it goes on, unless such are refused."""
        run = self.runs.get(run_id)
        exchange = Exchange(run, head, message, len(message))
        run.open_requests += 1
        self._failed(exchange, "request", reason)
        return exchange

    def _request(self, exchange: Exchange) -> None:
        run, head = exchange.run, exchange.head
        recognised = wire_of(head)
        coding = coding_of(head.headers.get("content-encoding"))
        dialect, version = dialect_of(self._dialects.values(), head.headers, exchange.body)
        if recognised is None:
            body = decode(exchange.body, coding) if head.method == "POST" else b""
            if could_be_an_agents(head, body):
                self._recorder.start(run, dialect, version)
                raise WireError(
                    f"a request to {head.path.partition('?')[0]} looks like an agent's, but no protocol that"
                    " this version speaks has that path: nothing was injected into it"
                )
            return
        if self._options.tested_only and self._refuse_untested(exchange, dialect, version):
            return
        self._recorder.start(run, dialect, version)
        wire, asks_for = recognised
        exchange.wire = wire
        asked = exchange.message
        exchange.generates = asks_for == "generate" and (asked is None or asked.kind == "generate")
        stated = self._dialects.get(run.settings.harness or "")
        exchange.dialect = dialect or stated or self._dialects["generic"]
        if run.stopped:
            self._stop(exchange)
            return
        if self._options.crash_at == "request":
            raise CrashedOnPurpose("the injector was made to crash on a request")
        plain = decode(exchange.body, coding)
        edited = self._inject(exchange, wire, exchange.dialect, version, plain)
        if run.stopped or (exchange.generates and is_spent(run)):
            self._stop(exchange)
        elif edited is not plain:
            exchange.body = encode(edited, coding, exchange.body)

    def _stop(self, exchange: Exchange) -> None:
        """Lets nothing go upstream: the run was stopped, or its token budget is spent."""
        run = exchange.run
        exchange.carried, exchange.wait_s = [], 0.0
        if run.stopped or exchange.wire is None or exchange.dialect is None:
            exchange.refusal = _refusal(exchange, 503, "chaosproxy: this run was stopped")
            return
        budget = run.settings.token_budget or 0
        exchange.refusal = quota_refusal(
            exchange.wire.name, run.settings.harness or exchange.dialect.name, budget=budget, used=run.tokens
        )
        if run.quota != "ours":
            self._recorder.quota(run)
        run.quota = "ours"

    def _refuse_untested(self, exchange: Exchange, dialect: Dialect | None, version: str | None) -> bool:
        why = self._recorder.why_untested(exchange.run, dialect, version)
        if why is None:
            return False
        message = f"{why}: --tested-only refuses it; `chaosproxy harnesses` lists the tested versions"
        if message not in self.untested:
            self._tell(f"refused: {message}")
        self.untested[message] = None
        exchange.refusal = _refusal(exchange, 400, f"chaosproxy: {message}")
        return True

    def _inject(
        self, exchange: Exchange, wire: WireFormat, dialect: Dialect, version: str | None, body: bytes
    ) -> bytes:
        run = exchange.run
        located = self._locator.locate(run, wire, dialect, dict(exchange.head.headers), body)
        conversation, request = located.conversation, located.request
        if conversation is None:
            # With no tools on offer the model asks for none: what goes on from its answer is known whole.
            exchange.depth = len(request.items) if request.continues is None else None
            return self._summaries.take_in(exchange, wire, dialect, request, body, located.named)
        exchange.conversation = conversation.id
        exchange.depth = conversation.before + len(request.items)
        exchange.tools = conversation.offered(request.tools)
        # What only makes the endpoint ready is no request of the agent.
        if exchange.generates or exchange.message is None:
            exchange.tools_digest = self._tools_digest(exchange.tools)
        try:
            self._check_harness(run, dialect, version)
            self._decide(exchange, wire, dialect, conversation, request)
        except BaseException:
            self._conversations.forget(run, conversation.id)
            raise
        exchange.pinned = conversation
        conversation.in_flight += 1
        exchange.calls = len(conversation.rows)
        exchange.carried = [*conversation.prepared, *conversation.carried]
        return splice(body, conversation.edits, request.base)

    def _check_harness(self, run: Run, dialect: Dialect, version: str | None) -> None:
        if run.dialect is None:
            self._recorder.begin_as(run, dialect, version)
        elif dialect.name not in run.alike:
            if self._recorder.gaps(run, dialect, version) != run.settings.gaps:
                # A log has the gaps of one harness for a run: the draws of another could not be recomputed.
                raise WireError(
                    f"run {run.run_id} is {run.dialect}'s, and this request is {dialect.name}'s, to which"
                    " other kinds can be done: give each a run of its own (/run/<run_id>)"
                )
            run.alike.add(dialect.name)

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
        walk = Walk(
            run.settings,
            wire,
            dialect,
            conversation,
            request,
            log_texts=self._options.log_payloads,
            arguments_of=lambda row: self._memory.arguments(run.run_id, conversation.id, row.position),
        )
        # A count of tokens, or a look at the history without tools, can be of a part: it goes past no call.
        found = walk.run(orphans=exchange.generates and request.has_tools)
        exchange.wait_s = found.wait_s
        run.replaced = run.replaced or any(row.payload is not None for row in found.changed + found.added)
        texts = self._summaries.retold_in(run, conversation, wire, dialect, request)
        conversation.retell(texts.edits, request.base)
        self._log.write(found.decisions)
        tips = self._locator.next_tips(conversation, request)
        if found.added or found.changed or texts.new or tips is not None:
            with self._memory.transaction():
                self._memory.add_calls(run.run_id, conversation.id, found.added)
                self._memory.update_calls(run.run_id, conversation.id, found.changed)
                for text in texts.new:
                    self._memory.add_text(run.run_id, conversation.id, text.digest, text.new)
                if tips is not None:
                    self._memory.add_beginning(run.run_id, *tips.beginning)
                    self._memory.add_tip(run.run_id, *tips.whole)
            for row in found.added:
                row.arguments = b""
            if tips is not None:
                conversation.tip = conversation.chain[-1]
        for doubt in texts.doubts:
            self._recorder.error(run, "flattened", doubt)
        for wrong in found.doubts:
            self._recorder.error(run, wrong.where, wrong.reason)
        turn = AgentRequest(
            conversation, request, wire, dialect, exchange.generates, found.answered, walk.arguments_of
        )
        self._log.write(self._observer.on_agent_request(run, turn))

    def _tools_digest(self, tools: bytes) -> str | None:
        if not is_tool_list(tools):
            return None
        found = self._tools_digests.get(tools)
        if found is None:
            if len(self._tools_digests) >= 64:
                self._tools_digests.clear()
            found = self._tools_digests[tools] = sha256(tools).hexdigest()
        return found

    # -- the response --

    def on_response_head(self, exchange: Exchange, status: int, headers: Mapping[str, str]) -> None:
        """The response begins. ``headers`` have lower-case names."""
        self._responses.head(exchange, status, headers)

    def on_response_chunk(self, exchange: Exchange, chunk: bytes) -> bytes:
        """Some bytes of the response, none at its end; gives back what may go on to the harness."""
        return self._responses.chunk(exchange, chunk)

    def on_response_message(self, exchange: Exchange, message: bytes) -> Sequence[bytes]:
        """A message of the answer on a socket; gives back those that may go on to the harness."""
        return self._responses.pieces(exchange, message)

    def on_unreadable_answer(self, exchange: Exchange, reason: str) -> Sequence[bytes]:
        """A message of an answer on a socket that is not understood; gives back what was held."""
        return self._responses.unreadable(exchange, reason)

    def on_response_end(self, exchange: Exchange) -> None:
        """The response is whole, or the connection is gone: writes what came of the request, once."""
        self._responses.end(exchange)

    # -- runs and errors --

    def _failed(self, exchange: Exchange, where: str, reason: str) -> None:
        """The request goes on unchanged, or is refused; either way the run is invalid."""
        exchange.broken = True
        exchange.carried = []
        self._recorder.error(exchange.run, where, reason)
        if self._recorder.unwritable is not None:
            self._refuse_unwritten(exchange, self._recorder.unwritable)
        elif self._options.on_error == "block":
            exchange.refusal = _refusal(exchange, 500, f"chaosproxy refused this request: {where}: {reason}")

    def _refuse_unwritten(self, exchange: Exchange, reason: str) -> None:
        exchange.broken = True
        exchange.carried = []
        self._tell(f"{reason}: the request was refused")
        self._recorder.unkept(exchange.run, reason)
        self._recorder.unwritable = reason
        exchange.refusal = _refusal(exchange, 507, f"chaosproxy: {reason}")

    def register(self, settings: RunSettings, *, tokens: int = 0) -> Run:
        """Says beforehand what a run is, so that a restart knows it too; ``tokens`` were used before.

        Raises ``ValueError`` for a run that has begun otherwise, ``LedgerError`` when it cannot be kept.
        """
        run = self.runs.register(settings)
        run.tokens = tokens
        with self._memory.transaction():
            self._memory.put_run(run.run_id, kept(settings))
        return run

    def begin(self, run: Run) -> None:
        """Begins a run in the log before its first request; raises ``LedgerError``."""
        self._recorder.start(run, None, None)

    def end(self, run: Run, ended: str | None, passed: bool | None) -> None:
        """Closes a run: calls that nobody answered, then its end state. Safe to call for any run."""
        try:
            self._recorder.ended(run, self._conversations, ended, passed)
        except LedgerError as error:
            self._recorder.unwritable = str(error)
            self._tell(f"{error}: run {run.run_id} has no end")

    def close(self) -> None:
        """Ends every run that was served: complete when its last answer asked for no tool, else unsaid."""
        for run in self.runs.all():
            self.end(run, "complete" if run.complete else None, None)
        self._log.close()
        self._memory.close()


def _refusal(exchange: Exchange, status: int, message: str) -> Refusal:
    recognised = wire_of(exchange.head)
    if recognised is None:
        return Refusal(status, error_document(status, message))
    return Refusal(status, recognised[0].error_body(status, message))
