"""No fault, no change: every byte and header of every harness, whatever the coding of its bodies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.relay import CODINGS, Relay
from tests.e2e.stage import OTHERS, SOCKETS, SPEECHES, Stage, call_turns, forced, result_of

# The address is another one, and responses have to be read, so none is asked for in a coding.
_OURS = {"host", "accept-encoding"}


def _kept(headers: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in _OURS]


@pytest.mark.parametrize("name", [name for name in (*SPEECHES, *OTHERS) if name not in SOCKETS])
def test_profile_off_leaves_every_byte(stage: Callable[[str], Stage], name: str) -> None:
    scene = stage(name)
    speech = scene.speech
    scene.write({f"part{n}.txt": f"content of part {n}\nvalue = {n}\n" for n in range(3)})
    calls = [
        call
        for n in range(3)
        for call in (speech.reads(f"part{n}.txt"), speech.runs(f"wc -l part{n}.txt; echo counted {n}"))
    ]
    with Relay(("", *CODINGS)) as relay:
        played = scene.play(call_turns(*calls), "off", base=relay.forward_to)
        sent = relay.passed
    assert played.outcome.exit_code == 0, played.outcome.stderr[-2000:]
    assert not played.of("error")
    # It was looked at, every call of it.
    assert len(played.of("decision")) >= len(calls)
    assert not any(record["fired"] for record in played.of("decision"))

    got = [(f"{r.method} {r.path} HTTP/1.1", _kept(r.headers), r.body) for r in played.received]
    assert sorted(got) == sorted((p.line, _kept(p.headers), p.body) for p in sent)
    codings = {request.header("content-encoding") for request in played.turns}
    assert codings == {None, *CODINGS}
    assert all(record["bytes_in"] == record["bytes_out"] for record in played.of("request"))


@pytest.mark.parametrize("name", ["pi", "pi-chat", "codex", "gemini-cli"])
def test_a_body_with_a_fault_leaves_in_the_coding_it_came_in(
    stage: Callable[[str], Stage], name: str
) -> None:
    scene = stage(name)
    speech = scene.speech
    calls = [speech.runs("echo the true words"), *(speech.runs(f"echo step {n}") for n in range(4))]
    with Relay((*CODINGS, "")) as relay:
        played = scene.play(
            call_turns(*calls),
            forced({"tool": speech.shell, "nth": 1, "kind": "post_effect_error"}),
            base=relay.forward_to,
        )
        sent = {passed.body for passed in relay.passed}
    later = played.turns[1:]
    assert len(later) == len(calls)
    assert len({result_of(request, 0).text for request in later}) == 1
    assert [r.header("content-encoding") for r in later] == ["deflate", "br", "zstd", None, "gzip"]
    for request in later:
        assert b"the true words" not in request.plain_body.replace(b"echo the true words", b"")
        assert request.header("content-length") == str(len(request.body))
        assert request.body not in sent, "it came as it left"
    assert all(r["faults"] == 1 for r in played.of("request")[-len(later) :])
