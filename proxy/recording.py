"""What a run leaves in the log besides its decisions: starts, errors, deliveries, requests, ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256

from configs import dialects, load_capability
from ledger.decisions import DecisionLog, LedgerError, timestamp
from ledger.identity import boot_id, package_version
from ledger.memory import CallRow, Memory
from ledger.records import AnyRecord, Delivery, End, Error, Quota, Request, Start
from proxy.exchange import Exchange
from proxy.options import InjectorOptions
from proxy.runs import Conversations, Run
from proxy.walk import orphan
from scheduler.capability import Capability
from scheduler.dialect import Dialect
from scheduler.fitting import Gaps, gaps_of


class Recorder:
    """Writes the log and tells the user. ``unwritable`` is why nothing can be written any more, or None."""

    def __init__(
        self,
        log: DecisionLog,
        memory: Memory,
        *,
        pid: int,
        tell: Callable[[str], None],
        options: InjectorOptions,
    ) -> None:
        self._options = options
        self._log = log
        self._memory = memory
        self._pid = pid
        self._tell = tell
        self._started = timestamp()
        self._dialects = dialects()
        self.unwritable: str | None = None

    def start(self, run: Run, dialect: Dialect | None, version: str | None) -> None:
        """Begins a run in the log, once; raises ``LedgerError``."""
        if not run.started:
            self._begin(run, dialect, version)

    def begin_as(self, run: Run, dialect: Dialect, version: str | None) -> None:
        """The harness of a run's agent is known now: when the run was begun as another's, or nobody's, it is
        begun again with the gaps of this one. Raises ``LedgerError``."""
        run.dialect = dialect.name
        run.alike.add(dialect.name)
        if run.begun_as != dialect.name:
            self._begin(run, dialect, version)

    def why_untested(self, run: Run, dialect: Dialect | None, version: str | None) -> str | None:
        """Why a harness is none of the versions that were shown to work; None when it is one."""
        known, version, capability = self._known(run, dialect, version)
        if capability is not None:
            return None
        if known is None or version is None:
            return f"{known.title if known is not None else 'this harness'} does not say which version it is"
        return f"{known.title} {version} has no capability file"

    def _known(
        self, run: Run, dialect: Dialect | None, version: str | None
    ) -> tuple[Dialect | None, str | None, Capability | None]:
        """Dialect, version and capability of whoever asks, as far as they are known."""
        known = dialect or self._dialects.get(run.settings.harness or "")
        version = version or run.settings.harness_version
        return known, version, load_capability(known.name, version) if known is not None and version else None

    def gaps(self, run: Run, dialect: Dialect | None, version: str | None) -> Gaps:
        """What is not drawn for this harness under the run's profile."""
        known, _, capability = self._known(run, dialect, version)
        return gaps_of(
            known or self._dialects["generic"],
            run.settings.profile,
            capability.gaps() if capability is not None and not self._options.schedule_gaps else {},
            self._options.shared_gaps,
        )

    def _begin(self, run: Run, dialect: Dialect | None, version: str | None) -> None:
        known, version, capability = self._known(run, dialect, version)
        settings = run.settings = replace(run.settings, gaps=self.gaps(run, dialect, version))
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
                    untested=capability is None,
                )
            ]
        )
        run.started, run.begun_as = True, known.name if known is not None else "generic"
        run.withholdable.clear()
        name = known.title if known is not None else "an unknown harness (generic wordings)"
        untested = "" if capability is not None or known is None else ", a version without a capability file"
        self._tell(
            f"run {run.run_id}: first request, from {name}{' ' + version if version else ''}{untested}"
        )

    def quota(self, run: Run) -> None:
        """The token budget of a run is spent."""
        budget = run.settings.token_budget or 0
        self._tell(f"run {run.run_id}: {run.tokens} tokens used, the budget is {budget}")
        self._log.write([Quota(ts=timestamp(), run_id=run.run_id, budget=budget, used=run.tokens)])

    def error(self, run: Run, where: str, reason: str) -> None:
        """The injector could not do its work: the run is invalid from now on."""
        run.invalid = True
        self._tell(f"run {run.run_id}: error in {where}: {reason} (this run is invalid)")
        try:
            self.start(run, None, None)
        except LedgerError as error:
            self.unwritable = str(error)
            return
        self.afterwards([Error(ts=timestamp(), run_id=run.run_id, where=where, reason=reason)])

    def unkept(self, run: Run, reason: str) -> None:
        """Memory or log cannot be written: the run is invalid, which the log says once if it still can."""
        first, run.invalid = not run.invalid, True
        if first and run.started:
            try:
                self._log.write([Error(ts=timestamp(), run_id=run.run_id, where="ledger", reason=reason)])
            except LedgerError:
                return  # it is the log: the user was told, and nothing is let through any more

    def afterwards(self, records: Sequence[AnyRecord]) -> None:
        """Writes what is known only after the fact; a log that fails here stops the next request."""
        try:
            self._log.write(records)
        except LedgerError as error:
            self.unwritable = str(error)
            self._tell(f"{error}: nothing more is let through")

    def closed(self, exchange: Exchange, began_ns: int) -> None:
        """The ``request`` record of an exchange that is over, behind its deliveries."""
        run = exchange.run
        usage = exchange.usage
        upstream_ms = None if exchange.sent_ns is None else (began_ns - exchange.sent_ns) / 1e6
        records: list[AnyRecord] = []
        if exchange.answered and not exchange.broken:
            records += self._deliveries(exchange)
        exchange.spent_ns += time.perf_counter_ns() - began_ns
        records.append(
            Request(
                ts=timestamp(),
                run_id=run.run_id,
                path=exchange.head.path.partition("?")[0],
                protocol=exchange.wire.name if exchange.wire is not None else None,
                bytes_in=exchange.bytes_in,
                bytes_out=len(exchange.body) if exchange.refusal is None else 0,
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
        self.afterwards(records)

    def _deliveries(self, exchange: Exchange) -> list[AnyRecord]:
        run = exchange.run
        conversation = exchange.conversation or exchange.retells or ""
        records: list[AnyRecord] = []
        firsts: list[CallRow] = []
        now = timestamp()
        for row in exchange.carried:
            records.append(
                Delivery(
                    ts=now,
                    run_id=run.run_id,
                    conversation=conversation,
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
                self._memory.update_calls(run.run_id, conversation, firsts)
        return records

    def ended(self, run: Run, conversations: Conversations, ended: str | None, passed: bool | None) -> None:
        """Closes a run: calls that nobody answered, then its end state. Safe to call for any run."""
        if not run.started or run.ended:
            return
        run.ended = True
        records: list[AnyRecord] = []
        for conversation_id in self._memory.unanswered_conversations(run.run_id):
            conversation = conversations.get(run, conversation_id)
            left = [row for row in conversation.pending if row.skipped != "orphaned"]
            records += [orphan(run.settings, conversation, row) for row in left]
            with self._memory.transaction():
                self._memory.update_calls(run.run_id, conversation_id, left)
        records.append(
            End(ts=timestamp(), run_id=run.run_id, ended=ended, passed=passed, claimed=run.claimed)
        )
        self.afterwards(records)


@lru_cache(maxsize=256)
def _sha256(text: str) -> str:
    # The same payloads are delivered on every turn.
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
