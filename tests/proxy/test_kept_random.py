"""Random sessions over Responses: whatever goes wrong on the way, and whoever keeps the history, the model is
shown the same, and nothing but the results that fail is touched."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.turns import ToolCall
from scheduler.profile import Profile
from tests.proxy.build import dumps
from tests.proxy.kept import CODEX, THREAD, Harness, Way, printed, says, user
from tests.proxy.protocols.kits import TEXTS
from tests.proxy.stage import Stage, profile

Trouble = Literal["resent", "lost", "reconnect", "restart", "prepare", "whole"]
TROUBLES: tuple[Trouble, ...] = ("resent", "lost", "reconnect", "restart", "prepare", "whole")
WEIGHTS = {
    "shell": {
        "empty": 2,
        "wrong_data": 1,
        "post_effect_error": 1,
        "permission_denied": 1,
        "phantom_success": 1,
    },
    "edit": {"post_effect_error": 1, "not_found": 1},
}


LOST = "lost"


class Step(NamedTuple):
    """One answer of the model, what its calls print in which order, and what goes wrong before it."""

    calls: tuple[tuple[str, str], ...]
    printed: tuple[str, ...]
    order: tuple[int, ...]
    said: str
    troubles: tuple[Trouble, ...]


@st.composite
def steps(draw: st.DrawFn) -> Step:
    tools = st.sampled_from(["exec_command", "exec_command", "apply_patch"])
    calls = tuple(draw(st.lists(st.tuples(tools, st.sampled_from(["ls", "cat a", "cat b"])), max_size=3)))
    return Step(
        calls,
        tuple(draw(TEXTS) for _ in calls),
        tuple(draw(st.permutations(range(len(calls))))),
        draw(st.sampled_from(["", "go on", "größer"])),
        tuple(draw(st.lists(st.sampled_from(TROUBLES), max_size=2, unique=True))),
    )


PROFILES = st.builds(
    lambda rate, identity: profile(rate=rate, weights=WEIGHTS, identity=identity),
    st.sampled_from([0.3, 0.7, 1]),
    st.sampled_from(["content", "ordinal"]),
)


def call_of(at: int, number: int | str, tool: str, argument: str) -> ToolCall:
    call_id = f"call_{at}_{number}"
    if tool == "apply_patch":
        patch = f"*** Begin Patch\n*** Update File: {argument}\n*** End Patch"
        return ToolCall(tool, {}, call_id, patch)
    return ToolCall(tool, {"cmd": argument}, call_id)


def result(step: Step, number: int) -> str:
    text = step.printed[number]
    if step.calls[number][0] == "apply_patch":
        return (
            f"Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess. Updated the following files:\nM {text}\n"
        )
    return printed(text)


class Session:
    """One session on a stage of its own; ``sent`` and ``left``: each body before and behind the proxy."""

    def __init__(self, folder: Path, chosen: Profile, way: Way, headers: dict[str, str]) -> None:
        self.stage = Stage(folder, chosen)
        self.harness = Harness(self.stage, way, dict(headers))
        self.bodies: list[tuple[bytes, bytes]] = []

    def play(self, made: Sequence[Step], *, troubled: bool) -> None:
        for at, step in enumerate(made):
            turn = says(*(call_of(at, number, *call) for number, call in enumerate(step.calls)))
            for trouble in step.troubles if troubled else ():
                self._trouble(trouble, at)
            self._ask(turn)
            self.harness.answers(*((f"call_{at}_{n}", result(step, n)) for n in step.order))
            if step.said or not step.calls:
                self.harness.items.append(user(step.said or "go on"))
        self._ask(says())
        self.stage.end()

    def _ask(self, turn: Any, *, lost: bool = False, body: bytes | None = None, **more: Any) -> None:
        sent = self.harness.body(**more) if body is None else body
        self.bodies.append((sent, self.harness.ask(turn, lost=lost, body=sent)))

    def _trouble(self, trouble: Trouble, at: int) -> None:
        harness = self.harness
        match trouble:
            case "resent":
                self._ask(says(), lost=True)
            case "lost":
                kept = harness.answer_id, harness.sent, list(harness.items)
                self._ask(says(call_of(at, LOST, "exec_command", "cat a")))
                harness.answer_id, harness.sent, harness.items = kept
            case "reconnect" if harness.way == "socket":
                harness.reconnect()
                harness.answer_id = None
            case "restart":
                self.stage.restart()
                if harness.way == "socket":
                    harness.reconnect()
            case "prepare" if harness.way == "socket":
                self._ask(None, generate=False)
            case "whole":
                harness.answer_id = None


def shown_of(session: Session) -> list[Any]:
    """What the model was shown, without the ids of items, which hang on how often it was asked."""
    return [{key: value for key, value in item.items() if key != "id"} for item in session.harness.shown()]


@settings(max_examples=60)
@given(
    chosen=PROFILES,
    made=st.lists(steps(), min_size=1, max_size=5),
    way=st.sampled_from(["kept", "socket", "whole"]),
    headers=st.sampled_from([THREAD, CODEX]),
)
def test_the_model_is_shown_the_same(
    chosen: Profile, made: list[Step], way: Way, headers: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain = Session(Path(folder, "plain"), chosen, "whole", headers)
        plain.play(made, troubled=False)
        troubled = Session(Path(folder, "troubled"), chosen, way, headers)
        troubled.play(made, troubled=True)
        assert shown_of(troubled) == shown_of(plain)
        for session in (plain, troubled):
            assert not session.stage.records("error")
            is_paired(session)
            for sent, left in session.bodies:
                only_faults_changed(session, sent, left)
        faults = [decided(session) for session in (plain, troubled)]
        assert faults[0] == faults[1]


def decided(session: Session) -> list[tuple[Any, ...]]:
    """Each answered call's decision, once; those of a lost answer are no calls of the conversation."""
    found = [
        (d["call_id"], d["occurrence"], d["ordinal"], d["u"], d["kind"], d["payload_sha256"])
        for d in session.stage.decisions()
        if d["skipped"] != "orphaned" and not d["call_id"].endswith(LOST)
    ]
    assert len({call_id for call_id, *_ in found}) == len(found)
    firsts = Counter(d["call_id"] for d in session.stage.records("delivery") if d["first"])
    assert set(firsts.values()) <= {1}
    return sorted(found)


def is_paired(session: Session) -> None:
    """Every call has its one result, and every result its call before it."""
    called: set[str] = set()
    answered: set[str] = set()
    for item in session.harness.shown():
        if item["type"].endswith("_call"):
            assert item["name"] in ("exec_command", "apply_patch")
            assert item["call_id"] not in called
            called.add(item["call_id"])
        elif item["type"].endswith("_output"):
            assert item["call_id"] in called - answered
            answered.add(item["call_id"])
    assert called == answered


def only_faults_changed(session: Session, sent: bytes, left: bytes) -> None:
    """Byte for byte, but for what a faulted result says and the name of a call that never ran."""
    payloads = {d["call_id"]: d for d in session.stage.decisions() if d["payload_sha256"] is not None}
    before, after = json.loads(sent), json.loads(left)
    for old, new in zip(before["input"], after["input"], strict=True):
        if old != new:
            assert old["call_id"] in payloads
            key = "output" if "output" in old else "name"
            assert old | {key: new[key]} == new
            old[key] = new[key]
    assert dumps(before) == left
