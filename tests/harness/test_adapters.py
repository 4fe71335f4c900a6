"""Adapters build the commands, environments and files that the programs need (as tried on the real ones)."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from harness.adapter import Adapter, HarnessError, Job, Program
from harness.adapters import adapter_named, adapter_names
from harness.claude_code import ClaudeCode
from harness.codex import Codex
from harness.gemini_cli import GeminiCli
from harness.mini_swe_agent import MiniSweAgent
from harness.opencode import OpenCode
from harness.pi import Pi
from harness.qwen_code import QwenCode
from harness.reference import Reference

PROGRAM = Program(Path("/cache/bin/prog"), "1.2.3", (Path("/cache/node/bin"),))
SESSION = "5f8ce11e-78c5-4f6e-a4c5-bc7a1d4ac1cd"


def job(**more: object) -> Job:
    return Job("http://127.0.0.1:8017/run/r1", "--do it", Path("/ws"), Path("/home/fresh"), **more)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def callers_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "CLAUDE_CODE_USE_BEDROCK",
        "CODEX_HOME",
        "GEMINI_API_KEY",
        "OPENAI_API_KEY",
    ):
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


@pytest.mark.parametrize("api", ["openai-completions", "openai-responses"])
def test_pi_over_an_openai_protocol(api: Any) -> None:
    ((_, text),) = Pi(api).launch(PROGRAM, job()).files
    ((_, settings),) = json.loads(text)["providers"].items()
    assert (settings["api"], settings["baseUrl"]) == (api, "http://127.0.0.1:8017/run/r1/v1")


def test_codex() -> None:
    launch = Codex().launch(PROGRAM, job(model="gpt-x", session=SESSION))
    assert launch.argv[:2] == ("/cache/bin/prog", "exec")
    assert launch.argv[-2:] == ("--", "--do it")
    line = " ".join(launch.argv)
    for option in (
        "--dangerously-bypass-approvals-and-sandbox",
        "--skip-git-repo-check",
        "--json",
        "--disable plugins",
        "--disable apps",
        "--model gpt-x",
    ):
        assert option in line
    assert "resume" not in launch.argv
    assert Codex().launch(PROGRAM, job(resume="r")).argv[-4:] == ("resume", "--last", "--", "--do it")


@pytest.mark.parametrize("transport", ["http", "websocket"])
def test_codexs_configuration(transport: Any) -> None:
    launch = Codex(transport).launch(PROGRAM, job())
    ((path, text),) = launch.files
    assert path == Path("/home/fresh/.codex/config.toml")
    config = tomllib.loads(text)
    provider = config["model_providers"][config["model_provider"]]
    assert provider["base_url"] == "http://127.0.0.1:8017/run/r1/v1"
    assert provider["wire_api"] == "responses"
    assert provider["env_key"] in launch.env
    assert provider["supports_websockets"] is (transport == "websocket")
    assert config["analytics"] == {"enabled": False}


def test_codexs_built_in_provider() -> None:
    (_, text), (path, auth) = Codex("built-in").launch(PROGRAM, job()).files
    config = tomllib.loads(text)
    assert config["openai_base_url"] == "http://127.0.0.1:8017/run/r1/v1"
    assert not config.keys() & {"model_provider", "model_providers"}
    assert path == Path("/home/fresh/.codex/auth.json")
    assert json.loads(auth).keys() == {"OPENAI_API_KEY"}


@pytest.mark.parametrize(
    ("api", "sdk"),
    [
        ("openai-chat", "@ai-sdk/openai-compatible"),
        ("openai-responses", "@ai-sdk/openai"),
        ("anthropic", "@ai-sdk/anthropic"),
    ],
)
def test_opencode(api: Any, sdk: str) -> None:
    launch = OpenCode(api).launch(PROGRAM, job(model="m-1", session=SESSION))
    assert launch.argv[:2] == ("/cache/bin/prog", "run")
    assert launch.argv[-2:] == ("--", "--do it")
    ((path, text),) = launch.files
    assert path == Path("/home/fresh/.config/opencode/opencode.json")
    ((name, provider),) = json.loads(text)["provider"].items()
    line = " ".join(launch.argv)
    assert f"--format json --auto --model {name}/m-1" in line
    assert (provider["npm"], list(provider["models"])) == (sdk, ["m-1"])
    assert provider["options"]["baseURL"] == "http://127.0.0.1:8017/run/r1/v1"
    assert launch.env["OPENCODE_DISABLE_MODELS_FETCH"] == launch.env["OPENCODE_DISABLE_AUTOUPDATE"] == "1"
    assert "--continue" not in launch.argv
    assert "--continue" in OpenCode(api).launch(PROGRAM, job(resume="r")).argv


def test_gemini_cli() -> None:
    launch = GeminiCli().launch(PROGRAM, job(model="gemini-x", session=SESSION))
    for option in ("--skip-trust", "--yolo", "--model=gemini-x", "--output-format=stream-json"):
        assert option in launch.argv
    assert launch.argv[-2:] == (f"--session-id={SESSION}", "--prompt=--do it")
    assert launch.env["GOOGLE_GEMINI_BASE_URL"] == "http://127.0.0.1:8017/run/r1"
    assert launch.env["PATH"].startswith("/cache/node/bin:")
    ((path, text),) = launch.files
    assert path == Path("/home/fresh/.gemini/settings.json")
    settings = json.loads(text)
    assert settings["security"]["auth"]["selectedType"] == "gemini-api-key"
    assert settings["privacy"]["usageStatisticsEnabled"] is False
    assert GeminiCli().launch(PROGRAM, job(resume=SESSION)).argv[-2:] == (
        "--resume=latest",
        "--prompt=--do it",
    )


def test_qwen_code() -> None:
    launch = QwenCode().launch(PROGRAM, job(model="qwen-x", session=SESSION))
    for option in ("--yolo", "--auth-type=openai", "--output-format=stream-json"):
        assert option in launch.argv
    assert launch.argv[-2:] == (f"--session-id={SESSION}", "--prompt=--do it")
    assert launch.env["OPENAI_BASE_URL"] == "http://127.0.0.1:8017/run/r1/v1"
    assert launch.env["OPENAI_MODEL"] == "qwen-x"
    ((path, text),) = launch.files
    assert path == Path("/home/fresh/.qwen/settings.json")
    assert json.loads(text)["privacy"]["usageStatisticsEnabled"] is False
    assert f"--resume={SESSION}" in QwenCode().launch(PROGRAM, job(resume=SESSION)).argv


@pytest.mark.parametrize(
    ("api", "model", "option"),
    [
        ("openai-chat", "openai/gpt-4.1", "--yolo"),
        ("openai-responses", "openai/gpt-4.1", "--model-class=litellm_response"),
        ("anthropic", "anthropic/claude-sonnet-4-5", "--yolo"),
    ],
)
def test_mini_swe_agent(api: Any, model: str, option: str) -> None:
    launch = MiniSweAgent(api).launch(PROGRAM, job(session=SESSION))
    for given in (f"--model={model}", option, "--exit-immediately", "--task=--do it"):
        assert given in launch.argv
    assert launch.env["OPENAI_BASE_URL"] == "http://127.0.0.1:8017/run/r1/v1"
    assert launch.env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8017/run/r1"
    assert launch.env["MSWEA_CONFIGURED"] == "true"
    with pytest.raises(HarnessError, match="cannot be resumed"):
        MiniSweAgent(api).launch(PROGRAM, job(resume=SESSION))


@pytest.mark.parametrize("adapter", [Codex(), OpenCode(), GeminiCli(), QwenCode(), MiniSweAgent()])
def test_what_cannot_be_given_other_tools_says_so(adapter: Adapter) -> None:
    with pytest.raises(HarnessError, match="cannot be listed"):
        adapter.launch(PROGRAM, job(tools=("read",)))


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
    with pytest.raises(HarnessError, match=r"there are claude-code, pi, codex, .*, reference"):
        adapter_named("zzz")
