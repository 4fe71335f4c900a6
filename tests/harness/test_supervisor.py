"""Supervised runs of the reference agent and of harnesses made to fail, over real sockets and processes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.adapter import HarnessError
from harness.controls import run_controls
from harness.preparing import RunOptions, prepare_manifest
from harness.script import Misstep, Script
from harness.supervisor import Finished
from harness.task import TaskError
from harness.turns import Turn, Usage
from ledger.controls import control_folder, control_folders
from ledger.journal import CHECKPOINTS, Journal
from ledger.manifest import ManifestError, parse_manifest, read_frozen
from scoring.score import score_paths
from tests.harness.supervised import (
    AGAIN,
    READ,
    TASK,
    TEST,
    WORK,
    Bench,
    Said,
    _moved_to,
    agent,
    alive,
    append,
    edit,
    figures,
    python,
    script,
    shell,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of tests run in workspaces; this checkout is what they find."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_a_clean_run(out: Path) -> None:
    bench = Bench(out, WORK, {"seed": [3, 4], "faults": {"plan": "off", "repeats": 2}})
    finished = bench.run(jobs=2)
    assert (len(finished.lines), len(finished.made), finished.missing) == (4, 4, 0)
    assert sorted((line.seed, line.repeat) for line in bench.first) == [(3, 0), (3, 1), (4, 0), (4, 1)]
    for line in bench.first:
        assert (line.ended, line.passed, line.attempt, line.exit_code) == ("complete", True, 1, 0)
        assert line.harness == "reference"
        assert line.profile == "off"
        assert line.started is not None
        assert line.stopped is not None
        assert line.started < line.stopped
        assert line.boot_id
        assert line.reason is None
        assert line.tokens_used
    names = [path.name for path in out.iterdir() if path.name != ".lock"]
    assert {"manifest.yaml", "decisions.jsonl", "journal.db", "memory.db", "runlog.jsonl"} <= set(names)
    for path in out.iterdir():
        if path.is_file():
            assert path.stat().st_mode & 0o077 == 0, path
    manifest = read_frozen(out / "manifest.yaml")
    assert manifest.run_id == "out"
    assert manifest.frozen is not None
    assert "env.cpus" in manifest.frozen.filled
    assert any(line.startswith("read off this machine: ") for line in bench.said.lines)
    score = bench.score()
    assert (score.exit_code, score.counts.runs, score.counts.passed) == (0, 4, 4)


def test_tokens_are_those_of_every_answered_request(out: Path) -> None:
    work = Script(
        (
            shell("true", Usage(100, 10, 20, 5)),
            shell("echo second >> notes.txt", Usage(7, 3)),
            Turn("Done.", usage=Usage(1, 1)),
        )
    )
    bench = Bench(out, work)
    bench.run()
    assert bench.first[0].tokens_used == 135 + 10 + 2


@pytest.mark.parametrize("where", CHECKPOINTS)
def test_killed_at_a_checkpoint_and_resumed(out: Path, where: str) -> None:
    bench = Bench(out, WORK, {"faults": {"plan": f"{where}:hard_exit"}})
    bench.run()
    (line,) = bench.first
    assert (line.ended, line.reason, line.exit_code) == ("restart_cut", f"killed at {where}", -9)
    assert [row.checkpoint for row in bench.reached()][-1] == where
    before = len(bench.requests)
    bench.resume()
    (line,) = bench.resumed
    assert (line.ended, line.passed, line.attempt, line.resumed_from) == ("complete", True, 2, where)
    assert bench.file() == "first\nsecond\n"
    assert len(bench.requests) > before
    assert [row.checkpoint for row in bench.reached() if row.attempt == 1][-1] == where
    starts = [json.loads(one) for one in (out / "decisions.jsonl").read_text().splitlines()]
    assert [record["attempt"] for record in starts if record["event"] == "start"] == [1, 2]
    recovery = bench.score().recovery
    assert recovery is not None
    assert (recovery.double_apply_tasks, recovery.repeated_effects) == (0, 0)
    assert (recovery.interrupted, recovery.recovered) == (1, 1)


def test_a_kill_takes_everything_with_it(out: Path) -> None:
    """Children, grandchildren, and those in a session of their own; the proxy and the ledger go on."""
    hide = "setsid sleep 161.8 > /dev/null 2>&1 &"
    work = script(shell(f"{hide} ({hide}) ; echo second >> notes.txt"), TEST)
    bench = Bench(out, work, {"faults": {"plan": "patch_applied:hard_exit"}})
    bystander = subprocess.Popen(["sleep", "161.8"])
    try:
        bench.run()
        assert bench.first[0].ended == "restart_cut"
        assert alive("161.8") == [bystander.pid]
    finally:
        bystander.kill()
        bystander.wait()


def test_a_checkpoint_that_is_never_reached_is_untreated(out: Path) -> None:
    bench = Bench(out, script(append("second")), {"faults": {"plan": "tests_run:hard_exit"}})
    bench.run()
    (line,) = bench.first
    assert (line.ended, line.passed) == ("complete", True)
    assert line.reason == "untreated: tests_run never reached"
    recovery = bench.score().recovery
    assert recovery is not None
    assert recovery.untreated == 1


def test_the_plan_can_come_from_the_environment(
    out: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from harness.running import run_command

    monkeypatch.setenv("CHAOSPROXY_FAULTS", "patch_applied:hard_exit")
    bench = Bench(out, WORK)
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"tasks": [TASK]}))
    from harness.scripted_model import ThreadedScriptedModel

    with ThreadedScriptedModel(WORK) as model, _moved_to(model.url):
        assert run_command(path, RunOptions(out), bench.said, controls=False) == 0
    assert bench.first[0].reason == "killed at patch_applied"
    assert read_frozen(out / "manifest.yaml").faults.plan == "patch_applied:hard_exit"


# -- the end states --


def test_a_budget_that_is_spent(out: Path) -> None:
    work = Script(tuple(shell(f"echo {n}", Usage(24_000, 1_000)) for n in range(50)))
    bench = Bench(out, work, {"token_budget": 60_000})
    bench.run()
    (line,) = bench.first
    assert (line.ended, line.tokens_used, line.exit_code) == ("quota_cut", 75_000, 1)
    assert line.reason == "the token budget is spent"
    assert len(bench.requests) == 3
    bench.resume()
    (line,) = bench.resumed
    assert (line.ended, line.tokens_used) == ("quota_cut", 0), "nothing is left of the same budget"
    assert len(bench.requests) == 3


def test_a_resume_gets_what_is_left_of_the_budget(out: Path) -> None:
    work = Script(
        (append("second"), *(shell(f"echo {n}", Usage(20_000, 0)) for n in range(50))), end_text="Done."
    )
    bench = Bench(out, work, {"token_budget": 60_000, "faults": {"plan": "patch_applied:hard_exit"}})
    bench.run()
    spent = bench.first[0].tokens_used
    assert spent
    bench.resume()
    (line,) = bench.resumed
    assert line.ended == "quota_cut"
    assert line.tokens_used == 60_000
    quotas = [
        record
        for record in map(json.loads, (out / "decisions.jsonl").read_text().splitlines())
        if record["event"] == "quota"
    ]
    assert [(record["budget"], record["used"]) for record in quotas] == [(60_000, 60_000 + spent)]


@pytest.mark.parametrize(
    ("misstep", "ended"),
    [
        (Misstep(times=99, status=402), "quota_cut"),
        (Misstep(times=99, status=429, body='{"error":{"type":"insufficient_quota"}}'), "quota_cut"),
        (Misstep(times=99, status=429), "error"),
        (Misstep(times=99, status=400), "error"),
        (Misstep(times=99, status=500), "error"),
        (Misstep(times=99, cut_after_bytes=40), "error"),
    ],
    ids=["402", "429 quota", "429 rate", "400", "500", "cut"],
)
def test_what_a_provider_says(out: Path, misstep: Misstep, ended: str) -> None:
    bench = Bench(out, WORK, missteps=[misstep])
    bench.run()
    (line,) = bench.first
    assert (line.ended, line.passed) == (ended, False)


def test_a_provider_that_recovers_is_no_cut(out: Path) -> None:
    quota = '{"error":{"type":"insufficient_quota"}}'
    bench = Bench(out, WORK, missteps=[Misstep(status=429, body=quota), Misstep(status=500)])
    bench.run()
    assert bench.first[0].ended == "complete"


@pytest.mark.parametrize(
    ("code", "manifest", "ended", "reason"),
    [
        ("import time; time.sleep(100)", {"timeout": 1}, "error", "timed out after 1 s"),
        ("import sys; sys.exit('boom')", {}, "error", "exit code 1: boom"),
        ("import os; os.kill(os.getpid(), 11)", {}, "error", "signal 11"),
        ("pass", {}, "error", "exit code 0, but no request of an agent was recognised"),
    ],
    ids=["timeout", "crash", "signal", "nothing"],
)
def test_a_harness_that_fails(
    out: Path, code: str, manifest: dict[str, Any], ended: str, reason: str
) -> None:
    bench = Bench(out, WORK, manifest, python(code))
    bench.run()
    (line,) = bench.first
    assert (line.ended, line.reason, line.passed) == (ended, reason, False)
    assert bench.score().counts.error == 1


EXITS_0 = """
import json, os, urllib.error, urllib.request
body = json.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}],
                   "tools": [{"name": "shell", "input_schema": {"type": "object"}}]}).encode()
request = urllib.request.Request(os.environ["CHAOSPROXY_BASE_URL"] + "/v1/messages", body,
                                 {"content-type": "application/json", "x-api-key": "k"})
try:
    urllib.request.urlopen(request).read()
except urllib.error.HTTPError as error:
    pass
"""


@pytest.mark.parametrize(
    ("missteps", "ended"),
    [([], "error"), ([Misstep(status=500)], "error"), ([Misstep(status=402)], "quota_cut")],
    ids=["asked for a tool", "500", "402"],
)
def test_exit_code_0_is_not_enough(out: Path, missteps: list[Misstep], ended: str) -> None:
    bench = Bench(out, WORK, {}, python(EXITS_0), missteps=missteps)
    bench.run()
    assert (bench.first[0].exit_code, bench.first[0].ended) == (0, ended)


def test_a_command_that_is_not_there(out: Path) -> None:
    with pytest.raises(HarnessError, match="'no-such-program' is not there"):
        Bench(out, WORK, {}, ("no-such-program",)).run()


def test_a_check_that_cannot_be_started(out: Path) -> None:
    bench = Bench(out, WORK, {"tasks": [TASK | {"check": ["no-such-check"]}]})
    with pytest.raises(TaskError, match="check of task notes cannot be started"):
        bench.run()


def test_what_a_command_is_told(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_THE_CALLER", "yes")
    code = (
        "import json, os, sys; json.dump([sys.argv, dict(os.environ), os.getcwd()], open('told.json', 'w'))"
    )
    bench = Bench(out, WORK, {}, (*python(code), "{prompt}", "{session}", "at {base_url}", "{other}"))
    bench.run()
    argv, env, cwd = json.loads(bench.file("told.json"))
    base_url = env["CHAOSPROXY_BASE_URL"]
    assert base_url.endswith(f"/run/{bench.run_id()}")
    assert argv[1:] == [TASK["prompt"], env["CHAOSPROXY_SESSION"], f"at {base_url}", "{other}"]
    assert cwd == env["CHAOSPROXY_WORKSPACE"] == str(bench.folder.workspace(bench.run_id()))
    assert env["HOME"] == str(bench.folder.home(bench.run_id()))
    assert (env["ANTHROPIC_BASE_URL"], env["OPENAI_BASE_URL"]) == (base_url, f"{base_url}/v1")
    assert (env["FROM_THE_CALLER"], env["CHAOSPROXY_RESUME"], env["CHAOSPROXY_ATTEMPT"]) == ("yes", "0", "1")


def test_known_harnesses_inherit_only_what_the_manifest_names(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-the-caller")
    monkeypatch.setenv("NOT_NAMED", "sk-not-named")
    work = script(shell("env > env.txt; echo second >> notes.txt"))
    bench = Bench(out, work, {"pass_env": ["ANTHROPIC_API_KEY", "NOT_SET"]})
    bench.run()
    env = bench.file("env.txt")
    assert "sk-of-the-caller" in env
    assert "sk-not-named" not in env
    for path in out.iterdir():
        assert not path.is_file() or b"sk-of-the-caller" not in path.read_bytes(), path.name


def test_a_model_that_the_manifest_does_not_name(out: Path) -> None:
    """The scripted model answers in the name that it is asked for, here another one."""
    bench = Bench(out, WORK, {"endpoint": {"model_id": "claude-sonnet-4-5"}}, agent("--model=other"))
    bench.run()
    score = bench.score()
    assert (score.counts.invalid, score.exit_code) == (1, 1)
    assert "model_id claude-sonnet-4-5" in score.invalid_runs[0].reasons[0]
    assert any("model_id" in line for line in bench.said.lines)


# -- resuming --

BAD = agent()
GOOD_RESUME = list(agent("--resume={session}"))


def interrupted(out: Path, work: Script, *, good: bool) -> Bench:
    command = agent("--session={session}")
    manifest: dict[str, Any] = {"faults": {"plan": "patch_applied:hard_exit"}, "resume_prompt": AGAIN}
    if good:
        manifest["resume_command"] = GOOD_RESUME
    bench = Bench(out, work, manifest, command if good else BAD)
    bench.run()
    assert bench.first[0].ended == "restart_cut"
    bench.resume()
    return bench


def test_a_good_harness(out: Path) -> None:
    bench = interrupted(out, script(append("second"), TEST), good=True)
    assert bench.file() == "first\nsecond\n"
    assert figures(bench) == (0, 0, 1.0)


def test_a_good_harness_that_goes_on_with_a_new_edit(out: Path) -> None:
    bench = interrupted(out, script(append("second"), append("third"), TEST), good=True)
    assert bench.file() == "first\nsecond\nthird\n"
    assert figures(bench) == (0, 0, 1.0)


def test_a_harness_that_begins_anew_and_applies_the_same_patch(out: Path) -> None:
    bench = interrupted(out, script(append("second"), TEST), good=False)
    assert bench.file() == "first\nsecond\nsecond\n"
    assert figures(bench) == (1, 0, 1.0)
    one, two = (row for row in bench.reached() if row.checkpoint == "patch_applied")
    assert one.payload_digest == two.payload_digest
    again = [(call.attempt, call.call_digest) for call in bench.calls() if call.changed_workspace]
    assert again == [(1, one.call_digest), (2, one.call_digest)]


def test_a_harness_that_begins_anew_and_applies_another_patch(out: Path) -> None:
    bench = interrupted(out, script(append("second"), TEST, again=[append("other"), TEST]), good=False)
    assert bench.file() == "first\nsecond\nother\n"
    repeated, double, rsr = figures(bench)
    assert (double, rsr) == (1, 1.0)
    digests = {row.payload_digest for row in bench.reached() if row.checkpoint == "patch_applied"}
    assert len(digests) == 2
    # The first patch itself was not executed again.
    changed = [call.call_digest for call in bench.calls() if call.changed_workspace]
    assert len(set(changed)) == len(changed) == 2
    assert repeated is not None


def test_a_harness_that_begins_anew_over_work_that_stays_the_same(out: Path) -> None:
    """The same whole file is written again: nothing was applied twice."""
    from harness.turns import ToolCall

    write = Turn("Next.", (ToolCall("write", {"path": "notes.txt", "content": "first\nsecond\n"}),))
    bench = interrupted(out, script(write, TEST), good=False)
    assert figures(bench) == (0, 0, 1.0)


def test_a_harness_that_does_not_come_back(out: Path) -> None:
    bench = Bench(
        out,
        script(append("other"), TEST),
        {"faults": {"plan": "patch_applied:hard_exit"}, "resume_command": ["false"]},
        BAD,
    )
    bench.run()
    bench.resume()
    assert (bench.resumed[0].ended, bench.resumed[0].exit_code) == ("error", 1)
    assert figures(bench) == (0, 0, 0.0)
    bench.resume()
    assert len(bench.resumed) == 1, "what ended in an error was not cut"


def test_a_workspace_edited_by_hand_counts_as_a_failure(out: Path) -> None:
    bench = Bench(out, WORK, {"faults": {"plan": "context_loaded:hard_exit"}})
    bench.run()
    path = bench.folder.workspace(bench.run_id()) / "notes.txt"
    path.write_text("first\nsecond\n")
    before = len(bench.requests)
    bench.resume()
    (line,) = bench.resumed
    assert (line.ended, line.passed, line.resumed_from) == ("error", False, "context_loaded")
    assert line.reason == "the workspace was edited by hand between the kill and the resume"
    assert len(bench.requests) == before
    assert any("edited by hand" in said for said in bench.said.lines)
    assert figures(bench)[2] == 0.0


def test_a_missing_row_fails_loudly(out: Path) -> None:
    from harness.running import resume_command

    bench = Bench(out, WORK, {"faults": {"plan": "patch_applied:hard_exit"}})
    bench.run()
    journal = Journal(out / "journal.db")
    journal._change([("DELETE FROM checkpoints WHERE run_id = ?", [(bench.run_id(),)])])
    journal.close()
    assert resume_command(out, bench.said) == 1
    (line,) = bench.resumed
    assert (line.ended, line.passed, line.resumed_from) == ("error", False, None)
    assert line.reason is not None
    assert "no durable checkpoint" in line.reason
    assert resume_command(out, bench.said) == 0
    assert bench.said.lines[-1].endswith("nothing to resume")


def test_a_fresh_workspace(out: Path) -> None:
    """The machine went away: the task's own files and the harness's sessions come back, nothing else."""
    work = script(
        shell("echo x > ~/kept.txt; echo y > other.txt; echo second >> notes.txt"), shell("ls -A ~ .")
    )
    bench = Bench(out, work, {"faults": {"plan": "patch_applied:hard_exit"}, "workspace": "fresh"})
    bench.run()
    bench.resume()
    (line,) = bench.resumed
    assert (line.ended, line.passed) == ("complete", False)
    assert bench.file() == "first\n"
    seen = bench.requests[-1].decode()
    assert ".chaosproxy-reference" in seen
    assert "kept.txt" not in seen.split("ls -A ~ .")[-1]
    assert not (bench.folder.workspace(bench.run_id()) / "other.txt").exists()


def test_what_a_fresh_workspace_keeps_is_for_the_manifest_to_say(out: Path) -> None:
    work = script(
        shell("mkdir -p ~/a/b; echo x > ~/a/b/kept; echo x > ~/a/gone; echo 2 >> notes.txt"), shell("true")
    )
    manifest = {
        "faults": {"plan": "patch_applied:hard_exit"},
        "workspace": "fresh",
        "stored": ["a/b", ".chaosproxy-reference"],
    }
    bench = Bench(out, work, manifest)
    bench.run()
    home = bench.folder.home(bench.run_id())
    from harness.resume import _keep_only

    _keep_only(home, ("a/b", ".chaosproxy-reference"))
    assert (home / "a/b/kept").exists()
    assert not (home / "a/gone").exists()


def test_a_run_can_be_cut_and_resumed_more_than_once(out: Path) -> None:
    bench = Bench(out, WORK, {"faults": {"plan": "context_loaded:hard_exit"}})
    bench.run()
    bench.resume(missteps=[Misstep(times=9, status=402)])
    bench.resume()
    assert [(line.attempt, line.ended, line.resumed_from) for line in bench.resumed] == [
        (2, "quota_cut", "context_loaded"),
        (3, "complete", "context_loaded"),
    ]


# -- going on, stopping, dying --


def test_going_on_does_nothing_twice(out: Path) -> None:
    bench = Bench(out, WORK, {"seed": [1, 2]})
    bench.run()
    before = (out / "runlog.jsonl").read_bytes()
    finished = bench.run()
    assert (len(finished.lines), len(finished.made)) == (2, 0)
    assert (out / "runlog.jsonl").read_bytes() == before
    assert "2 of 2 runs are there already" in bench.said.lines


def test_another_manifest_is_refused(out: Path) -> None:
    bench = Bench(out, WORK)
    bench.run()
    with pytest.raises(ManifestError, match="they differ in token_budget: nothing and 5"):
        bench.run(token_budget=5)
    with pytest.raises(ManifestError, match="seed: 0 and 9"):
        bench.run(seed=9)


def test_a_folder_of_something_else_is_refused(out: Path) -> None:
    out.mkdir()
    (out / "thesis.tex").write_text("x")
    with pytest.raises(HarnessError, match=r"holds thesis\.tex but no manifest"):
        Bench(out, WORK).run()


def test_only_one_at_a_time(out: Path) -> None:
    bench = Bench(out, WORK)
    with bench.folder.held(), pytest.raises(HarnessError, match="another chaosproxy is at work"):
        bench.run()
    bench.run()


def test_a_plan_at_an_undeclared_checkpoint_is_an_error(out: Path) -> None:
    manifest = {
        "tasks": [TASK | {"checkpoints": ["tests_run"]}],
        "faults": {"plan": "patch_applied:hard_exit"},
    }
    with pytest.raises(ManifestError, match="kills at patch_applied, which task notes does not declare"):
        Bench(out, WORK, manifest).run()
    assert not out.exists()


def dead(out: Path, *, end: dict[str, Any] | None = None, boot: str | None = None) -> Bench:
    """A folder whose supervisor died with one run begun, or ended but without its line."""
    bench = Bench(out, WORK, {"seed": [1, 2]})
    bench.run()
    lines = (out / "runlog.jsonl").read_text().splitlines(keepends=True)
    (out / "runlog.jsonl").write_text(lines[0])
    log = (out / "decisions.jsonl").read_text().splitlines(keepends=True)
    kept = [
        line for line in log if not ('"event":"end"' in line and bench.run_id(seed=2) in line and end is None)
    ]
    text = "".join(kept)
    if boot is not None:
        record = next(json.loads(line) for line in kept if '"start"' in line)
        text = text.replace(record["boot_id"], boot)
    (out / "decisions.jsonl").write_text(text)
    return bench


def completed(bench: Bench) -> Finished:
    finished = bench.run()
    assert (len(finished.completed), len(finished.made), len(finished.lines)) == (1, 0, 2)
    return finished


def test_the_next_command_completes_the_ledger(out: Path) -> None:
    bench = dead(out)
    completed(bench)
    line = bench.first[-1]
    assert (line.seed, line.ended, line.passed) == (2, "restart_cut", True)
    assert line.reason == f"the supervisor (process {os.getpid()}) died"
    assert line.tokens_used == bench.first[0].tokens_used
    assert line.stopped is not None
    assert line.started is not None
    assert line.started < line.stopped
    assert [line.run_id for line in bench.first] == [bench.run_id(seed=1), bench.run_id(seed=2)]
    assert bench.score().counts.restart_cut == 1


def test_a_machine_that_was_restarted_is_told_by_its_boot_id(out: Path) -> None:
    bench = dead(out, boot="another-boot")
    completed(bench)
    line = bench.first[-1]
    assert line.boot_id == "another-boot"
    assert line.reason is not None
    assert line.reason.startswith("the machine was restarted at 20")


def test_a_run_that_had_ended_keeps_its_end(out: Path) -> None:
    bench = dead(out, end={"ended": "complete"})
    completed(bench)
    assert (bench.first[-1].ended, bench.first[-1].passed) == ("complete", True)


def test_resume_completes_the_ledger_too(out: Path) -> None:
    bench = dead(out)
    bench.resume()
    (line,) = bench.resumed
    assert (line.seed, line.ended) == (2, "complete")
    assert len(bench.first) == 2


def test_what_a_dead_supervisor_left_running_is_ended(out: Path) -> None:
    bench = dead(out)
    home = bench.folder.home(bench.run_id(seed=2))
    orphan = subprocess.Popen(["sleep", "141.4"], env={"HOME": str(home)}, start_new_session=True)
    other = subprocess.Popen(["sleep", "141.4"], env={"HOME": str(home) + "x"}, start_new_session=True)
    try:
        completed(bench)
        assert orphan.wait(10) == -9
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_torn_line_chokes_nobody(out: Path) -> None:
    bench = Bench(out, WORK, {"seed": [1, 2]})
    bench.run()
    with (out / "runlog.jsonl").open("ab") as file:
        file.write(b'{"task_id":"notes","se')
    with (out / "decisions.jsonl").open("ab") as file:
        file.write(b'{"event":"end","ts":"2026')
    assert len(bench.run().lines) == 2
    score = bench.score()
    assert (score.counts.runs, score.exit_code) == (2, 0)


# -- controls --


def controls_of(out: Path, work: Script, said: Said) -> list[bool]:
    from harness.scripted_model import ThreadedScriptedModel

    options = RunOptions(out)
    prepared = prepare_manifest(
        parse_manifest({"tasks": [TASK], "profile": "only-empty", "token_budget": 1}, "test"), out, options
    )
    with ThreadedScriptedModel(work) as model, _moved_to(model.url):
        return [result.holds for result in run_controls(prepared, options, said)]


def test_controls_hold(out: Path) -> None:
    said = Said()
    assert controls_of(out, WORK, said) == [True, True]
    assert "negative control: 0 of 1 runs passed, as it must" in said.lines
    assert "positive control: 1 of 1 runs passed, as it must" in said.lines
    negative = read_frozen(control_folder(out, "negative") / "manifest.yaml")
    assert (negative.control, negative.faults.plan, negative.token_budget) == (
        "negative",
        "context_loaded:hard_exit",
        None,
    )
    Bench(out, WORK).run()
    score = score_paths(
        [out], positive=control_folders([out], "positive"), negative=control_folders([out], "negative")
    )
    assert [control.holds for control in score.controls] == [True, True]
    assert score.exit_code == 0


def test_a_broken_positive_control_voids_the_treatment(out: Path) -> None:
    said = Said()
    assert controls_of(out, script(READ), said) == [True, False]
    assert "positive control: 0 of 1 runs passed, where exactly 1 was needed" in said.lines
    Bench(out, WORK).run()
    score = score_paths([out], positive=control_folders([out], "positive"))
    assert not score.controls[0].holds
    assert score.exit_code == 1


def test_reference_edits_are_seen_as_patches(out: Path) -> None:
    bench = Bench(out, script(edit("nowhere", "x"), edit("first", "second"), TEST))
    bench.run()
    failed, applied, _ = bench.calls()
    assert (failed.failed, failed.changed_workspace) == (True, False)
    assert (applied.failed, applied.changed_workspace) == (False, True)
    row = next(row for row in bench.reached() if row.checkpoint == "patch_applied")
    assert row.call_digest == applied.call_digest
