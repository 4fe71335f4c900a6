"""Parts of the conformance suite: what is the tool's own in a result, and the little web site."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from configs import dialect
from harness.conformance_evidence import sighting_in
from harness.conformance_site import VISITS, small_site
from harness.received import Received

REMINDER = "<system-reminder>\n<total_tokens>14979629 tokens left</total_tokens>\n</system-reminder>"


def _received(content: Any) -> Received:
    call = {"type": "tool_use", "id": "toolu_step0", "name": "Agent", "input": {"prompt": "Look."}}
    result = {"type": "tool_result", "tool_use_id": "toolu_step0", "content": content}
    body = {
        "model": "m",
        "max_tokens": 1,
        "tools": [{"name": "Agent", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ],
    }
    return Received("POST", "/v1/messages", (), json.dumps(body).encode(), 0.0)


def _block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


@pytest.mark.parametrize(
    ("content", "own", "appended"),
    [
        ("done", "done", ""),
        ([_block("done")], "done", ""),
        ([_block("one"), _block("two")], "one\ntwo", ""),
        (f"done\n\n{REMINDER}", "done", f"\n\n{REMINDER}"),
        ([_block("done"), _block(REMINDER)], "done", REMINDER),
        ([_block(f"done\n\n{REMINDER}"), _block(REMINDER)], "done", f"\n\n{REMINDER}{REMINDER}"),
        ([_block("")], "", ""),
    ],
)
def test_what_the_harness_put_behind_a_result_is_not_the_tools(content: Any, own: str, appended: str) -> None:
    seen = sighting_in(_received(content), 0, dialect("claude-code"))
    assert seen is not None
    assert (seen.own, seen.appended) == (own, appended)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_suite_leaves_no_harness_behind(tmp_path: Path, number: signal.Signals) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "proxy", "conformance", "reference", "--kinds", "slow", "--repeat", "1"]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "out")],
        env=os.environ | {"TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not _at_home_in(scratch):
            assert process.poll() is None, "it ended before it had started a harness"
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(timeout=60) != 0
    finally:
        process.kill()
        process.wait()
    assert _at_home_in(scratch) == []
    assert list(scratch.iterdir()) == [], "what it had made is gone"


def _at_home_in(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={folder}/".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def test_each_visit_of_a_page_leaves_a_mark(tmp_path: Path) -> None:
    (tmp_path / "lum1").mkdir()
    with small_site(tmp_path) as web:
        assert "row 3 of lum1 is 33\n" in _get(f"{web}/lum1")
        assert not (tmp_path / "lum1" / VISITS).read_text().count("\n") - 1
        _get(f"{web}/lum1")
        assert (tmp_path / "lum1" / VISITS).read_text().count("\n") == 2
        for elsewhere in ("lum2", "", "..", "../secret", "lum1/visits.txt"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                _get(f"{web}/{elsewhere}")
