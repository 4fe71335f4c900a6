"""Runs: what each run id stands for, and the conversations of each."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal

from ledger.memory import ConversationRow, Memory
from ledger.records import Start
from ledger.runs import Claim
from proxy.conversation import Conversation
from proxy.protocols.wire import ParsedRequest
from scheduler.call import Places
from scheduler.fitting import Gaps
from scheduler.profile import Profile

DEFAULT_RUN = "default"
_RUN_ID = re.compile(r"[A-Za-z0-9._~-]{1,128}")


def valid_run_id(run_id: str) -> bool:
    return _RUN_ID.fullmatch(run_id) is not None


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What one run is: its cell (task, seed, repeat), its profile and what is known of its machine.

    ``token_budget``: what all attempts together may use; None: no limit.
    """

    run_id: str
    task_id: str
    seed: int
    profile: Profile
    repeat: int = 0
    attempt: int = 1
    harness: str | None = None
    harness_version: str | None = None
    token_budget: int | None = None
    workspace: str | None = None
    home: str | None = None
    temp: tuple[str, ...] = ()
    gaps: Gaps = MappingProxyType({})

    def places(self, workspace: str | None) -> Places:
        return _places(self.workspace or workspace, self.temp, self.home)

    def profile_record(self) -> dict[str, Any]:
        """The profile as the log keeps it: resolved, with the gaps of the harness version."""
        return self.profile.resolved() | {"gaps": {tool: list(kinds) for tool, kinds in self.gaps.items()}}

    @property
    def profile_sha256(self) -> str:
        return self.profile.sha256


@lru_cache(maxsize=256)
def _places(workspace: str | None, temp: tuple[str, ...], home: str | None) -> Places:
    # Every call of a conversation asks for the same.
    return Places(workspace, temp, home)


@dataclass(slots=True)
class Run:
    """A run that is being served. ``complete``: its last agent request was answered and asked for no tool,
    ``claimed``: what the words of that answer come down to.

    ``replaced``: some result of it was. ``tokens``: used by all attempts so far. ``stopped``: nothing of it
    is let through any more. ``quota``: whose quota error its last request met. ``open_requests``: those whose
    answer is not over. ``begun_as``: whose gaps the log's ``start`` has; ``dialect``: the harness that
    its agent's requests come from, by the name of its dialect, once there was one; ``alike``: those that have
    the same gaps.
    """

    settings: RunSettings
    started: bool = False
    begun_as: str | None = None
    dialect: str | None = None
    alike: set[str] = field(default_factory=set)
    ended: bool = False
    complete: bool = False
    claimed: Claim | None = None
    invalid: bool = False
    tokens: int = 0
    stopped: bool = False
    open_requests: int = 0
    quota: Literal["ours", "theirs"] | None = None
    replaced: bool = False
    withholdable: dict[tuple[str, str], bool] = field(default_factory=dict)
    by_header: dict[str, str] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    loaded: bool = False

    @property
    def run_id(self) -> str:
        return self.settings.run_id


class RunBook:
    """Every run by its id; one that nobody registered takes the defaults, its task named like the run.

    ``begun``: the ``start`` records that the log has already.
    """

    def __init__(self, defaults: RunSettings, begun: Mapping[str, Start] = MappingProxyType({})) -> None:
        self._defaults = defaults
        self._begun = begun
        self._runs: dict[str, Run] = {}

    @property
    def defaults(self) -> RunSettings:
        return self._defaults

    def get(self, run_id: str) -> Run:
        run = self._runs.get(run_id)
        if run is None:
            task_id = self._defaults.task_id if run_id == self._defaults.run_id else run_id
            run = Run(replace(self._defaults, run_id=run_id, task_id=task_id))
            self._runs[run_id] = run
        return run

    def register(self, settings: RunSettings) -> Run:
        """Says beforehand what a run is; raises ``ValueError`` once its first request has come."""
        run = self._runs.get(settings.run_id)
        if run is not None and run.started:
            raise ValueError(f"run {settings.run_id} has begun: it cannot be changed any more")
        begun = self._begun.get(settings.run_id)
        if begun is not None:
            _check_same(begun, settings)
        run = Run(settings)
        self._runs[settings.run_id] = run
        return run

    def is_registered(self, run_id: str) -> bool:
        """Whether the run is known, by registration or by a request."""
        return run_id in self._runs

    def all(self) -> list[Run]:
        return list(self._runs.values())


def _check_same(begun: Start, settings: RunSettings) -> None:
    for name in ("seed", "profile_sha256", "task_id"):
        was, now = getattr(begun, name), getattr(settings, name)
        if was != now:
            raise ValueError(
                f"run {settings.run_id} was begun with {name} {was} in this log, not {now}: give it another"
                " run_id, or another log"
            )


class Conversations:
    """The conversations that are in memory; the least used ones live in memory.db alone until they are asked
    for again, so that what is held does not grow with the number of requests."""

    def __init__(self, memory: Memory, max_loaded: int = 64, max_cached_bytes: int = 64 << 20) -> None:
        self._memory = memory
        self._max_loaded = max_loaded
        self._max_cached_bytes = max_cached_bytes
        self._loaded: OrderedDict[tuple[str, str], Conversation] = OrderedDict()
        self._held_bytes = 0

    def load_run(self, run: Run) -> None:
        """What memory.db knows of a run's conversations."""
        if run.loaded:
            return
        for row in self._memory.conversations(run.run_id):
            run.ids.append(row.conversation)
            if row.header is not None:
                run.by_header[row.header] = row.conversation
        run.replaced = self._memory.has_replaced(run.run_id)
        run.loaded = True

    def get(self, run: Run, conversation: str) -> Conversation:
        key = (run.run_id, conversation)
        found = self._loaded.get(key)
        if found is None:
            row = self._memory.conversation(run.run_id, conversation)
            found = Conversation(row, run.settings.profile)
            found.restore(self._memory.calls(run.run_id, conversation))
            found.tip = self._memory.latest_tip(run.run_id, conversation)
            self._loaded[key] = found
        self._loaded.move_to_end(key)
        self._shed()
        return found

    def hold(self, conversation: Conversation, request: ParsedRequest) -> None:
        """Keeps the last request of a conversation, for the next one to be compared with."""
        self._held_bytes += len(request.body) - conversation.cached_bytes
        conversation.last = request
        self._shed()

    def let_go(self, conversation: Conversation) -> None:
        """Keeps no request of a conversation to compare the next one with."""
        self._held_bytes -= conversation.cached_bytes
        conversation.last = None

    def create(self, run: Run, role: str, header: str | None, workspace: str | None) -> Conversation:
        """A new, empty conversation, written down at once; ids count up from ``c0`` in each run."""
        row = ConversationRow(f"c{len(run.ids)}", role, header, workspace)
        with self._memory.transaction():
            self._memory.add_conversation(run.run_id, row)
        run.ids.append(row.conversation)
        if header is not None:
            run.by_header[header] = row.conversation
        found = Conversation(row, run.settings.profile)
        self._loaded[run.run_id, row.conversation] = found
        self._shed()
        return found

    def forget(self, run: Run, conversation: str) -> None:
        """Drops what is held; the next request builds it again from memory.db."""
        found = self._loaded.pop((run.run_id, conversation), None)
        if found is not None:
            self._held_bytes -= found.cached_bytes

    def recent(self, run: Run, most: int) -> list[Conversation]:
        """The loaded conversations of a run, latest first, and no more than ``most``."""
        of_run = (found for (run_id, _), found in reversed(self._loaded.items()) if run_id == run.run_id)
        return list(islice(of_run, most))

    def _shed(self) -> None:
        """Lets the least used ones go; not the newest, nor one that waits for an answer."""
        if not self._is_too_much():
            return
        for key, oldest in list(self._loaded.items())[:-1]:
            if not self._is_too_much():
                return
            if not oldest.in_flight:
                del self._loaded[key]
                self._held_bytes -= oldest.cached_bytes

    def _is_too_much(self) -> bool:
        return len(self._loaded) > self._max_loaded or self._held_bytes > self._max_cached_bytes
