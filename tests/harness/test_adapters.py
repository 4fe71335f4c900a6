"""Adapters build the commands, environments and files that the programs need (as tried on the real ones)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from harness.adapter import HarnessError, Job, Program
from harness.adapters import adapter_named, adapter_names
from harness.claude_code import ClaudeCode
from harness.pi import Pi
from harness.reference import Reference

PROGRAM = Program(Path("/cache/bin/prog"), "1.2.3", (Path("/cache/node/bin"),))
SESSION = "5f8ce11e-78c5-4f6e-a4c5-bc7a1d4ac1cd"


def job(**more: object) -> Job:
    return Job("http://127.0.0.1:8017/run/r1", "--do it", Path("/ws"), Path("/home/fresh"), **more)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def callers_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "CLAUDE_CODE_USE_BEDROCK"):
        monkeypatch.setenv(name, "of the caller")


@pytest.mark.parametrize("name", adapter_names())
def test_every_launch_is_built_from_scratch(name: str) -> None:
    launch = adapter_named(name).launch(PROGRAM, job(env={"ADDED": "last"}))
    assert "of the caller" not in launch.env.values()
    assert launch.env["HOME"] == "/home/fresh"
    assert launch.env["TMPDIR"] == "/home/fresh/tmp"
    assert launch.env["ADDED"] == "last"
    assert str(Path(sys.executable).parent) in launch.env["PATH"].split(":")
    assert launch.cwd == Path("/ws")
    assert all(path.is_relative_to("/home/fresh") for path, _ in launch.files)
    assert "http://127.0.0.1:8017/run/r1" in json.dumps(
        [launch.argv, dict(launch.env), [t for _, t in launch.files]]
    )


def test_claude_code() -> None:
    launch = ClaudeCode().launch(PROGRAM, job(model="claude-x", session=SESSION, tools=("Read", "Grep")))
    assert launch.argv[0] == "/cache/bin/prog"
    assert launch.argv[-2:] == ("--", "--do it")
    for option in (
        "--print",
        "--output-format=stream-json",
        "--verbose",
        "--dangerously-skip-permissions",
        "--model=claude-x",
        f"--session-id={SESSION}",
        "--tools=Read,Grep",
    ):
        assert option in launch.argv
    env = launch.env
    assert env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8017/run/r1"
    assert env["IS_SANDBOX"] == env["DISABLE_TELEMETRY"] == env["DISABLE_AUTOUPDATER"] == "1"
    assert env["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] == "1"
    assert env["ENABLE_TOOL_SEARCH"] == "true"
    resumed = ClaudeCode().launch(PROGRAM, job(session=SESSION, resume=SESSION)).argv
    assert f"--resume={SESSION}" in resumed
    assert not any(option.startswith(("--session-id", "--tools")) for option in resumed)


def test_pi() -> None:
    launch = Pi().launch(PROGRAM, job(model="m-1", session=SESSION, tools=("read", "grep")))
    assert launch.argv[0] == "/cache/bin/prog"
    assert launch.argv[-2:] == ("--", "--do it")
    line = " ".join(launch.argv)
    for option in ("--print", "--mode json", "--offline", "--model m-1", "--tools read,grep"):
        assert option in line
    assert f"--session-id {SESSION}" in line
    assert launch.env["PATH"].startswith("/cache/node/bin:")
    ((path, text),) = launch.files
    assert path == Path("/home/fresh/.pi/agent/models.json")
    ((provider, settings),) = json.loads(text)["providers"].items()
    assert f"--provider {provider}" in line
    assert settings["baseUrl"] == "http://127.0.0.1:8017/run/r1"
    assert settings["api"] == "anthropic-messages"
    assert settings["models"] == [{"id": "m-1"}]
    assert f"--session-id {SESSION}" in " ".join(Pi().launch(PROGRAM, job(resume=SESSION)).argv)


def test_reference() -> None:
    adapter = Reference("naive")
    launch = adapter.launch(adapter.find(), job(session="s"))
    assert launch.argv[:4] == (sys.executable, "-P", "-m", "harness.reference_agent")
    for option in ("--workspace=/ws", "--policy=naive", "--prompt=--do it", "--session=s"):
        assert option in launch.argv
    assert "--resume=s" in adapter.launch(adapter.find(), job(resume="s")).argv


def test_an_unknown_harness_names_the_nearest() -> None:
    with pytest.raises(HarnessError, match="did you mean claude-code"):
        adapter_named("clude-code")
    with pytest.raises(HarnessError, match="there are claude-code, pi, reference"):
        adapter_named("zzz")
