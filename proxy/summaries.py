"""Requests that retell a conversation in a text: what was replaced is replaced there too, and a result that
is told there before the model has seen it is decided there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ledger.decisions import DecisionLog
from ledger.memory import CallRow, Memory, Tip
from proxy.conversation import Conversation, decode_draw
from proxy.deciding import plain_target
from proxy.exchange import Exchange
from proxy.findings import Findings
from proxy.flattened import Shown, owns_of, showings_of, shown_form, withheld_in
from proxy.observer import AgentRequest, Observer
from proxy.options import InjectorOptions
from proxy.protocols.wire import ParsedRequest, WireFormat, splice
from proxy.recording import Recorder
from proxy.retelling import NOTHING, Retold, retold
from proxy.runs import Conversations, Run
from proxy.walk import Walk
from scheduler.dialect import Dialect, Flattened


class Summaries:
    """What the requests of all runs retell."""

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

    def retold_in(
        self, run: Run, conversation: Conversation, wire: WireFormat, dialect: Dialect, request: ParsedRequest
    ) -> Retold:
        """What the new texts of an agent's turn come to: what was summed up, it keeps."""
        flattened = dialect.identify.flattened
        if flattened is None or not run.replaced:
            return NOTHING
        shown = partial(self._shown, run, dialect, flattened, conversation, None)
        return retold(
            wire,
            flattened,
            request,
            request.shared,
            "",
            partial(self._memory.text, run.run_id, conversation.id),
            shown,
            lambda _texts: shown(),
        )

    def take_in(
        self,
        exchange: Exchange,
        wire: WireFormat,
        dialect: Dialect,
        request: ParsedRequest,
        body: bytes,
        named: Conversation | None,
    ) -> bytes:
        """Decides and replaces what is retold by a request that is no agent's turn; gives back its body.

        ``named`` is the conversation that the harness says it is about; else it is the one that went upstream
        last. It is told as it stands then.
        """
        flattened, run = dialect.identify.flattened, exchange.run
        if flattened is None:
            return body
        newest = self._memory.newest_tip(run.run_id) if named is None else None
        about = named if newest is None else self._conversations.get(run, newest.conversation)
        try:
            return self._take_in(exchange, wire, dialect, flattened, request, body, about, newest)
        except BaseException:
            if about is not None:
                self._conversations.forget(run, about.id)
            raise

    def _take_in(
        self,
        exchange: Exchange,
        wire: WireFormat,
        dialect: Dialect,
        flattened: Flattened,
        request: ParsedRequest,
        body: bytes,
        about: Conversation | None,
        newest: Tip | None,
    ) -> bytes:
        run = exchange.run
        shown = partial(self._shown, run, dialect, flattened, about, newest, alone=True)
        walk = None if about is None else self._walk(run, wire, dialect, about, request)
        found = Findings()

        def decided(texts: Sequence[str]) -> Shown:
            nonlocal found
            if walk is not None and about is not None:
                found = walk.told(_awaiting(about), texts)
            return shown()

        texts = retold(
            wire,
            flattened,
            request,
            0,
            "" if newest is None else f"{newest.conversation} {newest.depth} {newest.calls}",
            partial(self._memory.text, run.run_id, ""),
            shown,
            decided,
        )
        self._log.write(found.decisions)
        with self._memory.transaction():
            if about is not None:
                self._memory.update_calls(run.run_id, about.id, found.changed)
            for text in texts.new:
                self._memory.add_text(run.run_id, "", text.digest, text.new)
        for doubt in texts.doubts:
            self._recorder.error(run, "flattened", doubt)
        if walk is not None and about is not None:
            run.replaced = run.replaced or any(row.payload is not None for row in found.changed)
            turn = AgentRequest(
                about, walk.request, wire, dialect, generates=False, answered=found.answered,
                arguments_of=walk.arguments_of,
            )  # fmt: skip
            if found.answered:
                self._log.write(self._observer.on_agent_request(run, turn))
            exchange.wait_s = found.wait_s
            exchange.retells = about.id
            exchange.carried = _first_told(flattened, about, texts)
            exchange.pinned = about
            about.in_flight += 1
        return splice(body, [text.edit for text in texts.edits])

    def _walk(
        self, run: Run, wire: WireFormat, dialect: Dialect, about: Conversation, request: ParsedRequest
    ) -> Walk:
        """Over the conversation's own last request: what is retold has no calls and results in it."""
        last = about.last if about.last is not None and about.wire == wire.name else request
        return Walk(
            run.settings,
            wire,
            dialect,
            about,
            last,
            log_texts=self._options.log_payloads,
            arguments_of=lambda row: self._memory.arguments(run.run_id, about.id, row.position),
        )

    def _shown(
        self,
        run: Run,
        dialect: Dialect,
        flattened: Flattened,
        conversation: Conversation | None,
        newest: Tip | None,
        *,
        alone: bool = False,
    ) -> Shown:
        """``alone``: it is asked for by a request that is no turn of the conversation."""
        here = conversation.id if conversation is not None else None
        elsewhere = [row for name in run.ids if name != here for row in self._memory.calls(run.run_id, name)]
        rows = conversation.rows if conversation is not None else []
        places = run.settings.places(conversation.row.workspace if conversation is not None else None)
        # What was summed up before is not retold again.
        first = newest.first if newest is not None else 0
        return Shown(
            showings_of(flattened, rows[first:]),
            showings_of(flattened, elsewhere + rows[:first]),
            lambda target: plain_target(places.abstract(target)),
            # The memory alone has the arguments of calls that are loaded.
            withheld_in(row for name in run.ids for row in self._memory.calls(run.run_id, name)),
            awaited=len(_awaiting(conversation)) if alone and conversation is not None else 0,
            at_stake=alone and self._is_at_stake(run, conversation if newest is None else None),
            owns=partial(owns_of, dialect),
        )

    def _is_at_stake(self, run: Run, conversation: Conversation | None) -> bool:
        """Whether the last answer of the conversation, or of any of the run where it is not known for sure
        which one is retold, has a call that is to fail and was not answered yet."""
        waiting = (
            [self._conversations.get(run, name) for name in self._memory.unanswered_conversations(run.run_id)]
            if conversation is None
            else [conversation]
        )
        return any(
            drawn.fired and drawn.limited is None
            for each in waiting
            for drawn in (decode_draw(row.draw) for row in _awaiting(each) if row.skipped is None)
        )


def _awaiting(conversation: Conversation) -> list[CallRow]:
    """The calls of the newest answer that have no result yet, in the model's order."""
    newest = max((row.depth for row in conversation.rows), default=0)
    waiting = [row for row in conversation.pending if row.depth == newest and row.skipped != "orphaned"]
    return sorted(waiting, key=lambda row: row.position)


def _first_told(flattened: Flattened, conversation: Conversation, texts: Retold) -> list[CallRow]:
    """The calls whose payload has never reached the model and stands in what is retold. One that is empty is
    retold by being left out, and only the newest are sure to have had a place there."""
    if not texts.told:
        return []
    newest = max((row.depth for row in conversation.rows), default=0)
    fresh = [
        (row, shown_form(flattened, row.payload))
        for row in conversation.rows
        if row.answered and row.payload is not None and not row.delivered and row.skipped != "superseded"
    ]
    return [
        row
        for row, form in fresh
        if (
            any(flattened.open + form in text for text in texts.told) if form.strip() else row.depth == newest
        )
    ]
