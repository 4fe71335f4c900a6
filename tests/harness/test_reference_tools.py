"""The reference agent's tools do what they say, and say what they did."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from harness.reference_tools import SHELL_LIMIT_CHARS, TOOLS, Toolbox


async def said(root: Path, tool: str, **arguments: object) -> tuple[str, bool]:
    output = await Toolbox(root).call(tool, arguments)
    return output.text, output.is_error


async def test_read_gives_the_text_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n  two\n\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "long").write_text("".join(f"{n}\n" for n in range(1, 2502)))
    assert await said(tmp_path, "read", path="a.txt") == ("one\n  two\n\n", False)
    assert await said(tmp_path, "read", path=str(tmp_path / "a.txt")) == ("one\n  two\n\n", False)
    assert await said(tmp_path, "read", path="empty") == ("(the file is empty)", False)
    assert await said(tmp_path, "read", path="none") == ("error: no such file: none", True)
    assert await said(tmp_path, "read", path=".") == ("error: is a directory: .", True)
    assert await said(tmp_path, "read", path="binary") == ("error: not a text file: binary", True)
    text, _ = await said(tmp_path, "read", path="long")
    assert text.endswith("\n2000\n[cut: lines 1-2000 of 2501 shown]")


async def test_write_and_edit_change_the_disk(tmp_path: Path) -> None:
    assert await said(tmp_path, "write", path="d/e.txt", content="é one\n") == (
        "wrote 7 bytes to d/e.txt",
        False,
    )
    assert (tmp_path / "d/e.txt").read_text() == "é one\n"
    assert await said(tmp_path, "edit", path="d/e.txt", old="one", new="two") == (
        "edited d/e.txt: 1 replacement",
        False,
    )
    assert (tmp_path / "d/e.txt").read_text() == "é two\n"
    missed = await said(tmp_path, "edit", path="d/e.txt", old="one", new="x")
    assert missed == ("error: text not found in d/e.txt", True)
    (tmp_path / "d/e.txt").write_text("a a\n")
    twice = await said(tmp_path, "edit", path="d/e.txt", old="a", new="b")
    assert twice == ("error: text found 2 times in d/e.txt: it must be there once", True)
    assert await said(tmp_path, "edit", path="d/e.txt", old="", new="b") == (
        "error: text not found in d/e.txt",
        True,
    )
    assert (tmp_path / "d/e.txt").read_text() == "a a\n"


async def test_file_tools_stay_in_the_workspace(tmp_path: Path) -> None:
    root, outside = tmp_path / "ws", tmp_path / "secret.txt"
    root.mkdir()
    outside.write_text("secret")
    (root / "link").symlink_to(outside)
    for path in ("../secret.txt", str(outside), "link", "a/../../secret.txt"):
        for tool, more in (
            ("read", {}),
            ("write", {"content": "x"}),
            ("edit", {"old": "secret", "new": "x"}),
        ):
            assert await said(root, tool, path=path, **more) == (
                f"error: outside the workspace: {path}",
                True,
            )
    assert outside.read_text() == "secret"


async def test_shell_tells_output_and_exit_code(tmp_path: Path) -> None:
    assert await said(tmp_path, "shell", command="echo out; echo err >&2") == ("out\nerr\n", False)
    assert await said(tmp_path, "shell", command="true") == ("(no output)", False)
    assert await said(tmp_path, "shell", command="echo hi; exit 3") == ("hi\n[exit code 3]", True)
    assert await said(tmp_path, "shell", command="printf hi; exit 3") == ("hi\n[exit code 3]", True)
    assert await said(tmp_path, "shell", command="exit 3") == ("[exit code 3]", True)
    assert await said(tmp_path, "shell", command="pwd") == (f"{tmp_path}\n", False)


async def test_shell_cuts_the_middle_of_a_long_output(tmp_path: Path) -> None:
    command = f"head -c {SHELL_LIMIT_CHARS + 500} /dev/zero | tr '\\0' x; echo end"
    text, _ = await said(tmp_path, "shell", command=command)
    assert "\n[504 characters left out]\n" in text
    assert text.endswith("xend\n")


async def test_a_command_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    command = "echo started; (sleep 300; echo late > late.txt) & echo $! > pid; wait"
    text, is_error = await said(tmp_path, "shell", command=command, timeout=1)
    assert (text, is_error) == ("started\n[timed out after 1 s]", True)
    assert _has_ended(int((tmp_path / "pid").read_text()))


def _has_ended(pid: int) -> bool:
    """Whether a killed process goes away; a container may reap it late, as a zombie it counts as gone."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("frobnicate", {}, "error: no such tool: frobnicate"),
        ("read", {}, "error: path must be given, as a string"),
        ("read", {"path": 3}, "error: path must be given, as a string"),
        ("write", {"path": "a"}, "error: content must be given, as a string"),
        ("edit", {"path": "a", "old": "x"}, "error: new must be given, as a string"),
        ("shell", {"command": ["ls"]}, "error: command must be given, as a string"),
        ("shell", {"command": "ls", "timeout": "1"}, "error: timeout must be a positive number of seconds"),
        ("shell", {"command": "ls", "timeout": 0}, "error: timeout must be a positive number of seconds"),
        ("read", {"path": "a\0b"}, "error: not a path: 'a\\x00b'"),
    ],
)
async def test_a_call_that_cannot_be_done_is_told(
    tmp_path: Path, tool: str, arguments: dict[str, object], text: str
) -> None:
    assert await said(tmp_path, tool, **arguments) == (text, True)


def test_every_tool_states_what_it_takes() -> None:
    assert [tool["name"] for tool in TOOLS] == ["read", "write", "edit", "shell"]
    for tool in TOOLS:
        assert set(tool["input_schema"]["required"]) <= set(tool["input_schema"]["properties"])
