"""The command as a user meets it: in a process of its own, by its exit codes and its lines."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.script import scripted
from harness.scripted_model import ThreadedScriptedModel
from harness.turns import ToolCall

_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": os.pathsep.join(sys.path),
    "LANG": "C.UTF-8",
    "COLUMNS": "200",
}


def run(*arguments: str, home: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "proxy", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=100,
        cwd=home,
        env=_ENVIRONMENT | {"HOME": str(home)},
    )


@contextmanager
def served(home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """(process, base URL, start-up lines) of a serving chaosproxy; it is stopped with SIGINT."""
    process = subprocess.Popen(
        [sys.executable, "-m", "proxy", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=home,
        env=_ENVIRONMENT | {"HOME": str(home), "PYTHONUNBUFFERED": "1"},
    )
    lines: list[str] = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if line.startswith("For several runs"):
                break
        assert lines, process.communicate()
        url = next(line for line in lines if line.startswith("listening on ")).split()[2]
        yield process, url, lines
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)


def post(url: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(
        url, data=body, headers={"content-type": "application/json", "x-api-key": "sk-secret-1", **headers}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def agent_body(*results: tuple[str, str]) -> bytes:
    """A small agent's request whose history has one Read and its result per pair (path, text)."""
    messages: list[dict[str, object]] = [{"role": "user", "content": "do it"}]
    for i, (path, text) in enumerate(results):
        call = {"type": "tool_use", "id": f"t{i}", "name": "Read", "input": {"file_path": path}}
        result = {"type": "tool_result", "tool_use_id": f"t{i}", "content": text}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    tool = {"name": "Read", "input_schema": {"type": "object"}}
    return json.dumps({"model": "m", "messages": messages, "tools": [tool]}).encode()


@pytest.mark.parametrize(
    "command",
    ["", "score", "report", "explain", "verify", "doctor", "profiles", "harnesses", "demo"],
)
def test_help_teaches(tmp_path: Path, command: str) -> None:
    done = run(*([command] if command else []), "--help", home=tmp_path)
    assert done.returncode == 0
    assert "Usage: chaosproxy" in done.stdout.replace("python -m proxy", "chaosproxy")
    assert len(done.stdout) > 200


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: x\nrate: 0.1\nweights: {read: {emty: 1}}\n", "did you mean 'empty'?"),
        ("name: x\nrate: 0.1\nweights: {raed: {empty: 1}}\n", "did you mean 'read'?"),
        ("name: x\nrat: 0.1\n", "did you mean 'rate'?"),
        ("name: x\nrate: 1.5\n", "less than or equal to 1"),
        ("name: x\nrate: 0.1\nweights: {write: {truncated: 1}}\n", "does not fit family 'write'"),
        ("name: x\nrate: 0\n", "can fire nothing"),
        ("name: [", "not YAML"),
        ("- a\n", "is a mapping"),
    ],
)
def test_an_unusable_profile_is_one_clear_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "p.yaml").write_text(text)
    done = run("--profile", "p.yaml", home=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_an_unknown_profile_names_the_nearest(tmp_path: Path) -> None:
    done = run("--profile", "modrate", home=tmp_path)
    assert done.returncode == 2
    assert "did you mean 'moderate'?" in done.stderr


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("--port", str(taken.getsockname()[1]), home=tmp_path)
    assert done.returncode == 2
    assert "in use" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("upstream", "says"),
    [
        ("http://127.0.0.1:1", "cannot be reached"),
        ("ftp://somewhere", "not a usable upstream"),
        ("antropic=http://127.0.0.1:1", "did you mean 'anthropic'?"),
    ],
)
def test_an_unusable_upstream(tmp_path: Path, upstream: str, says: str) -> None:
    done = run("--port", "0", "--upstream", upstream, home=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_unwritable_log(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("--port", "0", "--log", "file/decisions.jsonl", home=tmp_path)
    assert done.returncode == 2
    assert "cannot write the log" in done.stderr
    assert done.stderr.count("\n") == 1


def test_listening_for_others_wants_a_token(tmp_path: Path) -> None:
    done = run("--host", "0.0.0.0", "--port", "0", home=tmp_path)
    assert done.returncode == 2
    assert "--token" in done.stderr


def test_serving_from_start_to_score(tmp_path: Path) -> None:
    with ThreadedScriptedModel(scripted(ToolCall("Read", {"file_path": "b.txt"}), "Done.")) as model:
        with served(tmp_path, "--profile", "only-empty", "--upstream", model.url, "--log", "d.jsonl") as (
            process,
            url,
            lines,
        ):
            text = "\n".join(lines)
            assert f"export ANTHROPIC_BASE_URL={url}" in text
            assert "export ENABLE_TOOL_SEARCH=true" in text
            for run_id in ("one", "two"):
                status, _ = post(f"{url}/run/{run_id}/v1/messages", agent_body(("a.txt", "secret text")))
                assert status == 200
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "ended: 2 runs" in out
        assert "run one: first request" in err
        assert all(b"secret text" not in request.body for request in model.received)
    assert (tmp_path / "d.jsonl").stat().st_mode & 0o777 == 0o600
    assert "sk-secret-1" not in (tmp_path / "d.jsonl").read_text()

    judged = run("score", "d.jsonl", home=tmp_path)
    assert judged.returncode == 3, "nobody said whether the runs passed"
    (tmp_path / "v.json").write_text('{"one": {"passed": true, "ended": "complete"}, "two": false}')
    judged = run("score", "d.jsonl", "--verdicts", "v.json", home=tmp_path)
    assert "runs: 2 | truncation_rate: 0.000 | strict: 0.500" in judged.stdout
    assert run("verify", "d.jsonl", home=tmp_path).returncode == 0


def test_a_restart_must_agree_with_its_log(tmp_path: Path) -> None:
    with ThreadedScriptedModel(scripted("Done.")) as model:
        with served(tmp_path, "--seed", "7", "--upstream", model.url, "--log", "d.jsonl") as (_, url, _lines):
            assert post(f"{url}/v1/messages", agent_body())[0] == 200
        done = run("--seed", "8", "--port", "0", "--upstream", model.url, "--log", "d.jsonl", home=tmp_path)
    assert done.returncode == 2
    assert "seed 7" in done.stderr


def test_a_token_opens_every_path_and_is_written_nowhere(tmp_path: Path) -> None:
    with (
        ThreadedScriptedModel(scripted("Done.")) as model,
        served(tmp_path, "--token", "open-sesame", "--upstream", model.url, "--log", "d.jsonl") as (
            _,
            url,
            _lines,
        ),
    ):
        assert url.endswith("/open-sesame")
        assert post(f"{url}/v1/messages", agent_body())[0] == 200
        bare = url.removesuffix("/open-sesame")
        assert post(f"{bare}/v1/messages", agent_body())[0] == 403
        assert post(f"{bare}/other/v1/messages", agent_body())[0] == 403
        assert len(model.received) == 1
        assert model.received[0].path == "/v1/messages"
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.name != "mitmproxy-ca.pem":
            assert b"open-sesame" not in file.read_bytes()


def test_verify_finds_one_changed_figure(tmp_path: Path) -> None:
    with (
        ThreadedScriptedModel(scripted("Done.")) as model,
        served(tmp_path, "--profile", "only-empty", "--upstream", model.url, "--log", "d.jsonl") as (
            _,
            url,
            _lines,
        ),
    ):
        post(f"{url}/v1/messages", agent_body(("a.txt", "text a")))
    log = tmp_path / "d.jsonl"
    assert run("verify", "d.jsonl", home=tmp_path).returncode == 0
    for field, value in {"u": 0.25, "kind": "truncated", "fired": False, "persistence": "permanent"}.items():
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for record in lines:
            if record["event"] == "decision":
                record[field] = value
        (tmp_path / "changed.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
        done = run("verify", "changed.jsonl", home=tmp_path)
        assert done.returncode == 1, field
        assert field in done.stdout


def test_explain_agrees_with_what_is_served(tmp_path: Path) -> None:
    query = {
        "tool": "Read",
        "arguments": {"file_path": "a.txt"},
        "harness": "claude-code",
        "result": "1\tx = 10\n2\t",
    }
    done = run(
        "explain",
        "--seed",
        "7",
        "--profile",
        "only-wrong_data",
        "--json",
        home=tmp_path,
        stdin=json.dumps(query),
    )
    assert done.returncode == 0, done.stderr
    explained = json.loads(done.stdout)
    assert explained["key"][:2] == ["content", "default"]
    with (
        ThreadedScriptedModel(scripted("Done.")) as model,
        served(
            tmp_path,
            "--seed",
            "7",
            "--profile",
            "only-wrong_data",
            "--upstream",
            model.url,
            "--log",
            "d.jsonl",
        ) as (_, url, _lines),
    ):
        body = agent_body(("a.txt", "1\tx = 10\n2\t"))
        post(f"{url}/v1/messages", body, **{"user-agent": "claude-cli/2.1.289 (external, cli)"})
        view = model.received[0].conversation
        assert view is not None
        assert view.results[0].text == explained["payload"]
    decision = next(
        record
        for record in map(json.loads, (tmp_path / "d.jsonl").read_text().splitlines())
        if record["event"] == "decision"
    )
    assert (decision["u"], decision["kind"], decision["call_digest"]) == (
        explained["u"],
        explained["kind"],
        explained["call_digest"],
    )


@pytest.mark.parametrize(
    "query",
    [
        "",
        "[]",
        '{"arguments": {}}',
        '{"tool": "Read", "arguments": {}, "harnes": 1}',
        '{"tool": "Read", "arguments": {}, "occurrence": -1}',
    ],
)
def test_explain_says_what_it_wants(tmp_path: Path, query: str) -> None:
    done = run("explain", home=tmp_path, stdin=query)
    assert done.returncode == 2
    assert done.stderr.startswith("chaosproxy: expected one call as JSON")


def test_forget_says_when_there_is_no_such_folder(tmp_path: Path) -> None:
    """A slip in the name must not look as if the texts were gone."""
    done = run("forget", "no-such-folder", home=tmp_path)
    assert done.returncode == 2
    assert "no-such-folder does not exist" in done.stderr


def test_doctor_names_what_is_in_the_way(tmp_path: Path) -> None:
    done = run("doctor", "claude-cod", "--upstream", "http://127.0.0.1:1", "--port", "0", home=tmp_path)
    assert done.returncode == 1
    assert "cannot be reached" in done.stdout
    assert "did you mean 'claude-code'?" in done.stdout
    (tmp_path / "p.yaml").write_text("name: x\nrate: 1\nweights: {fetch: {empty: 1}}\n")
    done = run("doctor", "pi", "--profile", "p.yaml", "--port", "0", home=tmp_path)
    assert done.returncode == 1
    assert "zero live faults" in done.stdout


def test_lists_are_plain_lines_when_piped(tmp_path: Path) -> None:
    done = run("profiles", home=tmp_path)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert ["moderate", "10%"] in [row[:2] for row in rows]
    assert any(row[0] == "truncated" and row[-1] == "after" for row in rows)


def test_harnesses_says_what_was_seen_to_work_also_of_one_that_is_not_installed(tmp_path: Path) -> None:
    rows = [line.split("\t") for line in run("harnesses", home=tmp_path).stdout.splitlines()]
    shown = {row[0]: row[1:] for row in rows}
    assert shown["pi"][:3] == ["Pi", "no", "1.0.3"]
    assert shown["pi"][3].startswith("1.0.3: ")
    assert shown["pi"][3].endswith(" cells pass")
    assert shown["generic"][3] == "by its dialect, untested"


def test_a_wrong_word_is_exit_2(tmp_path: Path) -> None:
    for arguments in (
        ["scor"],
        ["--seed", "-1"],
        ["--seed", "x"],
        ["score"],
        ["score", "nowhere"],
        ["verify", "nowhere"],
    ):
        assert run(*arguments, home=tmp_path).returncode == 2, arguments


def test_an_untested_version_is_refused_where_only_tested_ones_are_wanted(tmp_path: Path) -> None:
    with (
        ThreadedScriptedModel(scripted("Done.")) as model,
        served(tmp_path, "--upstream", model.url, "--tested-only") as (process, url, _),
    ):
        agent = {"user-agent": "claude-cli/9.9.9 (external, cli)"}
        status, answer = post(f"{url}/v1/messages", agent_body(), **agent)
        assert status == 400
        assert "Claude Code 9.9.9 has no capability file" in json.loads(answer)["error"]["message"]
        status, _ = post(
            f"{url}/v1/messages", agent_body(), **{"user-agent": "claude-cli/2.1.289 (external)"}
        )
        assert status == 200
        assert len(model.received) == 1
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "refused: Claude Code 9.9.9" in out


def test_a_supervised_run_of_an_untested_version_is_refused_before_it_starts(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("harness: reference\ntasks: shipped\n")
    done = run("run", "-m", "m.yaml", "-o", "out", "--tested-only", home=tmp_path)
    assert done.returncode == 2
    assert "reference" in done.stderr
    assert "has no capability file, and --tested-only refuses it" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["serve", "run", "explain"])
def test_capabilities_that_are_not_there_name_the_nearest(tmp_path: Path, command: str) -> None:
    (tmp_path / "m.yaml").write_text("harness: reference\n")
    arguments = {"serve": [], "run": ["run", "-m", "m.yaml", "-o", "out"], "explain": ["explain"]}[command]
    done = run(
        *arguments, "--capabilities", "codex@0.171.1", home=tmp_path, stdin='{"tool": "x", "arguments": {}}'
    )
    assert done.returncode == 2
    assert "did you mean 'codex@0.171.0'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_capability_file_of_ones_own_takes_kinds_away(tmp_path: Path) -> None:
    gap = {"tool": "Read", "family": "read", "kind": "empty", "result": "gap", "reason": "never shown"}
    (tmp_path / "mine.yaml").write_text(
        json.dumps(
            {
                "harness": "claude-code",
                "version": "1.0.0",
                "date": "2026-01-01",
                "tools": ["Read"],
                "tools_sha256": "0" * 64,
                "cells": [gap],
            }
        )
    )
    call = (
        '{"tool": "Read", "arguments": {"file_path": "a.txt"}, "harness": "claude-code", "result": "1\\tx"}'
    )
    asked = ["explain", "--profile", "only-empty", "--json"]
    before = json.loads(run(*asked, home=tmp_path, stdin=call).stdout)
    after = json.loads(run(*asked, "--capabilities", "mine.yaml", home=tmp_path, stdin=call).stdout)
    assert before["kind"] == "empty"
    assert after["kind"] is None
    assert after["u"] == before["u"]


def test_explain_knows_the_gaps_of_a_version(tmp_path: Path) -> None:
    call = '{"tool": "Read", "arguments": {}, "harness": "claude-code@2.1.2"}'
    done = run("explain", home=tmp_path, stdin=call)
    assert done.returncode == 2
    assert "did you mean 'claude-code@2.1.289'?" in done.stderr
    call = call.replace("2.1.2", "2.1.289")
    assert run("explain", home=tmp_path, stdin=call).returncode == 0


def test_a_log_is_gone_on_with_under_the_same_capabilities_only(tmp_path: Path) -> None:
    with ThreadedScriptedModel(scripted("Done.")) as model:
        options = ["--upstream", model.url, "--log", "log/decisions.jsonl"]
        with served(tmp_path, *options, "--capabilities", "codex@0.171.0") as (_, url, _):
            post(f"{url}/v1/messages", agent_body())
        done = run("--port", "0", *options, home=tmp_path)
        assert done.returncode == 2
        assert "was begun with other --capabilities" in done.stderr
