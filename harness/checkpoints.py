"""Checkpoints on the wire: seen, made durable, and where the plan says so, the end of the harness.

A checkpoint is reached by a line of work, which is a message history. A resumed history that holds the call
that reached it before goes on from there and does not reach it again; one that began anew does, and what it
applies then is compared with what was applied before.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from harness.effects import WRITING, Effect, command_of, effects_of, may_change
from harness.launch import Running
from harness.task import Task
from harness.workspace import Snapshot, Watch
from ledger.decisions import timestamp
from ledger.journal import CheckpointName, CheckpointRow, Journal, JournaledCall
from ledger.memory import CallRow
from ledger.records import Checkpoint
from proxy.conversation import Conversation
from proxy.exchange import Exchange
from proxy.locate import starts_with_compaction
from proxy.observer import AgentRequest, Answered
from proxy.rewriting import own_output
from proxy.runs import Run
from scheduler.dialect import Dialect

# The harness has been started when its first request comes; only the thread that started it may be behind.
_STARTED_WITHIN_S = 30


CallKey = tuple[str, str]
"""Call id and call digest."""


@dataclass(slots=True)
class Watched:
    """One attempt that is being watched. ``kills``: where the plan ends it.

    ``task_digest`` identifies the task. ``earlier``: the checkpoints of the attempts before, ``done`` their
    calls. ``asked``: the calls that the model asked for in this attempt, ``waiting`` those without a result.
    ``began`` is a reading of the monotonic clock. ``running`` is set by whoever starts the harness.
    """

    run_id: str
    attempt: int
    task: Task
    task_digest: str
    declared: frozenset[str]
    kills: frozenset[str]
    watch: Watch
    seen: Snapshot
    model_id: str | None = None
    earlier: Sequence[CheckpointRow] = ()
    done: frozenset[CallKey] = frozenset()
    asked: set[CallKey] = field(default_factory=set)
    waiting: set[CallKey] = field(default_factory=set)
    began: float = field(default_factory=time.monotonic)
    running: Future[Running] = field(default_factory=Future)
    reached: set[str] = field(default_factory=set)
    inherited: set[str] = field(default_factory=set)
    killed_at: str | None = None
    agent_requests: int = 0
    told_model: bool = False

    @property
    def wall_ms(self) -> float:
        return round((time.monotonic() - self.began) * 1e3, 3)

    def is_open(self, checkpoint: str) -> bool:
        """Whether the checkpoint can still be reached by this attempt."""
        return checkpoint in self.declared and checkpoint not in self.reached | self.inherited

    def row(
        self, checkpoint: CheckpointName, call: CallRow | None = None, *, applied: bool = False
    ) -> CheckpointRow:
        """The checkpoint, reached now, by ``call``; ``applied`` when the call itself is what was applied."""
        self.reached.add(checkpoint)
        return CheckpointRow(
            run_id=self.run_id,
            task_id=self.task.id,
            checkpoint=checkpoint,
            attempt=self.attempt,
            payload_digest=call.call_digest if call is not None and applied else self.task_digest,
            wall_ms=self.wall_ms,
            ts=timestamp(),
            call_id=None if call is None else call.call_id,
            call_digest=None if call is None else call.call_digest,
            workspace_digest=self.seen.digest,
        )


class CheckpointObserver:
    """Watches the attempts that were given to it. Used in the proxy's thread alone."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._watched: dict[str, Watched] = {}

    def add(self, watched: Watched) -> None:
        """From now on this attempt of its run is the one that is watched."""
        self._watched[watched.run_id] = watched

    def remove(self, run_id: str) -> None:
        self._watched.pop(run_id, None)

    def on_agent_request(self, run: Run, turn: AgentRequest) -> Sequence[Checkpoint]:
        """``context_loaded``, ``patch_applied``, ``tests_run``, and the calls that were executed."""
        watched = self._watched.get(run.run_id)
        if watched is None:
            return ()
        watched.agent_requests += turn.generates
        _inherit(watched, turn)
        rows: list[CheckpointRow] = []
        if turn.generates and watched.is_open("context_loaded"):
            rows.append(watched.row("context_loaded"))
        effects = _effects(watched, turn, _answered_now(watched, turn))
        for effect in effects:
            rows += _reached_by(watched, turn.dialect, effect)
        calls = [_journaled(watched, run, turn.conversation, effect) for effect in effects if effect.ran]
        return self._durable(run, watched, rows, calls)

    def on_calls(
        self, run: Run, conversation: Conversation, dialect: Dialect, calls: Sequence[CallRow]
    ) -> Sequence[Checkpoint]:
        """``patch_drafted``: the harness has not got the end of the call, so that a kill keeps it undone."""
        watched = self._watched.get(run.run_id)
        if watched is None:
            return ()
        keys = {_key(call) for call in calls}
        watched.asked |= keys
        watched.waiting |= keys
        if not watched.is_open("patch_drafted"):
            return ()
        draft = next((call for call in calls if call.family in WRITING), None)
        return () if draft is None else self._durable(run, watched, [watched.row("patch_drafted", draft)], [])

    def on_answer(self, exchange: Exchange) -> str | None:
        """The model that the manifest names must be the one that answers."""
        watched = self._watched.get(exchange.run.run_id)
        if watched is None or watched.model_id is None or watched.told_model:
            return None
        if exchange.conversation is None or exchange.model is None:
            return None
        if is_same_model(watched.model_id, exchange.model):
            return None
        watched.told_model = True
        return f"the manifest says model_id {watched.model_id}, the response says {exchange.model}"

    def _durable(
        self, run: Run, watched: Watched, rows: Sequence[CheckpointRow], calls: Sequence[JournaledCall]
    ) -> Sequence[Checkpoint]:
        """Writes, then kills where the plan says so: nothing has gone on yet."""
        if rows or calls:
            self._journal.write(rows, calls)
        fatal = next((row.checkpoint for row in rows if row.checkpoint in watched.kills), None)
        if fatal is not None:
            watched.killed_at = fatal
            run.stopped = True
            watched.running.result(_STARTED_WITHIN_S).kill()
        return [
            Checkpoint(ts=row.ts, run_id=row.run_id, name=row.checkpoint, digest=row.payload_digest)
            for row in rows
        ]


def _key(call: CallRow) -> CallKey:
    return call.call_id, call.call_digest


def _answered_now(watched: Watched, turn: AgentRequest) -> list[Answered]:
    """The calls that were executed since the last request of this attempt.

    A harness that begins anew can send the very bytes that an earlier attempt sent; what this attempt waits
    for is new all the same. What an earlier attempt has journaled and this one has not asked for is not.
    """
    found = {
        _key(one.row): one
        for one in turn.answered
        if _key(one.row) in watched.asked or _key(one.row) not in watched.done
    }
    for key in watched.waiting - found.keys():
        for asked in turn.conversation.asked.get(key[0], ()):
            if _key(asked.row) == key and asked.result is not None:
                parts = turn.wire.result_parts(turn.request, asked.result)
                found[key] = Answered(
                    asked.row,
                    turn.arguments_of(asked),
                    own_output(turn.dialect, parts).text,
                    asked.result.is_error,
                )
    watched.waiting -= found.keys()
    return list(found.values())


def _effects(watched: Watched, turn: AgentRequest, answered: Sequence[Answered]) -> list[Effect]:
    if not answered:
        return []
    before = after = watched.seen
    if may_change(answered):
        after = watched.seen = watched.watch.look()
    return effects_of(turn.dialect, answered, watched.watch.root, before, after)


def _reached_by(watched: Watched, dialect: Dialect, effect: Effect) -> Iterable[CheckpointRow]:
    # What an earlier attempt has applied is applied again only by what changes the files again.
    is_again = any(row.checkpoint == "patch_applied" for row in watched.earlier)
    if effect.is_applied and watched.is_open("patch_applied") and (effect.changed or not is_again):
        yield watched.row("patch_applied", effect.answered.row, applied=True)
    if effect.ran and watched.is_open("tests_run"):
        command = command_of(dialect, effect.answered)
        if command is not None and watched.task.test_command.search(command):
            yield watched.row("tests_run", effect.answered.row)


def _journaled(watched: Watched, run: Run, conversation: Conversation, effect: Effect) -> JournaledCall:
    row = effect.answered.row
    return JournaledCall(
        run_id=watched.run_id,
        attempt=watched.attempt,
        conversation=conversation.id,
        position=row.position,
        call_id=row.call_id,
        tool=row.tool,
        family=row.family,
        call_digest=row.call_digest,
        changed_workspace=effect.changed,
        failed=effect.failed,
        tokens=run.tokens,
        wall_ms=watched.wall_ms,
        ts=timestamp(),
    )


def _inherit(watched: Watched, turn: AgentRequest) -> None:
    """The checkpoints of earlier attempts that this history has behind it."""
    rows = [row for row in watched.earlier if watched.is_open(row.checkpoint) and row.call_id is not None]
    if not rows:
        return
    # A history that was summed up has the calls themselves not in it any more.
    compacted = starts_with_compaction(turn.wire, turn.dialect, turn.request)
    for row in rows:
        key = (row.call_id or "", row.call_digest or "")
        there = key not in watched.asked and any(
            _key(asked.row) == key for asked in turn.conversation.asked.get(key[0], ())
        )
        if compacted or there:
            watched.inherited.add(row.checkpoint)


def is_same_model(named: str, said: str) -> bool:
    """Whether a response's model is the one that was named; its provider and its date may be left out."""
    named, said = (name.rpartition("/")[2].casefold() for name in (named, said))
    longer, shorter = (said, named) if len(said) >= len(named) else (named, said)
    return longer == shorter or (
        longer.startswith(shorter) and _EDITION.fullmatch(longer, len(shorter)) is not None
    )


_EDITION = re.compile(r"[-@:](?:\d{6,8}|\d{4}-\d\d-\d\d|\d{3}|latest|v\d+(?::\d+)?)")
