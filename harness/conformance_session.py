"""One start of a harness between the scripted model and a proxy, with everything kept that was seen."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from harness.adapter import Adapter, Job, Program
from harness.conformance_disk import Disk, picture
from harness.conformance_plan import END_TEXT, Placed, Plan, Site, write_files
from harness.conformance_probes import Offer, ProbeSet, filled
from harness.launch import Launch, Outcome, Running
from harness.received import Received
from harness.scripted_model import ThreadedScriptedModel
from harness.turns import Conversation, Turn
from ledger.records import AnyRecord, Decision, Delivery, Error
from proxy.injector import Injector
from proxy.options import InjectorOptions
from proxy.runs import DEFAULT_RUN
from proxy.server import BackgroundServer, ProxyServer
from proxy.service import ServiceSettings, open_service
from proxy.upstream import parse_upstreams
from scheduler.profile import Profile

SEED = 7
_LOOK_AGAIN_S = 0.02
# Some harnesses write their history down a while after the fact: what they lose is no question here.
_SETTLE_S = 2.0

Wrap = Callable[[Injector], Injector]
"""Puts something between the proxy's server and its injector: how the suite itself is tested."""


@dataclass(frozen=True, eq=False)
class Session:
    """What came of one start. ``received``: all that the endpoint was sent, in order; ``disk``: step → the
    folders of the cells near it, when the model was asked for that step; ``invalid``: whether the run is.
    ``resumed``: how many requests had come when the harness was started again."""

    plan: Plan
    outcome: Outcome
    received: tuple[Received, ...]
    records: tuple[AnyRecord, ...]
    disk: dict[int, dict[str, Disk]]
    invalid: bool
    resumed: int = 0

    @cached_property
    def main(self) -> tuple[Received, ...]:
        """The requests of the main agent, in order."""
        return self._main(self.received)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The bodies of ``main``, each spelled the same way."""
        return tuple(text_of(request) for request in self.main)

    @cached_property
    def other_texts(self) -> tuple[str, ...]:
        """Those of all other requests."""
        main = {id(request) for request in self.main}
        return tuple(text_of(r) for r in self.received if r.body and id(r) not in main)

    @cached_property
    def main_resumed(self) -> tuple[Received, ...]:
        """Those that came after the harness was started again."""
        return self._main(self.received[self.resumed :])

    def _main(self, requests: Iterable[Received]) -> tuple[Received, ...]:
        return tuple(
            request
            for request in requests
            if request.is_agent and self.plan.speaker(view_of(request).opening) == "main"
        )

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        return tuple(record for record in self.records if isinstance(record, Decision))

    @cached_property
    def deliveries(self) -> tuple[Delivery, ...]:
        return tuple(record for record in self.records if isinstance(record, Delivery))

    @cached_property
    def errors(self) -> tuple[Error, ...]:
        return tuple(record for record in self.records if isinstance(record, Error))

    def with_call(self, step: int) -> int | None:
        """Where in ``main`` the result of a step's call is first there."""
        return next((i for i, request in enumerate(self.main) if len(view_of(request).calls) > step), None)


def view_of(request: Received) -> Conversation:
    """What an agent's request says."""
    view = request.conversation
    if view is None:  # ``is_agent`` has looked
        raise AssertionError("not a model request")
    return view


def text_of(request: Received) -> str:
    """A body as text; JSON without the spellings that differ from writer to writer."""
    body = request.plain_body
    try:
        return json.dumps(json.loads(body), ensure_ascii=False)
    except ValueError:
        return body.decode("utf-8", "surrogateescape")


class _Witness:
    """The model: answers the main agent and those that its tools start from the script, and takes a picture
    of the disk whenever the main one asks. Once it is ``done`` it asks for no tool any more."""

    def __init__(self, plan: Plan, home: Path) -> None:
        self.disk: dict[int, dict[str, Disk]] = {}
        self.done = False
        self._plan = plan
        self._home = home

    def __call__(self, view: Conversation) -> Turn:
        speaker = self._plan.speaker(view.opening)
        if self.done or speaker == "other":
            return Turn(END_TEXT)
        turn = self._plan.script(view)
        if speaker == "main":
            step = self._plan.steps if turn.step is None else turn.step
            self._look(step)
        return turn

    def _look(self, step: int) -> None:
        seen = self.disk.setdefault(step, {})
        for placed in self._plan.placed:
            if placed.first <= step <= placed.end and placed.cell.name not in seen:
                seen[placed.cell.name] = picture(_watched(placed, self._home))


def _watched(placed: Placed, home: Path) -> Iterable[Path]:
    yield placed.folder
    for pattern in placed.cell.probe.watch:
        yield from sorted(home.glob(pattern))


@dataclass(frozen=True)
class Stage:
    """Everything that the sessions of one harness share. ``site``: where each of them plays, made anew."""

    adapter: Adapter
    program: Program
    probes: ProbeSet
    offer: Offer
    site: Site
    logs: Path
    timeout_s: float
    wrap: Wrap = field(default=lambda injector: injector)

    def clear(self, plan: Plan) -> None:
        """A fresh workspace with the cells' files, and a fresh HOME."""
        for folder in (self.site.workspace, self.site.home):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        write_files(plan)
        for name, text in self.offer.home_files.items():
            path = self.site.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(filled(text, self._places()), encoding="utf-8")
        for placed in plan.placed:
            picture(_watched(placed, self.site.home))

    def play(
        self, plan: Plan, name: str, *, profile: Profile | None = None, options: InjectorOptions | None = None
    ) -> Session:
        """One session in a fresh place, from the first call to the last. ``profile`` takes the place of the
        plan's."""
        self.clear(plan)
        return self._served(
            plan,
            name,
            profile or plan.profile,
            options or InjectorOptions(),
            lambda url, _model, _witness: self._launch(url).run(self.timeout_s),
        )

    def play_killed(self, plan: Plan, name: str) -> Session:
        """A session that is killed in its last call and then resumed under the same run.

        Raises ``HarnessError`` when this harness cannot resume.
        """
        self.clear(plan)
        self._launch("http://127.0.0.1:9", resume=True)
        resumed = 0

        def both(url: str, model: ThreadedScriptedModel, witness: _Witness) -> Outcome:
            nonlocal resumed
            ended_before = self._run_and_kill(url, plan)
            resumed, witness.done = len(model.received), True
            return ended_before or self._launch(url, resume=True).run(self.timeout_s)

        session = self._served(plan, name, plan.profile, InjectorOptions(), both)
        return replace(session, resumed=resumed)

    def _served(
        self,
        plan: Plan,
        name: str,
        profile: Profile,
        options: InjectorOptions,
        run: Callable[[str, ThreadedScriptedModel, _Witness], Outcome],
    ) -> Session:
        log = self.logs / name / "decisions.jsonl"
        witness = _Witness(plan, self.site.home)
        with ThreadedScriptedModel(witness) as model:
            # What an older run called a gap is asked again.
            options = replace(options, schedule_gaps=True)
            settings = ServiceSettings(SEED, profile, parse_upstreams([model.url]), log, options=options)
            injector = open_service(settings, lambda _line: None)
            server = ProxyServer(self.wrap(injector), settings.upstreams, "127.0.0.1", 0)
            with BackgroundServer(server) as background:
                outcome = run(f"http://127.0.0.1:{background.port}", model, witness)
            received = tuple(model.received)
        invalid = injector.runs.get(DEFAULT_RUN).invalid
        return Session(plan, outcome, received, _records(log), witness.disk, invalid)

    def _run_and_kill(self, url: str, plan: Plan) -> Outcome | None:
        """Kills the program in its last call; its outcome when it never came to that."""
        running = self._launch(url).start()
        try:
            hangs = self._waits_for(plan.started, running)
        except BaseException:
            running.kill()
            raise
        if not hangs:
            return running.wait(0.1)
        running.kill()
        running.wait(self.timeout_s)
        return None

    def _waits_for(self, started: Path | None, running: Running) -> bool:
        """Whether the program came to the call that does not end."""
        until = time.monotonic() + self.timeout_s
        while started is None or not started.exists():
            if running.ended or time.monotonic() > until:
                return False
            time.sleep(_LOOK_AGAIN_S)
        time.sleep(_SETTLE_S)
        return True

    def _launch(self, url: str, *, resume: bool = False) -> Launch:
        session = "3f0b7c52-7a51-4f0e-9d0c-5a2f6d9b1c44"
        job = Job(
            base_url=url,
            prompt="Please go on." if resume else self.probes.prompt,
            workspace=self.site.workspace,
            home=self.site.home,
            model=self.probes.model,
            session=None if resume else session,
            resume=session if resume else None,
            tools=self.offer.tools,
            env={name: filled(text, self._places()) for name, text in self.offer.env.items()},
        )
        launch = self.adapter.launch(self.program, job)
        # Files that the offer brings are not overwritten by those of the adapter.
        own = {self.site.home / name for name in self.offer.home_files}
        return replace(launch, files=tuple(file for file in launch.files if file[0] not in own))

    def _places(self) -> dict[str, str]:
        return {
            "home": str(self.site.home),
            "workspace": str(self.site.workspace),
            "site": self.site.web,
        }


_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(AnyRecord)


def _records(log: Path) -> tuple[AnyRecord, ...]:
    if not log.is_file():
        return ()
    return tuple(_decoder.decode(line) for line in log.read_bytes().splitlines())
