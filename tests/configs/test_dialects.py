"""The shipped dialects."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import configs
from configs import ConfigError
from harness.reference_agent import INTERRUPTED, VERSION, system_text
from harness.reference_tools import TOOLS, Toolbox
from scheduler.dialect import has_failed, take_apart
from scheduler.faults import KINDS

NAMES = sorted(configs.dialects())


def test_the_harnesses_that_are_known() -> None:
    assert NAMES == [
        "claude-code",
        "codex",
        "gemini-cli",
        "generic",
        "mini-swe-agent",
        "opencode",
        "pi",
        "qwen-code",
        "reference",
    ]


# To these a command that ends badly is no failed call: no flag says so.
UNFLAGGED = {("opencode", "shell"), ("gemini-cli", "shell"), ("mini-swe-agent", "shell")}


def test_an_unknown_harness_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown harness 'claude': did you mean 'claude-code'\?"):
        configs.dialect("claude")


@pytest.mark.parametrize("name", NAMES)
def test_a_dialect_is_whole(name: str) -> None:
    dialect = configs.dialect(name)
    assert dialect.name == name
    for rule in [*dialect.tools.values(), *dialect.tool_patterns.values()]:
        assert rule.form is None or rule.form in dialect.forms
    for tool, rule in dialect.tools.items():
        form = dialect.form(tool, rule.family)
        for kind in ("post_effect_error", "timeout_after_effect"):
            if rule.family in KINDS[kind].families:
                assert form.errors.get(kind), f"{tool} has no wording of {kind}"
                if (name, rule.family) not in UNFLAGGED:
                    assert all(wording.error for wording in form.errors[kind])
    for form in dialect.forms.values():
        assert set(form.errors) <= set(KINDS)


# What the programs themselves send, and say of their workspace.
CLAUDE_CODE_TOOLS = """Agent Bash CronCreate CronDelete CronList DeferredToolPlaceholder Edit EnterWorktree
ExitWorktree Glob Grep ListAgents NotebookEdit Read ReportFindings ScheduleWakeup SendMessage Skill TaskCreate
TaskGet TaskList TaskStop TaskUpdate ToolSearch WebFetch WebSearch Workflow Write""".split()  # noqa: SIM905


@pytest.mark.parametrize(
    ("name", "tools"),
    [
        ("claude-code", CLAUDE_CODE_TOOLS),
        ("pi", ["read", "bash", "edit", "write", "grep", "find", "ls"]),
        ("reference", [tool["name"] for tool in TOOLS]),
        (
            "codex",
            ["exec_command", "write_stdin", "apply_patch", "view_image", "exec", "wait", "spawn_agent"],
        ),
        (
            "opencode",
            ["bash", "edit", "glob", "grep", "read", "skill", "task", "todowrite", "webfetch", "write"],
        ),
        ("gemini-cli", ["run_shell_command", "read_file", "write_file", "replace", "grep_search", "glob"]),
        (
            "qwen-code",
            ["run_shell_command", "read_file", "write_file", "edit", "grep_search", "glob", "agent"],
        ),
        ("mini-swe-agent", ["bash"]),
    ],
)
def test_every_tool_of_the_program_is_listed(name: str, tools: list[str]) -> None:
    assert set(tools) <= set(configs.dialect(name).tools)


@pytest.mark.parametrize(
    ("name", "agent", "version"),
    [
        ("claude-code", "claude-cli/2.1.289 (external, sdk-cli)", "2.1.289"),
        ("pi", "pi (linux 6.18.44-generic; x64)", None),
        ("codex", "codex_exec/0.171.0 (Debian 12.0.0; x86_64) dumb (codex_exec; 0.171.0)", "0.171.0"),
        ("opencode", "opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3.14", "1.18.33"),
        ("gemini-cli", "GeminiCLI-tui/0.61.0/gemini-2.5-pro (linux; x64; terminal)", "0.61.0"),
        ("qwen-code", "QwenCode/0.24.4 (linux; x64)", "0.24.4"),
        ("mini-swe-agent", "OpenAI/Python 3.57.0", None),
        ("mini-swe-agent", "litellm/1.110.2", None),
        ("reference", f"chaosproxy-reference/{VERSION}", VERSION),
    ],
)
def test_a_program_is_known_by_its_header(name: str, agent: str, version: str | None) -> None:
    for other in NAMES:
        identify = configs.dialect(other).identify
        match = re.search(identify.pattern, agent) if identify.pattern else None
        assert (match is not None) is (other == name)
        if match is not None:
            assert match.groupdict().get("version") == version


@pytest.mark.parametrize(
    ("name", "opening"),
    [
        (
            "claude-code",
            "<system-reminder>\n# Environment\nYou have been invoked in the following environment: \n"
            " - Primary working directory: /tmp/my ws\n - Is a git repository: false\n</system-reminder>",
        ),
        ("pi", "Follow links.</docs>\n\n<cwd>\n/tmp/my ws\n</cwd>"),
        ("codex", "<environment_context>\n  <cwd>/tmp/my ws</cwd>\n  <shell>bash</shell>\n"),
        ("opencode", "<env>\n  Working directory: /tmp/my ws\n  Workspace root folder: /\n"),
        ("gemini-cli", "- **Workspace Directories:**\n  - /tmp/my ws\n- **Directory Structure:**"),
        (
            "qwen-code",
            "My operating system is: linux\nI'm currently working in the directory: /tmp/my ws\nHere",
        ),
        ("reference", system_text(Path("/tmp/my ws"), "careful")),
    ],
)
def test_the_workspace_is_found_where_the_program_states_it(name: str, opening: str) -> None:
    found = [re.search(pattern, opening) for pattern in configs.dialect(name).identify.workspace]
    assert [match["path"] for match in found if match] == ["/tmp/my ws"]


@pytest.mark.parametrize(
    ("name", "opening"),
    [
        (
            "claude-code",
            "This session is being continued from a previous conversation that ran out of context. The"
            " summary below covers the earlier portion of the conversation.\n\nSUMMARY",
        ),
        (
            "pi",
            "The conversation history before this point was compacted into the following summary:\n\n<sum",
        ),
    ],
)
def test_a_compacted_conversation_is_known_by_how_it_starts(name: str, opening: str) -> None:
    assert any(re.search(pattern, opening) for pattern in configs.dialect(name).identify.compaction)


def told(name: str, text: str) -> list[str]:
    """What stands between each opening and the first place where a retold result can end."""
    flattened = configs.dialect(name).identify.flattened
    assert flattened is not None
    found = []
    for part in text.split(flattened.open)[1:]:
        end = re.search(flattened.end, part)
        assert end is not None
        found.append(part[: end.start()])
    return found


def test_the_results_in_a_text_that_pi_sums_up_are_found() -> None:
    cut = "\n\n[... 1001 more characters truncated]"
    text = (
        '<conversation>\n[User]: do it\n\n[Assistant tool calls]: read(path="a.txt"); bash(command="ls")\n\n'
        f"[Tool result]: line one\n\nline two\n\n\n[Tool result]: xxx{cut}\n\n"
        "[Assistant]: done\n\n[Tool result]: last\n</conversation>\n\nSum it up."
    )
    # The opening of the next result ends this one, so each is looked at with what follows it.
    text = text.replace("[Tool result]: xxx", "[Assistant]: \n\n[Tool result]: xxx")
    assert told("pi", text) == ["line one\n\nline two\n", f"xxx{cut}", "last"]
    flattened = configs.dialect("pi").identify.flattened
    assert flattened is not None
    assert flattened.limit == 2000
    assert flattened.cut.replace("{left}", "1001") == cut


@pytest.mark.parametrize(
    "text",
    [
        '<system-reminder>\nCalled the Read tool with the following input: {"file_path":"/ws/b.txt"}\n'
        "</system-reminder>\n<system-reminder>\nResult of calling the Read tool:\n1\tone\n2\ttwo\n3\t\n"
        "</system-reminder>",
        'Called the Read tool with the following input: {"file_path":"/ws/b.txt"}\nResult of calling the Read'
        " tool:\n1\tone\n2\ttwo\n3\t\n\nCalled the Read tool with the following input: {}",
    ],
)
def test_files_that_claude_code_reads_again_after_a_compaction_are_found(text: str) -> None:
    assert told("claude-code", text) == ["1\tone\n2\ttwo\n3\t"]


@pytest.mark.parametrize("name", NAMES)
def test_export_lines_name_the_proxy(name: str) -> None:
    lines = configs.dialect(name).export
    if name in {"claude-code", "pi"}:
        assert any("{base_url}" in line for line in lines)
    assert all(line.startswith(("export ", "#")) for line in lines)


async def test_what_the_reference_agent_prints_is_what_its_dialect_knows(tmp_path: Path) -> None:
    dialect = configs.dialect("reference")
    box = Toolbox(tmp_path)
    assert dialect.is_superseding(INTERRUPTED)

    async def printed(tool: str, **arguments: object) -> str:
        output = await box.call(tool, arguments)
        form = dialect.form(tool, dialect.rule(tool).family)
        assert has_failed(form, output.text, None) is output.is_error
        shown = take_apart(form, output.text)
        assert shown.wrap(shown.body) == output.text
        return output.text

    empty = {tool: dialect.forms[dialect.rule(tool).family].empty for tool in ("read", "shell")}
    await printed("write", path="a.txt", content="")
    assert empty["read"] is not None
    assert await printed("read", path="a.txt") == empty["read"].text
    await printed("read", path="none.txt")
    await printed("write", path="long.txt", content="x\n" * 2500)
    long = await printed("read", path="long.txt")
    assert take_apart(dialect.forms["read"], long).is_cut
    await printed("edit", path="long.txt", old="nowhere", new="y")
    assert empty["shell"] is not None
    assert await printed("shell", command="true") == empty["shell"].text
    await printed("shell", command="echo out; exit 3")
    await printed("shell", command="sleep 5", timeout=0.2)
    await printed("shell", command="kill -9 $$")
