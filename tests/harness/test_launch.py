"""A launch says everything its program gets, and nothing of it outlives it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.launch import Launch


def launch(folder: Path, code: str, **env: str) -> Launch:
    home = folder / "home"
    base = {"HOME": str(home), "TMPDIR": str(home / "tmp"), "PATH": "/usr/bin:/bin"}
    return Launch((sys.executable, "-c", code), base | env, folder, ((home / "deep/a.json", '{"x": 1}\n'),))


def test_gives_the_program_its_files_and_environment_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a secret of the caller")
    code = "import os; print(open(os.environ['HOME'] + '/deep/a.json').read(), sorted(os.environ))"
    outcome = launch(tmp_path, code, EXTRA="1").run(30)
    assert outcome.exit_code == 0
    assert outcome.stdout.startswith('{"x": 1}\n')
    assert "EXTRA" in outcome.stdout
    assert "ANTHROPIC" not in outcome.stdout
    assert (tmp_path / "home/tmp").is_dir()


def test_tells_output_exit_code_and_signal(tmp_path: Path) -> None:
    code = "import sys, os; print('out'); print('err', file=sys.stderr); sys.stdout.flush(); sys.exit(7)"
    outcome = launch(tmp_path, code).run(30)
    assert (outcome.exit_code, outcome.stdout, outcome.stderr, outcome.timed_out) == (
        7,
        "out\n",
        "err\n",
        False,
    )
    assert outcome.wall_s > 0
    killed = launch(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGTERM)").run(30)
    assert killed.exit_code == -15


def test_a_program_that_cannot_start_raises(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nosuch"):
        Launch(("/nosuch/program",), {}, tmp_path).run(1)


DAEMON = """
import os, subprocess, sys, time
# Its own session, no environment, and a parent that has one child more.
hidden = "start_new_session=True, env={{}}"
code = f"import subprocess as s, time; s.Popen(['sleep', '314.1'], {{hidden}}); time.sleep(300)"
child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, env={{}})
time.sleep({seconds})
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only /proc shows whose process it is")
def test_a_kill_takes_children_that_hide_and_nothing_else(tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "314.1"])
    # What it runs can be read a moment later only.
    before = _sleeping() | {bystander.pid}
    running = launch(tmp_path, DAEMON.format(seconds=300)).start()
    try:
        while len(_sleeping()) < len(before) + 1:
            time.sleep(0.02)
        running.kill()
        assert running.wait(10).exit_code == -9
        for pid in _sleeping() - before:
            assert _is_gone(pid)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def _sleeping() -> set[int]:
    found = set()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes() == b"sleep\x00314.1\x00":
                found.add(int(entry.parent.name))
        except OSError:
            continue
    return found


CHILDREN = """
import os, subprocess, sys, time
same = subprocess.Popen(["sleep", "314.1"])
away = subprocess.Popen(["sleep", "300"], start_new_session=True)
print(same.pid, away.pid, flush=True)
time.sleep({seconds})
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only /proc shows whose process it is")
@pytest.mark.parametrize("seconds", [0, 300])
def test_no_process_is_left_whether_it_ended_or_was_stopped(tmp_path: Path, seconds: int) -> None:
    outcome = launch(tmp_path, CHILDREN.format(seconds=seconds)).run(2)
    assert outcome.timed_out == (seconds == 300)
    assert outcome.exit_code == (-9 if seconds else 0)
    for pid in outcome.stdout.split():
        assert _is_gone(int(pid))


def _is_gone(pid: int) -> bool:
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_an_orphan_that_holds_the_output_open_does_not_hold_us(tmp_path: Path) -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '300']); print('done')"
    outcome = launch(tmp_path, code).run(60)
    assert (outcome.stdout, outcome.timed_out) == ("done\n", False)


def test_can_be_killed_from_outside(tmp_path: Path) -> None:
    running = launch(tmp_path, "import time; time.sleep(300)").start()
    assert not running.ended
    running.kill()
    assert running.wait(10).exit_code == -9
    assert running.ended
