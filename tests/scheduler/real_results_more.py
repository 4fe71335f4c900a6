# ruff: noqa: E501 - real texts stand in one piece
"""Results as Codex 0.171.0, OpenCode 1.18.33, Gemini CLI 0.61.0, Qwen Code 0.24.4 and mini-swe-agent 2.4.6
print them."""

from __future__ import annotations

import json

from tests.scheduler.real_result import Real, rows

_PATHS = "\n".join(f"/ws/many/f{n}.txt" for n in range(100))


def _codex(tokens: int, output: str, seconds: str = "0.0000", ended: str = "exited with code 0") -> str:
    return (
        f"Chunk ID: 3f688d\nWall time: {seconds} seconds\nProcess {ended}\n"
        f"Original token count: {tokens}\nOutput:\n{output}"
    )


CODEX = (
    # The counts are Codex's own: a token is four bytes, and what is left of them is one more.
    Real("codex", "exec_command", _codex(5, "line one\nline two\n"), "line one\nline two\n"),
    Real("codex", "exec_command", _codex(3, "no newline"), "no newline"),
    Real("codex", "exec_command", _codex(7, "./sub/x.py:2:    return 1\n"), "./sub/x.py:2:    return 1\n"),
    Real("codex", "exec_command", _codex(10, "a.txt\nb.txt\nbig.txt\nempty.txt\nsub\nx.png\n"),
         "a.txt\nb.txt\nbig.txt\nempty.txt\nsub\nx.png\n"),
    Real("codex", "exec_command", _codex(2, "late\n", "1.0010", "running with session ID 48354"), "late\n"),
    Real(
        "codex",
        "exec_command",
        _codex(
            573,
            "Warning: truncated output (original token count: 573)\nTotal output lines: 300\n\n"
            "row 0\nrow 1\nrow 2\nrow 3\nrow 4\nrow 5\nrow 6\nrow 7\nrow 8\nrow 9\nrow 10\nrow 11\nrow 12\n"
            "row 13\nrow 14\nrow 1…523 tokens truncated…287\nrow 288\nrow 289\nrow 290\nrow 291\nrow 292\n"
            "row 293\nrow 294\nrow 295\nrow 296\nrow 297\nrow 298\nrow 299\n",
        ),
        "row 0\nrow 1\nrow 2\nrow 3\nrow 4\nrow 5\nrow 6\nrow 7\nrow 8\nrow 9\nrow 10\nrow 11\nrow 12\n"
        "row 13\nrow 14\nrow 1",
        cut=True,
    ),
    Real(
        "codex",
        "apply_patch",
        "Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess. Updated the following files:\nA n.txt\nM a.txt\n",
        "Success. Updated the following files:\nA n.txt\nM a.txt\n",
    ),
    Real(
        "codex",
        "exec",
        '{"chunk_id":"447307","wall_time_seconds":0.000006182,"exit_code":0,"original_token_count":5,'
        '"output":"line one\\nline two\\n"}',
        "line one\nline two\n",
    ),
    Real("codex", "exec", "line one\nline two\n", "line one\nline two\n"),
)  # fmt: skip


def _file(content: str, end: str) -> str:
    return f"<path>/ws/a.txt</path>\n<type>file</type>\n<content>\n{content}\n\n({end})\n</content>"


_NUMBERED = "\n".join(f"{n}: row {n} of the big file" for n in range(1, 2001))

OPENCODE = (
    Real("opencode", "read", _file("1: line one\n2: line two", "End of file - total 2 lines"),
         "line one\nline two"),
    Real("opencode", "read", _file("2: line two", "End of file - total 2 lines"), "line two",
         {"offset": 2, "limit": 1}, first=2),
    Real(
        "opencode",
        "read",
        _file(_NUMBERED, "Showing lines 1-2000 of 3001. Use offset=2001 to continue."),
        rows(1, 2000),
        cut=True,
    ),
    Real(
        "opencode",
        "read",
        _file(_NUMBERED, "Output capped at 50 KB. Showing lines 1-2000. Use offset=2001 to continue."),
        rows(1, 2000),
        cut=True,
    ),
    Real(
        "opencode",
        "read",
        "<path>/ws/sub</path>\n<type>directory</type>\n<entries>\nx.py\ny.py\n\n(2 entries)\n</entries>",
        "x.py\ny.py",
    ),
    Real(
        "opencode",
        "read",
        "<path>/ws/many</path>\n<type>directory</type>\n<entries>\nf953.txt\nf954.txt\n\n(2051 entries)\n"
        "</entries>",
        "f953.txt\nf954.txt",
        {"offset": 2050},
        first=2050,
    ),
    Real(
        "opencode",
        "read",
        "<path>/ws/many</path>\n<type>directory</type>\n<entries>\nf0.txt\nf1.txt\n\n"
        "(Showing 2 of 2100 entries. Use 'offset' parameter to read beyond entry 3)\n</entries>",
        "f0.txt\nf1.txt",
        cut=True,
    ),
    Real("opencode", "bash", "out\nerr\n", "out\nerr\n"),
    Real(
        "opencode",
        "bash",
        "...output truncated...\n\nFull output saved to: /home/ada/.local/share/opencode/tool-output/tool_2295"
        f"\n\n{rows(1002, 3000)}\n",
        f"{rows(1002, 3000)}\n",
        cut=True,
    ),
    Real(
        "opencode",
        "grep",
        "Found 2 matches\n/ws/sub/x.py:\n  Line 2:     return 1\n\n\n/ws/sub/y.py:\n  Line 1: return f()\n",
        "/ws/sub/x.py:\n  Line 2:     return 1\n\n\n/ws/sub/y.py:\n  Line 1: return f()\n",
    ),
    Real(
        "opencode",
        "grep",
        "Found 2 matches (more matches available)\n/ws/a.txt:\n  Line 1: hit\n\n\n/ws/b.txt:\n  Line 1: hit\n\n\n"
        "(Results truncated. Consider using a more specific path or pattern.)",
        "/ws/a.txt:\n  Line 1: hit\n\n\n/ws/b.txt:\n  Line 1: hit\n",
        cut=True,
    ),
    Real("opencode", "glob", "/ws/sub/x.py\n/ws/sub/y.py", "/ws/sub/x.py\n/ws/sub/y.py"),
    Real(
        "opencode",
        "glob",
        f"{_PATHS}\n\n(Results are truncated: showing first 100 results. Consider using a more specific path or"
        " pattern.)",
        _PATHS,
        cut=True,
    ),
    Real(
        "opencode",
        "task",
        '<task id="ses_dd6ab0b38ffewX2rnctMBO8t6R" state="completed">\n<task_result>\nsub done\n</task_result>\n'
        "</task>",
        "sub done",
    ),
)  # fmt: skip

_HEAD = rows(1, 340)[: 8000 - 28]

GEMINI_CLI = (
    Real("gemini-cli", "read_file", "line one\nline two\n", "line one\nline two\n"),
    Real(
        "gemini-cli",
        "read_file",
        "\nIMPORTANT: The file content has been truncated.\nStatus: Showing lines 2-2 of 3 total lines.\n"
        "Action: To read more of the file, you can use the 'start_line' and 'end_line' parameters in a"
        " subsequent 'read_file' call. For example, to read the next section of the file, use start_line: 3.\n\n"
        "--- FILE CONTENT (truncated) ---\nline two",
        "line two",
        {"start_line": 2, "end_line": 2},
        cut=True,
        first=2,
    ),
    Real(
        "gemini-cli",
        "run_shell_command",
        "<untrusted_context>\nOutput: out\nerr\nProcess Group PGID: 13038\n</untrusted_context>",
        "out\nerr",
    ),
    Real(
        "gemini-cli",
        "run_shell_command",
        "Output too large. Showing first 8,000 and last 32,000 characters. For full output see:"
        f" /home/ada/.gemini/tmp/ws/tool-outputs/x.txt\n<untrusted_context>\nOutput: {_HEAD}\n\n"
        f"... [33,995 characters omitted] ...\n\n{rows(1500, 1600)}\nProcess Group PGID: 13046\n"
        "</untrusted_context>",
        _HEAD,
        cut=True,
    ),
    Real(
        "gemini-cli",
        "grep_search",
        'Found 2 matches for pattern "return" in path ".":\n---\nFile: sub/y.py\nL1: return f()\n---\n'
        "File: sub/x.py\nL1- def f():\nL2:     return 1\n---",
        "File: sub/y.py\nL1: return f()\n---\nFile: sub/x.py\nL1- def f():\nL2:     return 1",
    ),
    Real(
        "gemini-cli",
        "grep_search",
        'Found 1 match for pattern "return" in path ".":\n---\nFile: sub/y.py\nL1: return f()\n---',
        "File: sub/y.py\nL1: return f()",
    ),
    Real(
        "gemini-cli",
        "grep_search",
        'Found 1 files with matches for pattern "row 1" in path ".":\nbig.txt',
        "big.txt",
    ),
    Real(
        "gemini-cli",
        "glob",
        'Found 2 file(s) matching "**/*.py" within /ws, sorted by modification time (newest first):\n'
        "/ws/sub/y.py\n/ws/sub/x.py",
        "/ws/sub/y.py\n/ws/sub/x.py",
    ),
    Real(
        "gemini-cli",
        "list_directory",
        "Directory listing for /ws:\n[DIR] many\na.txt (18 bytes)",
        "[DIR] many\na.txt (18 bytes)",
    ),
    Real("gemini-cli", "google_web_search", 'Web search results for "x":\n\nfound it', "found it"),
)


def _qwen(output: str, command: str = "echo hi") -> str:
    return (
        f"Command: {command}\nDirectory: (root)\nOutput: {output}\nError: (none)\nExit Code: 0\n"
        "Signal: (none)\nProcess Group PGID: (none)"
    )


QWEN_CODE = (
    Real("qwen-code", "read_file", "line one\nline two\n", "line one\nline two\n"),
    Real(
        "qwen-code",
        "read_file",
        "Showing lines 2991-2995 of 3001 total lines.\n\n---\n\nrow 2990\nrow 2991\nrow 2992\nrow 2993\nrow 2994",
        "row 2990\nrow 2991\nrow 2992\nrow 2993\nrow 2994",
        {"offset": 2990, "limit": 5},
        cut=True,
        first=2991,
    ),
    Real("qwen-code", "run_shell_command", _qwen("out\nerr"), "out\nerr"),
    Real("qwen-code", "run_shell_command", _qwen("x\ny", 'printf "x\\n\\n"\necho y'), "x\ny"),
    Real(
        "qwen-code",
        "run_shell_command",
        "Tool output was too large and has been truncated.\nThe full output has been saved to: /home/ada/x.output"
        "\nTo read the complete output, use the read_file tool with the absolute file path above.\nThe truncated"
        " output below shows the beginning and end of the content. The marker '... [CONTENT TRUNCATED] ...'"
        " indicates where content was removed.\n\nTruncated part of the output:\n"
        + _qwen(
            f"{rows(0, 31)}\nrow 32 of the bi...\n\n---\n... [CONTENT TRUNCATED] ...\n---\n\n{rows(900, 910)}"
        ),
        f"{rows(0, 31)}\nrow 32 of the bi...",
        cut=True,
    ),
    Real(
        "qwen-code",
        "grep_search",
        'Found 2 matches for pattern "return" in the workspace directory:\n---\n/ws/sub/x.py:2:    return 1\n'
        "/ws/sub/y.py:1:return f()",
        "/ws/sub/x.py:2:    return 1\n/ws/sub/y.py:1:return f()",
    ),
    Real(
        "qwen-code",
        "grep_search",
        'Found 3000 matches for pattern "row" in the workspace directory:\n---\n/ws/big.txt:1:row 0\n'
        "/ws/big.txt:2:row 1\n/ws/big.txt:3:row 2\n---\n[2997 lines truncated] ...",
        "/ws/big.txt:1:row 0\n/ws/big.txt:2:row 1\n/ws/big.txt:3:row 2",
        cut=True,
    ),
    Real(
        "qwen-code",
        "glob",
        'Found 2 file(s) matching "**/*.py" in the workspace directory, sorted by modification time (newest'
        " first):\n---\n/ws/sub/y.py\n/ws/sub/x.py",
        "/ws/sub/y.py\n/ws/sub/x.py",
    ),
    Real(
        "qwen-code",
        "glob",
        'Found 130 file(s) matching "many/*" in the workspace directory, sorted by modification time (newest'
        f" first):\n---\n{_PATHS}\n---\n[30 files truncated] ...",
        _PATHS,
        cut=True,
    ),
)


def _mini(output: str) -> str:
    return f'{{\n  "returncode": 0,\n  "output": "{output}"\n}}'


MINI_SWE_AGENT = (
    Real("mini-swe-agent", "bash", _mini(r"line one\nline two\n"), "line one\nline two\n"),
    Real(
        "mini-swe-agent",
        "bash",
        _mini(r"  \u0027x\u0027 \u003c 1 \u0026 \"y\" \u00e5\n"),
        "  'x' < 1 & \"y\" å\n",
    ),
    Real(
        "mini-swe-agent",
        "bash",
        f'{{\n  "returncode": 0,\n  "output_head": {json.dumps(rows(1, 200))},\n  "output_tail": "3999\\n4000\\n",'
        '\n  "elided_chars": 8893,\n  "warning": "Output too long."\n}',
        rows(1, 200),
        cut=True,
    ),
)

ALL = (*CODEX, *OPENCODE, *GEMINI_CLI, *QWEN_CODE, *MINI_SWE_AGENT)

# (dialect, tool, text): results that hold nothing of the tool's.
EMPTY = (
    ("codex", "exec_command", _codex(0, "")),
    ("codex", "exec", ""),
    ("opencode", "read", _file("", "End of file - total 0 lines")),
    (
        "opencode",
        "read",
        "<path>/ws/e</path>\n<type>directory</type>\n<entries>\n\n\n(0 entries)\n</entries>",
    ),
    ("opencode", "read", "Image read successfully"),
    ("opencode", "bash", "(no output)"),
    ("opencode", "grep", "No files found"),
    ("gemini-cli", "read_file", ""),
    ("gemini-cli", "read_file", "Binary content provided (1 item(s))."),
    (
        "gemini-cli",
        "run_shell_command",
        "<untrusted_context>\nOutput: (empty)\nProcess Group PGID: 13040\n</untrusted_context>",
    ),
    ("gemini-cli", "grep_search", 'No matches found for pattern "nothing_here" in path ".".'),
    ("gemini-cli", "glob", 'No files found matching pattern "*.nope" within /ws'),
    ("gemini-cli", "list_directory", "Directory /ws/emptyd is empty."),
    ("qwen-code", "read_file", "(read_file completed with no output)"),
    ("qwen-code", "read_file", "Cannot display content of binary file: bin.dat"),
    ("qwen-code", "run_shell_command", _qwen("(empty)", "true")),
    (
        "qwen-code",
        "grep_search",
        'No matches found for pattern "nothing_here" in the workspace directory.',
    ),
    ("qwen-code", "glob", 'No files found matching pattern "*.nope" in the workspace directory'),
    ("mini-swe-agent", "bash", _mini("")),
)

# (dialect, tool, text, is_error): results that say that their call failed.
FAILED = (
    ("codex", "exec_command", _codex(1, "err\n", ended="exited with code 3"), None),
    ("codex", "exec_command", _codex(0, "", ended="exited with code -1"), None),
    ("codex", "exec_command", "unsupported call: exec_command__timeout", None),
    ("codex", "exec_command", "failed to parse function arguments: missing field `cmd` at line 1 column 2", None),
    ("codex", "write_stdin", "write_stdin failed: Unknown process id 99999", None),
    (
        "codex",
        "apply_patch",
        "apply_patch verification failed: Failed to find expected lines in /ws/a.txt:\nnowhere",
        None,
    ),
    ("codex", "apply_patch", "Exit code: 1\nWall time: 0 seconds\nOutput:\nFailed to write file /ws/x\n", None),
    ("codex", "view_image", "unable to locate image at `/ws/x.png`: No such file or directory (os error 2)", None),
    ("codex", "exec", "Script error:\nError: boom\n    at exec_main.mjs:1:7", None),
    ("opencode", "read", "File not found: /ws/aa.txt\n\nDid you mean one of these?\n/ws/a.txt", None),
    ("opencode", "read", "Offset 9000 is out of range for this file (3001 lines)", None),
    ("opencode", "read", "Cannot read binary file: /ws/bin.dat", None),
    ("opencode", "read", "Unknown: FileSystem.readAlloc (26)", None),
    ("opencode", "write", "PermissionDenied: FileSystem.writeFile (/sys/kernel/foo)", None),
    (
        "opencode",
        "bash",
        "start\n\n\n<shell_metadata>\nshell tool terminated command after exceeding timeout 1000 ms. If this"
        " command is expected to take longer and is not waiting for interactive input, retry with a larger"
        " timeout value in milliseconds.\n</shell_metadata>",
        None,
    ),
    ("opencode", "edit", "File /ws/missing.txt not found", None),
    ("opencode", "edit", "No changes to apply: oldString and newString are identical.", None),
    ("opencode", "grep", "regex parse error:\n    (\n    ^\nerror: unclosed group", None),
    (
        "opencode",
        "todowrite",
        'Failed query: delete from "todo" where "todo"."session_id" = ?\nparams: ses_dd52b631cffeIpGYJCQLrCfm9M',
        None,
    ),
    ("opencode", "todowrite", "no such table: todo", None),
    ("opencode", "webfetch", "Transport error (GET http://127.0.0.1:1/)", None),
    (
        "opencode",
        "invalid",
        "The arguments provided to the tool are invalid: Model tried to call unavailable tool 'read__timeout'.",
        None,
    ),
    ("gemini-cli", "read_file", "File not found: /ws/missing.txt", True),
    (
        "gemini-cli",
        "run_shell_command",
        "<untrusted_context>\nOutput: out\nerr\nExit Code: 3\nProcess Group PGID: 13042\n</untrusted_context>",
        False,
    ),
    (
        "gemini-cli",
        "run_shell_command",
        "<untrusted_context>\nCommand was automatically cancelled because it exceeded the timeout of 5.0 minutes"
        " without output. There was no output before it was cancelled.\n</untrusted_context>",
        False,
    ),
    ("qwen-code", "read_file", "File not found: /ws/missing.txt", None),
    ("qwen-code", "read_file", "Error reading file ../../../proc/self/mem: EIO: i/o error, read", None),
    ("qwen-code", "write_file", "Permission denied writing to file: /sys/kernel/foo (EACCES)", None),
    ("qwen-code", "edit", "Failed to edit. Found 2 occurrences for old_string in /ws/a.txt but replace_all", None),
    ("qwen-code", "run_shell_command", _qwen("out").replace("Code: 0", "Code: 3"), None),
    (
        "qwen-code",
        "run_shell_command",
        _qwen("(empty)").replace("Code: 0\nSignal: (none)", "Code: (none)\nSignal: 9"),
        None,
    ),
    ("qwen-code", "run_shell_command", "Blocked: standalone sleep 5. Run blocking commands in the back", None),
    (
        "qwen-code",
        "run_shell_command",
        "Command timed out after 1000ms before it could complete. Below is the output before it timed out:\nx",
        None,
    ),
    ("qwen-code", "grep_search", "Invalid regular expression pattern: (. Error: Invalid regular expression", None),
    (
        "qwen-code",
        "list_directory",
        'Tool "list_directory" is a built-in tool that is disabled by default because glob covers directory',
        None,
    ),
    ("mini-swe-agent", "bash", '{\n  "returncode": 3,\n  "output": "out\\nerr\\n"\n}', None),
    (
        "mini-swe-agent",
        "bash",
        '{\n  "returncode": -1,\n  "output": "start\\n", "exception_info": "An error occurred while executing the'
        ' command: Command \\u0027sleep 4\\u0027 timed out after 2 seconds"\n}',
        None,
    ),
)  # fmt: skip
