"""The control API over real sockets, beside a proxy that serves."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from configs import load_profile
from harness.script import scripted
from harness.scripted_model import ThreadedScriptedModel
from proxy.injector import Injector
from proxy.server import BackgroundServer, ProxyServer, ServerError
from proxy.service import ServiceSettings, open_service
from proxy.upstream import parse_upstreams
from tests.proxy.build import body, user


class Served:
    """A proxy with its control API, and the endpoint behind it."""

    def __init__(self, url: str, proxy: str, injector: Injector, log: Path) -> None:
        self.url, self.proxy, self.injector, self.log = url, proxy, injector, log

    def call(self, method: str, path: str, data: Any = None, **headers: str) -> tuple[int, Any]:
        raw = data if isinstance(data, bytes) or data is None else json.dumps(data).encode()
        request = urllib.request.Request(self.url + path, data=raw, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def ask(self, run_id: str) -> int:
        request = urllib.request.Request(
            f"{self.proxy}/run/{run_id}/v1/messages",
            data=body([user("hello")], stream=False),
            headers={"content-type": "application/json", "x-api-key": "k"},
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    def records(self, event: str) -> list[dict[str, Any]]:
        return [r for r in map(json.loads, self.log.read_text().splitlines()) if r["event"] == event]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    log = tmp_path / "decisions.jsonl"
    with ThreadedScriptedModel(scripted("Done.")) as model:
        upstreams = parse_upstreams([model.url])
        injector = open_service(ServiceSettings(5, load_profile("mild"), upstreams, log), lambda _line: None)
        server = ProxyServer(injector, upstreams, "127.0.0.1", 0, control_port=0)
        with BackgroundServer(server) as running:
            yield Served(
                f"http://127.0.0.1:{server.control_port}", f"http://127.0.0.1:{running.port}", injector, log
            )


def test_a_run_is_registered_served_listed_and_ended(served: Served) -> None:
    said = {
        "task_id": "tax",
        "repeat": 2,
        "seed": 9,
        "profile": "moderate",
        "harness": "pi",
        "token_budget": 9000,
    }
    status, shown = served.call("PUT", "/runs/r1", said)
    assert status == 201
    assert shown["base_url"] == f"{served.proxy}/run/r1"
    assert {key: shown[key] for key in said} == said
    assert served.ask("r1") == 200
    (start,) = served.records("start")
    assert (start["task_id"], start["repeat"], start["seed"]) == ("tax", 2, 9)
    assert (start["profile"]["name"], start["harness"]) == ("moderate", "pi")
    status, listed = served.call("GET", "/runs")
    (run,) = listed["runs"]
    assert (run["run_id"], run["started"], run["complete"], run["ended"]) == ("r1", True, True, False)
    assert run["tokens_used"] > 0
    status, shown = served.call("POST", "/runs/r1/end", {"ended": "complete", "passed": True})
    assert (status, shown["ended"]) == (200, True)
    (end,) = served.records("end")
    assert (end["ended"], end["passed"]) == ("complete", True)
    assert served.call("POST", "/runs/r1/end", {})[0] == 409


def test_what_is_left_out_keeps_the_command_lines_word(served: Served) -> None:
    status, shown = served.call("PUT", "/runs/r1")
    assert status == 201
    assert (shown["task_id"], shown["seed"], shown["profile"], shown["token_budget"]) == (
        "r1",
        5,
        "mild",
        None,
    )


def test_a_whole_profile_can_be_given(served: Served) -> None:
    profile = {"name": "mine", "rate": 0.5, "weights": {"read": {"empty": 1}}}
    assert served.call("PUT", "/runs/r1", {"profile": profile})[1]["profile"] == "mine"


def test_registering_again(served: Served) -> None:
    assert served.call("PUT", "/runs/r1", {"seed": 1})[0] == 201
    assert served.call("PUT", "/runs/r1", {"seed": 1})[0] == 200
    assert served.call("PUT", "/runs/r1", {"seed": 2})[0] == 201, "not begun: it may still change"
    served.ask("r1")
    assert served.call("PUT", "/runs/r1", {"seed": 2})[0] == 200
    status, problem = served.call("PUT", "/runs/r1", {"seed": 3})
    assert status == 409
    assert "has begun" in problem["error"]


def test_the_end_of_a_run_is_what_was_seen_when_nobody_says(served: Served) -> None:
    served.call("PUT", "/runs/spent", {"token_budget": 1})
    assert served.ask("spent") == 200
    assert served.ask("spent") == 402
    served.call("POST", "/runs/spent/end", {"passed": False})
    served.ask("unregistered")
    served.call("POST", "/runs/unregistered/end")
    served.call("PUT", "/runs/never")
    served.call("POST", "/runs/never/end", {"ended": "error"})
    ends = {end["run_id"]: (end["ended"], end["passed"]) for end in served.records("end")}
    assert ends == {
        "spent": ("quota_cut", False),
        "unregistered": ("complete", None),
        "never": ("error", None),
    }
    assert "never" in {start["run_id"] for start in served.records("start")}


@pytest.mark.parametrize(
    ("method", "path", "data", "status", "says"),
    [
        ("PUT", "/runs/r1", {"sead": 1}, 400, "did you mean 'seed'?"),
        ("PUT", "/runs/r1", {"seed": -1}, 400, "seed: "),
        ("PUT", "/runs/r1", {"seed": "1"}, 400, "seed: "),
        ("PUT", "/runs/r1", {"seed": 2**64}, 400, "seed: "),
        ("PUT", "/runs/r1", {"profile": "modrate"}, 400, "did you mean 'moderate'?"),
        ("PUT", "/runs/r1", {"profile": {"name": "x"}}, 400, "profile: "),
        ("PUT", "/runs/r1", {"harness": "claude"}, 400, "did you mean 'claude-code'?"),
        ("PUT", "/runs/r1", {"token_budget": 0}, 400, "token_budget: "),
        ("PUT", "/runs/r1", {"task_id": ""}, 400, "task_id: "),
        ("PUT", "/runs/r1", [], 400, "valid dictionary"),
        ("PUT", "/runs/r1", b"{", 400, "is not JSON"),
        ("PUT", "/runs/r1", b"[" * 100_000, 400, "is not JSON"),
        ("PUT", "/runs/r1", b" " * (2 << 20), 413, "at most"),
        ("PUT", "/runs/a%20b", {}, 400, "a run id has"),
        ("PUT", "/runs/" + "x" * 129, {}, 400, "a run id has"),
        ("POST", "/runs/none/end", {}, 404, "no run 'none'"),
        ("POST", "/runs/default/end", {"ended": "completed"}, 404, "no run"),
        ("GET", "/run", None, 404, "PUT /runs/<run_id>"),
        ("DELETE", "/runs", None, 405, "takes GET"),
    ],
)
def test_what_is_wrong_says_what_to_do(
    served: Served, method: str, path: str, data: Any, status: int, says: str
) -> None:
    got, problem = served.call(method, path, data)
    assert got == status
    assert says in problem["error"]
    assert served.call("GET", "/runs")[1]["runs"] == []


def test_an_end_state_is_one_of_four(served: Served) -> None:
    served.ask("r1")
    status, problem = served.call("POST", "/runs/r1/end", {"ended": "completed"})
    assert (status, "did you mean 'complete'?" in problem["error"]) == (400, True)
    status, problem = served.call("POST", "/runs/r1/end", {"passed": 1})
    assert (status, "passed: " in problem["error"]) == (400, True)
    assert served.records("end") == []


def test_web_pages_cannot_steer_it(served: Served) -> None:
    assert served.call("GET", "/runs", Origin="http://example.com")[0] == 403
    assert served.call("GET", "/runs", Host="evil.example.com")[0] == 403
    assert served.call("GET", "/runs", Host="localhost:1")[0] == 200


def test_a_port_that_is_taken(served: Served, tmp_path: Path) -> None:
    upstreams = parse_upstreams([])
    log = tmp_path / "other" / "decisions.jsonl"
    injector = open_service(ServiceSettings(5, load_profile("mild"), upstreams, log), lambda _line: None)
    port = int(served.url.rpartition(":")[2])
    server = ProxyServer(injector, upstreams, "127.0.0.1", 0, control_port=port)
    with pytest.raises(ServerError, match=r"control API cannot listen.*in use"), BackgroundServer(server):
        pass
