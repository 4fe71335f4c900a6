"""Results as Claude Code 2.1.289, Pi 1.0.3 and the reference agent print them."""

from __future__ import annotations

from tests.scheduler import real_results_more as more
from tests.scheduler.real_result import Real
from tests.scheduler.real_result import rows as _rows

__all__ = ["ALL", "CLAUDE_CODE", "EMPTY", "FAILED", "PI", "Real"]

_PATHS = "\n".join(f"many/f{n:04d}.txt" for n in range(250))
_GLOB = "\n".join(f"many/f{n:04d}.txt" for n in range(100))
_COUNTS = "\n".join(f"many/f{n:04d}.txt:1" for n in range(250))
_MATCHES = "\n".join(f"many/f{n:04d}.txt:1:needle {n}" for n in range(250))
_LOG = "/tmp/pi-bash-1d2fee1c3f97cb5d.log"
_SAVED = "/home/ada/.claude/projects/-ws/5e0/tool-results/bow9k2vxr.txt"

CLAUDE_CODE = (
    Real("claude-code", "Read", "1\tline one\n2\tline two\n3\t", "line one\nline two\n"),
    Real("claude-code", "Read", "1\tline one\n2\tline two\n3", "line one\nline two\n"),
    Real("claude-code", "Read", "1\tno newline at end", "no newline at end"),
    Real("claude-code", "Read", "1\t   \n2\t\n3\tx\n4\t", "   \n\nx\n"),
    Real("claude-code", "Read", "99\ta\n100\tb\n101\tc", "a\nb\nc", {"offset": 99, "limit": 3}, first=99),
    Real("claude-code", "Read", "1:\tindented\n2:\t\tmore\n3:", "\tindented\n\t\tmore\n"),
    Real(
        "claude-code",
        "Read",
        "<system-reminder>This memory is 3 days old.</system-reminder>\n1\tone\n2\ttwo",
        "one\ntwo",
    ),
    Real("claude-code", "Bash", "out\nerr", "out\nerr"),
    Real("claude-code", "Bash", "     1\tone\n     2\ttwo", "one\ntwo"),
    Real(
        "claude-code",
        "Bash",
        f"<persisted-output>\nOutput too large (482.3KB). Full output saved to: {_SAVED}\n\n"
        f"Preview (first 2KB):\n{_rows(1, 37)}\n...\n</persisted-output>",
        _rows(1, 37),
        cut=True,
    ),
    Real("claude-code", "Grep", "Found 2 files\nsub/y.py\nsub/x.py", "sub/y.py\nsub/x.py"),
    Real("claude-code", "Grep", "Found 1 file\nsub/y.py", "sub/y.py"),
    Real("claude-code", "Grep", f"Found 250 files limit: 250\n{_PATHS}", _PATHS, cut=True),
    Real("claude-code", "Grep", "sub/x.py:2:    return 1\nsub/y.py:2:    return f()",
         "sub/x.py:2:    return 1\nsub/y.py:2:    return f()"),
    Real(
        "claude-code",
        "Grep",
        f"{_MATCHES}\n\n[Showing results with pagination = limit: 250]",
        _MATCHES,
        cut=True,
    ),
    Real(
        "claude-code",
        "Grep",
        "a.txt:1:x\nb.txt:1:x\nc.txt:1:x\n\n[Showing results with pagination = limit: 3, offset: 5]",
        "a.txt:1:x\nb.txt:1:x\nc.txt:1:x",
        cut=True,
    ),
    Real(
        "claude-code",
        "Grep",
        "sub/x.py:12\nsub/y.py:1\n\nFound 13 total occurrences across 2 files.",
        "sub/x.py:12\nsub/y.py:1",
    ),
    Real(
        "claude-code",
        "Grep",
        f"{_COUNTS}\n\nFound 400 total occurrences across 400 files. with pagination = limit: 250",
        _COUNTS,
        cut=True,
    ),
    Real("claude-code", "Glob", "sub/x.py\nsub/y.py", "sub/x.py\nsub/y.py"),
    Real(
        "claude-code",
        "Glob",
        f"{_GLOB}\n(Showing 100 of 402 matching files; 302 more are not listed. Narrow the pattern or path to"
        " see the rest.)",
        _GLOB,
        cut=True,
    ),
)  # fmt: skip

PI = (
    Real("pi", "read", "line one\nline two\n", "line one\nline two\n"),
    Real("pi", "read", "a\r\nb\r\n", "a\r\nb\r\n"),
    Real(
        "pi",
        "read",
        f"{_rows(1, 2000)}\n\n[Showing lines 1-2000 of 3002. Use offset=2001 to continue.]",
        _rows(1, 2000),
        cut=True,
    ),
    Real(
        "pi",
        "read",
        f"{_rows(951, 1900)}\n\n"
        "[Showing lines 951-1900 of 9000 (50.0KB limit). Use offset=1901 to continue.]",
        _rows(951, 1900),
        {"offset": 951},
        cut=True,
        first=951,
    ),
    Real(
        "pi",
        "read",
        f"{_rows(100, 104)}\n\n[2898 more lines in file. Use offset=105 to continue.]",
        _rows(100, 104),
        {"offset": 100, "limit": 5},
        cut=True,
        first=100,
    ),
    Real("pi", "bash", "out\nerr\n", "out\nerr\n"),
    Real(
        "pi",
        "bash",
        f"{_rows(1002, 3001)}\n\n[Showing lines 1002-3001 of 3001. Full output: {_LOG}]",
        _rows(1002, 3001),
        cut=True,
        first=1002,
    ),
    Real(
        "pi",
        "bash",
        f"{'y' * 51200}\n\n[Showing last 50.0KB of line 1 (line is 0B). Full output: {_LOG}]",
        "y" * 51200,
        cut=True,
    ),
    Real("pi", "grep", "sub/x.py:2:     return 1", "sub/x.py:2:     return 1"),
    Real(
        "pi",
        "grep",
        "a:1: n\nb:1: n\nc:1: n\n\n[3 matches limit reached. Use limit=6 for more, or refine pattern]",
        "a:1: n\nb:1: n\nc:1: n",
        cut=True,
    ),
    Real(
        "pi",
        "grep",
        "a:1: n\na-2- x\n\n[1 matches limit reached. Use limit=2 for more, or refine pattern]",
        "a:1: n\na-2- x",
        cut=True,
    ),
    Real(
        "pi",
        "grep",
        "long.txt:1: xxx... [truncated]\n\n"
        "[Some lines truncated to 500 chars. Use read tool to see full lines]",
        "long.txt:1: xxx... [truncated]",
    ),
    Real(
        "pi",
        "find",
        "a.txt\nb.txt\n\n[2 results limit reached. Use limit=4 for more, or refine pattern]",
        "a.txt\nb.txt",
        cut=True,
    ),
    Real(
        "pi", "ls", "a.txt\nsub/\n\n[2 entries limit reached. Use limit=4 for more]", "a.txt\nsub/", cut=True
    ),
)

REFERENCE = (
    Real("reference", "read", "one\ntwo\n", "one\ntwo\n"),
    Real(
        "reference",
        "read",
        f"{_rows(1, 2000)}\n[cut: lines 1-2000 of 3001 shown]",
        f"{_rows(1, 2000)}\n",
        cut=True,
    ),
    Real("reference", "shell", "out\n", "out\n"),
)

GENERIC = (
    Real("generic", "read_file", "plain\ntext\n", "plain\ntext\n"),
    Real("generic", "read_file", "1: line one\n2: line two", "line one\nline two"),
    Real("generic", "view", "     1→one\n     2→two", "one\ntwo"),
    Real(
        "generic",
        "read",
        "<path>/ws/a</path>\n<type>file</type>\n<content>\n1: one\n2: two\n\n(End of file - total 2 lines)\n"
        "</content>",
        "one\ntwo",
    ),
)

ALL = (*CLAUDE_CODE, *PI, *REFERENCE, *GENERIC, *more.ALL)

# (dialect, tool, text): results that hold nothing of the tool's.
EMPTY = (
    (
        "claude-code",
        "Read",
        "<system-reminder>Warning: the file exists but the contents are empty.</system-reminder>",
    ),
    ("claude-code", "Bash", "(Bash completed with no output)"),
    ("claude-code", "Bash", ""),
    ("claude-code", "Write", "(Write completed with no output)"),
    ("claude-code", "Grep", "No files found"),
    ("claude-code", "Grep", "No matches found"),
    ("claude-code", "Grep", "No matches found\n\nFound 0 total occurrences across 0 files."),
    ("claude-code", "Glob", "No files found"),
    (
        "claude-code",
        "Bash",
        "Command running in background with ID: bu2cqcb8v. Output is being written to: /t.",
    ),
    ("pi", "read", ""),
    ("pi", "bash", "(no output)"),
    ("pi", "grep", "No matches found"),
    ("pi", "find", "No files found matching pattern"),
    ("pi", "ls", "(empty directory)"),
    ("pi", "read", "[Line 1 is 58.6KB, exceeds 50.0KB limit. Use bash: sed -n '1p' l.txt | head -c 51200]"),
    ("reference", "read", "(the file is empty)"),
    ("reference", "shell", "(no output)"),
    ("generic", "bash", "(no output)"),
    *more.EMPTY,
)

# (dialect, tool, text, is_error): results that say that their call failed.
FAILED = (
    ("claude-code", "Read", "File does not exist. Note: your current working directory is /ws.", True),
    ("claude-code", "Edit", "<tool_use_error>String to replace not found in file.</tool_use_error>", None),
    ("claude-code", "Bash", "Exit code 3\nout\nerr", None),
    ("claude-code", "Bash", "Exit code 1", True),
    (
        "claude-code",
        "Bash",
        "Command did not complete within its 1s timeout and was moved to the background (ID: bj3kclvvr).",
        False,
    ),
    (
        "claude-code",
        "Read",
        "<system-reminder>Warning: the file exists but is shorter than the provided offset (5000)."
        " The file has 3002 lines.</system-reminder>",
        None,
    ),
    ("pi", "bash", "out\nerr\n\n\nCommand exited with code 3", None),
    ("pi", "bash", "(no output)\n\nCommand exited with code 1", None),
    ("pi", "bash", "Command timed out after 2 seconds", None),
    ("pi", "read", "ENOENT: no such file or directory, access '/ws/x'", True),
    ("reference", "read", "error: no such file: x", None),
    ("reference", "shell", "out\n[exit code 3]", None),
    ("reference", "shell", "[timed out after 1.5 s]", None),
    ("generic", "bash", "boom\nExit code: 2", None),
    ("generic", "exec_command", "Chunk ID: 8f9c79\nProcess exited with code 3\nOutput:\nhi\n", None),
    *more.FAILED,
)  # fmt: skip
