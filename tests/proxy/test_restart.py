"""A proxy that is killed anywhere and started again sends what it would have sent."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.exchange import Exchange
from scheduler.profile import Profile
from scoring.verify import verify_log
from tests.proxy.build import Answer, assistant, call, image, result, text, user
from tests.proxy.stage import Agent, Killed, Stage, profile

WASTED = "Wasted call — file unchanged since your last Read. Refer to that earlier tool_result instead."
CONTENTS = st.sampled_from(
    [
        "1\tx = 7\n2\ty = 8\n3\t",
        "1\tx = 9\n2\ty = 8",
        "plain text\nof two lines\n",
        "out\n\n<system-reminder>\nleft: 5\n</system-reminder>",
        WASTED,
        "(no output)",
        "",
        [text("one"), image()],
        [image()],
        "No result provided",
        "a\ud83db",
    ]
)
CALLS = st.sampled_from(
    [
        ("read", {"path": "a.txt"}),
        ("read", {"path": "/ws/a.txt"}),
        ("read", {"path": "b.txt", "offset": 1}),
        ("bash", {"command": "make > log"}),
        ("edit", {"path": "a.txt", "edits": []}),
    ]
)


@dataclass(frozen=True)
class Step:
    """One turn of one harness; ``order`` is how its results come back; ``lost`` answers come first."""

    who: int
    calls: tuple[tuple[str, dict[str, Any]], ...]
    contents: tuple[Any, ...]
    order: int
    lost: bool
    same_ids: bool
    count: bool
    compact: bool


STEPS = st.lists(CALLS, max_size=3).flatmap(
    lambda calls: st.builds(
        Step,
        who=st.integers(0, 2),
        calls=st.just(tuple(calls)),
        contents=st.tuples(*[CONTENTS] * len(calls)),
        order=st.integers(0, 5),
        lost=st.booleans(),
        same_ids=st.booleans(),
        count=st.booleans(),
        compact=st.sampled_from([False] * 7 + [True]),
    )
)
KINDS = {"empty": 2, "truncated": 2, "wrong_data": 2, "stale": 2, "post_effect_error": 1}
PROFILES = st.builds(
    lambda rate, identity, permanent, gap, force: profile(
        rate=rate,
        identity=identity,
        weights={
            "read": KINDS,
            "shell": {k: 1 for k in KINDS if k != "stale"},
            "edit": {"post_effect_error": 1},
        },
        persistence={"transient": 1, "permanent": permanent},
        min_gap=gap,
        force=[{"family": "read", "nth": 2, "kind": "truncated"}] if force else [],
    ),
    st.sampled_from([0.3, 0.7, 1]),
    st.sampled_from(["content", "ordinal"]),
    st.sampled_from([0, 1]),
    st.sampled_from([0, 1]),
    st.booleans(),
)
# Where the process dies: before this request, or instead of its n-th commit.
TROUBLES = st.dictionaries(st.integers(0, 25), st.sampled_from(["restart", 0, 1, 2, 3]), max_size=6)


class Run:
    """The steps against one stage; ``troubles`` say what befalls the proxy at each request."""

    def __init__(self, folder: Path, chosen: Profile, troubles: dict[int, Any], max_loaded: int) -> None:
        self.stage = Stage(folder, chosen, max_loaded=max_loaded)
        self.agents = [self.stage.pi("One."), self.stage.pi("Other."), self.stage.claude()]
        self.troubles = troubles
        self.sends = 0
        self.ids = 0

    def step(self, step: Step) -> None:
        agent = self.agents[step.who]
        if step.compact:
            opening = "The conversation history before this point was compacted into the following summary:\n"
            agent.messages[:] = [user(text(opening + f"{step.who} {self.ids}")), user(text("Go on."))]
        calls = []
        for tool, arguments in step.calls:
            self.ids += 1
            name = tool.title() if step.who == 2 else tool
            more = {"file_path": arguments["path"]} if "path" in arguments and step.who == 2 else {}
            calls.append(("id" if step.same_ids else f"id{self.ids}", name, arguments | more))
        if step.count:
            self.send(agent, None, "/v1/messages/count_tokens")
        if step.lost:
            self.send(agent, None)
        spelled = [(i, t, str(a).replace("'", '"')) for i, t, a in calls]
        self.send(agent, Answer("So.", spelled))
        agent.messages.append(assistant("So.", *(call(i, tool, **args) for i, tool, args in calls)))
        if calls:
            blocks = [result(i, c) for (i, _, _), c in zip(calls, step.contents, strict=True)]
            turned = blocks if step.same_ids else blocks[step.order % 3 :] + blocks[: step.order % 3]
            agent.messages.append(user(*turned))
        else:
            agent.messages.append(user(text("And now?")))

    def send(self, agent: Agent, answer: Answer | None, path: str = "/v1/messages") -> None:
        """Sends until the proxy lives long enough to pass the request and its answer on."""
        trouble = self.troubles.get(self.sends)
        self.sends += 1
        if trouble == "restart":
            self.stage.restart()
        if isinstance(trouble, int):
            with dying(self.stage, trouble):
                exchange = self.stage.post(agent.body(), agent.headers, path=path)
                self.stage.answer(exchange, answer)
                self.passed(agent, exchange)
                return
        exchange = self.stage.post(agent.body(), agent.headers, path=path)
        self.passed(agent, exchange)
        self.stage.answer(exchange, answer)

    def passed(self, agent: Agent, exchange: Exchange) -> None:
        assert exchange.refusal is None
        self.left.append(exchange.body)

    left: list[bytes]


@contextmanager
def dying(stage: Stage, commit: int) -> Iterator[None]:
    """The process dies instead of its ``commit``-th commit, and is started again."""
    true, left = stage.memory.transaction, [commit]

    @contextmanager
    def transaction() -> Iterator[None]:
        if not left[0]:
            raise Killed
        left[0] -= 1
        with true():
            yield

    stage.memory.transaction = transaction  # type: ignore[method-assign]
    try:
        yield
        stage.memory.transaction = true  # type: ignore[method-assign]
    except Killed:
        stage.restart()


def run(chosen: Profile, steps: list[Step], troubles: dict[int, Any], max_loaded: int = 64) -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        it = Run(Path(folder), chosen, troubles, max_loaded)
        it.left = []
        for step in steps:
            it.step(step)
        it.stage.end()
        logged = {d["payload_sha256"] for d in it.stage.decisions()}
        delivered = {d["payload_sha256"] for d in it.stage.records("delivery")}
        assert delivered <= logged
        verified = verify_log(it.stage.folder / "decisions.jsonl")
        assert not verified.differences
        assert verified.ok
        assert not it.stage.records("error")
        return it.left


@settings(max_examples=60)
@given(PROFILES, st.lists(STEPS, min_size=2, max_size=9), TROUBLES)
def test_killed_anywhere(chosen: Profile, steps: list[Step], troubles: dict[int, Any]) -> None:
    assert run(chosen, steps, troubles) == run(chosen, steps, {})


@settings(max_examples=25)
@given(PROFILES, st.lists(STEPS, min_size=2, max_size=9))
def test_nothing_stays_loaded(chosen: Profile, steps: list[Step]) -> None:
    assert run(chosen, steps, {}, max_loaded=1) == run(chosen, steps, {})


def test_every_fault_that_left_is_in_the_log(tmp_path: Path) -> None:
    """Killed between the log and the memory: the retry decides the same again."""
    stage = Stage(tmp_path, profile(rate=1, weights={"read": {"wrong_data": 1}}))
    agent = stage.claude()
    agent.ask(("t1", "Read", {"file_path": "a"}))
    agent.results(("t1", "1\tx = 7"))
    with stage.killed_at_commit():
        agent.ask()
    sent = agent.ask()
    digest = hashlib.sha256(sent["t1"].encode()).hexdigest()
    assert [d["payload_sha256"] for d in stage.decisions()] == [digest, digest]


def test_a_fault_inherited_from_a_call_that_the_log_does_not_have(tmp_path: Path) -> None:
    """Three calls with one id, summed up before they were answered, and asked again under the same id: the
    first of two alike handed its permanent fault to the second and never came to be decided itself."""
    weights = {"read": KINDS, "edit": {"post_effect_error": 1}}
    chosen = profile(
        rate=1, identity="ordinal", weights=weights, persistence={"transient": 1, "permanent": 1}
    )
    body = "1\tx = 7\n2\ty = 8\n3\t"
    look, edit = ("read", {"path": "a.txt"}), ("edit", {"path": "a.txt", "edits": []})

    def step(*calls: Any, who: int = 0, same: bool = False, compact: bool = False) -> Step:
        return Step(who, calls, (body,) * len(calls), 0, False, same, False, compact)

    steps = [
        *(step(), step(look, edit, edit, same=True), step(compact=True), step(who=1)),
        *(step(look), step(look, look, edit, same=True, compact=True)),
    ]
    run(chosen, steps, {})


@settings(max_examples=30)
@given(PROFILES, st.lists(STEPS, min_size=2, max_size=7), st.randoms(use_true_random=False))
def test_results_in_any_order(chosen: Profile, steps: list[Step], chance: Random) -> None:
    """Each call gets the same, whichever of a batch came back first."""
    ordered = [replace(step, same_ids=False, order=0) for step in steps]
    shuffled = [replace(step, same_ids=False, order=chance.randrange(3)) for step in ordered]

    def contents(steps: list[Step]) -> list[dict[str, Any]]:
        return [
            {
                block["tool_use_id"]: block["content"]
                for message in json.loads(left)["messages"]
                for block in message["content"]
                if block["type"] == "tool_result"
            }
            for left in run(chosen, steps, {})
        ]

    assert contents(shuffled) == contents(ordered)
