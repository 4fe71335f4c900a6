"""The proxy as a process: killed in the middle of a session, started again, under mitmdump."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.script import Script, scripted
from harness.scripted_model import ThreadedScriptedModel
from proxy.service import ServiceError, ServiceSettings, open_service
from proxy.upstream import parse_upstreams
from tests.proxy.build import Answer, assistant, body, call, result, streamed, user
from tests.proxy.kept import runs
from tests.proxy.stage import only, profile
from tests.proxy.test_sockets import FIRST, ask, connected
from tests.proxy.wires import EVENT_STREAM, RawModel, Request, send

ROOT = Path(__file__).parents[2]
FILE = "1\tline one\n2\tline two\n3\tline three"


class EndedAtOnce(Exception):
    """A process that did not come to listen, and what it said."""


@contextmanager
def started(arguments: list[str], folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process and the port that it says it listens on."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "HOME": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-c", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=environment,
    )
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            found = re.search(r"listening (?:on|at) (?:\w+://)?\S*?:(\d+)", line)
            if found:
                yield process, int(found[1])
                return
        raise EndedAtOnce("".join(said))
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def chaosproxy(model: str, folder: Path, kind: str = "wrong_data", seed: int = 7) -> list[str]:
    return [
        "from proxy.cli import main; main()",
        *("--seed", str(seed), "--profile", f"only-{kind}", "--port", "0"),
        *("--upstream", model, "--log", str(folder / "decisions.jsonl")),
    ]


def history(turns: int) -> list[dict[str, Any]]:
    messages = [user("hi " * 60)]
    for i in range(turns):
        messages += [
            assistant(call(f"t{i}", "Read", file_path=f"{i}.txt")),
            user(result(f"t{i}", f"{FILE} {i}")),
        ]
    return messages


def results(seen: Any) -> list[str]:
    return [
        block["content"]
        for message in seen.json["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]


def records(folder: Path, event: str) -> list[dict[str, Any]]:
    lines = (folder / "decisions.jsonl").read_bytes().splitlines()
    return [record for record in map(json.loads, lines) if record["event"] == event]


def test_killed_between_two_turns(tmp_path: Path) -> None:
    with ThreadedScriptedModel(Script()) as model:
        for turns in range(1, 5):
            with started(chaosproxy(model.url, tmp_path), tmp_path) as (process, port):
                assert send(port, body(history(turns))).status == 200
                process.send_signal(signal.SIGKILL)
        seen = [results(request) for request in model.agent_requests]
    last = seen[-1]
    assert len(last) == 4
    assert all(shown != f"{FILE} {i}" for i, shown in enumerate(last))
    for turn in seen:
        assert turn == last[: len(turn)]
    assert [d["call_id"] for d in records(tmp_path, "decision")] == ["t0", "t1", "t2", "t3"]
    assert len(records(tmp_path, "start")) == 4


def test_killed_while_a_request_is_under_way(tmp_path: Path) -> None:
    """The endpoint has the payload and has not answered: the log has its decision."""

    def answer(connection: socket.socket, _: Request) -> None:
        if len(model.requests) == 1:
            os.kill(process.pid, signal.SIGKILL)
        else:
            connection.sendall(EVENT_STREAM + b"data: {}\n\n")

    with RawModel(answer) as model:
        with started(chaosproxy(model.url, tmp_path), tmp_path) as (process, port):
            with pytest.raises((ConnectionError, OSError)):
                send(port, body(history(2)))
            process.wait(timeout=30)
        logged = {d["payload_sha256"] for d in records(tmp_path, "decision")}
        with started(chaosproxy(model.url, tmp_path), tmp_path) as (_, port):
            assert send(port, body(history(2))).status == 200
        assert model.requests[0].body == model.requests[1].body
        assert len(logged - {None}) == 1  # the first call had been answered some other way
        assert not records(tmp_path, "delivery")


def test_killed_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    raw = streamed(Answer("Well.", [("t1", "Read", '{"file_path": "1.txt"}')]))

    def answer(connection: socket.socket, _: Request) -> None:
        connection.sendall(EVENT_STREAM + raw[:-120])
        if len(model.requests) == 1:
            connection.recv(1)  # until the proxy is gone
        else:
            connection.sendall(raw[-120:])

    with RawModel(answer) as model:
        with (
            started(chaosproxy(model.url, tmp_path), tmp_path) as (process, port),
            socket.create_connection(("127.0.0.1", port), timeout=30) as harness,
        ):
            sent = body(history(1))
            head = f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: {len(sent)}\r\n"
            harness.sendall(head.encode() + b"anthropic-version: 1\r\n\r\n" + sent)
            got = b""
            while b'"t1"' not in got or b'"content_block_stop"' not in got.split(b'"t1"')[-1]:
                got += harness.recv(65536)
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=30)
        # The harness had the call whole, so it ran it: what was drawn for it is remembered.
        with started(chaosproxy(model.url, tmp_path), tmp_path) as (_, port):
            assert send(port, body(history(2))).status == 200
        (decision,) = [d for d in records(tmp_path, "decision") if d["call_id"] == "t1"]
        assert decision["skipped"] is None
        assert decision["payload_sha256"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_clean_stop(tmp_path: Path, number: int) -> None:
    with (
        ThreadedScriptedModel(Script()) as model,
        started(chaosproxy(model.url, tmp_path), tmp_path) as (process, port),
    ):
        assert send(port, body(history(1))).status == 200
        process.send_signal(number)
        assert process.wait(timeout=30) == 0
    (end,) = records(tmp_path, "end")
    assert end["ended"] == "complete"


@pytest.mark.parametrize(("seed", "kind"), [(8, "wrong_data"), (7, "empty")])
def test_another_seed_or_profile_on_the_same_log(tmp_path: Path, seed: int, kind: str) -> None:
    upstreams = parse_upstreams(["http://127.0.0.1:9"])
    log = tmp_path / "decisions.jsonl"
    with ThreadedScriptedModel(Script()) as model:
        with started(chaosproxy(model.url, tmp_path), tmp_path) as (_, port):
            send(port, body(history(1)))
        before = log.read_bytes()
        command = [sys.executable, "-c", *chaosproxy(model.url, tmp_path, kind, seed)]
        ended = subprocess.run(
            command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert ended.returncode == 2
    assert "seed 7" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert log.read_bytes() == before
    with pytest.raises(ServiceError, match="give another --log"):
        open_service(
            ServiceSettings(seed, profile(rate=1, weights={"read": {kind: 1}}), upstreams, log), print
        )


def test_two_proxies_on_one_log(tmp_path: Path) -> None:
    """Each would decide and write down what the other has. The one that was killed holds nothing back."""
    with ThreadedScriptedModel(Script()) as model:
        arguments = chaosproxy(model.url, tmp_path)
        with started(arguments, tmp_path) as (process, port):
            with (
                pytest.raises(EndedAtOnce, match="another chaosproxy serves with it"),
                started(arguments, tmp_path),
            ):
                pass
            assert send(port, body(history(1))).status == 200
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=30)
        with started(arguments, tmp_path) as (_, port):
            assert send(port, body(history(1))).status == 200
        first, second = map(results, model.agent_requests)
    assert first == second


def test_two_logs_in_one_folder(tmp_path: Path) -> None:
    """Another log is another run, whatever stands beside it."""
    upstreams = parse_upstreams(["http://127.0.0.1:9"])
    for seed, name in ((7, "a.jsonl"), (8, "b.jsonl"), (9, "decisions.jsonl")):
        injector = open_service(ServiceSettings(seed, only("empty"), upstreams, tmp_path / name), print)
        injector.close()
    assert sorted(file.name for file in tmp_path.iterdir() if file.suffix == ".db") == [
        "a.memory.db", "b.memory.db", "memory.db",
    ]  # fmt: skip


def test_a_memory_whose_log_is_gone(tmp_path: Path) -> None:
    with (
        ThreadedScriptedModel(Script()) as model,
        started(chaosproxy(model.url, tmp_path), tmp_path) as (_, port),
    ):
        send(port, body(history(1)))
    (tmp_path / "decisions.jsonl").unlink()
    settings = ServiceSettings(
        7, only("empty"), parse_upstreams(["http://127.0.0.1:9"]), tmp_path / "decisions.jsonl"
    )
    with pytest.raises(ServiceError, match=r"memory\.db remembers run default.*delete the memory"):
        open_service(settings, print)


# -- under mitmdump --


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def mitmdump(port: int, **options: str) -> list[str]:
    sets = [part for name, value in options.items() for part in ("--set", f"{name}={value}")]
    return [
        "from mitmproxy.tools.main import mitmdump; mitmdump()",
        *("--mode", "reverse:http://127.0.0.1:9", "--listen-host", "127.0.0.1", "-p", str(port)),
        *("-s", str(ROOT / "proxy" / "addon.py"), *sets),
    ]


def wait_for(port: int) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return
        time.sleep(0.05)
    raise AssertionError("nothing listens")


def test_the_addon_under_mitmdump(tmp_path: Path) -> None:
    port = free_port()
    with ThreadedScriptedModel(Script()) as model:
        options = {"chaos_seed": "7", "chaos_profile": "only-empty", "chaos_upstream": model.url}
        log = str(tmp_path / "decisions.jsonl")
        with started(mitmdump(port, chaos_log=log, **options), tmp_path) as (process, _):
            wait_for(port)
            reply = send(port, body(history(1)))
            assert reply.status == 200
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)
        assert "line one" not in model.received[0].body.decode()
    assert [d["kind"] for d in records(tmp_path, "decision")] == ["empty"]
    assert len(records(tmp_path, "delivery")) == 1
    assert len(records(tmp_path, "end")) == 1


def test_a_socket_under_mitmdump(tmp_path: Path) -> None:
    """What was held goes on as several messages, whoever runs the addon."""
    port = free_port()
    with ThreadedScriptedModel(scripted(runs("cat a", "c1"), "Done.")) as model:
        options = {"chaos_seed": "7", "chaos_profile": "only-permission_denied", "chaos_upstream": model.url}
        log = str(tmp_path / "decisions.jsonl")
        with started(mitmdump(port, chaos_log=log, **options), tmp_path) as (process, _):
            wait_for(port)
            got = asyncio.run(_over_a_socket(port))
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)
        assert [found.method for found in model.received] == ["GET", "WEBSOCKET"]
    kinds = [event["type"] for event in got]
    assert kinds[0] == "response.created"
    assert kinds.count("response.function_call_arguments.delta") > 1
    assert kinds[-1] == "response.completed"
    assert got[-1]["response"]["output"][0]["name"] == "exec_command__permission_denied"
    assert [d["kind"] for d in records(tmp_path, "decision")] == ["permission_denied", "permission_denied"]


async def _over_a_socket(port: int) -> list[Any]:
    async with connected(port, "/v1/responses") as socket:
        return await ask(socket, FIRST)


@pytest.mark.parametrize(
    "options",
    [
        {"chaos_profile": "moderat"},
        {"chaos_upstream": "ftp://x"},
        {"chaos_seed": "-1"},
        {"chaos_log": "/dev/null/x/decisions.jsonl"},
    ],
)
def test_options_that_cannot_be_used_let_nothing_through(tmp_path: Path, options: dict[str, str]) -> None:
    """mitmdump ends at once, or what it lets in is answered with the reason."""
    port = free_port()
    with ThreadedScriptedModel(Script()) as model:
        sets = {"chaos_log": str(tmp_path / "d.jsonl"), "chaos_upstream": model.url} | options
        statuses = []
        suppressed = contextlib.suppress(EndedAtOnce, OSError)
        with suppressed, started(mitmdump(port, **sets), tmp_path):
            statuses.append(send(port, body(history(1))).status)
        assert statuses in ([], [503])
        assert not model.received
