"""The shipped tasks: wrong as they are shipped, right when repaired, and nothing else will do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.task import Task, TaskError, load_task, prepare, shipped_tasks, verdict

TASKS = {task.id: task for task in shipped_tasks()}
# What a person would change: (file, old text, new text), or (file, None, whole content).
FIXES: dict[str, list[tuple[str, str | None, str]]] = {
    "pager": [("pager.py", "return total // size + 1", "return (total + size - 1) // size")],
    "limits": [
        ("settings.py", "REQUEST_TIMEOUT_S = 30", "REQUEST_TIMEOUT_S = 45"),
        ("settings.py", "MAX_RETRIES = 9", "MAX_RETRIES = 4"),
    ],
    "rename": [
        ("report.py", "share_of, sum_of", "share_of, total_of"),
        ("report.py", "total = sum_of(", "total = total_of("),
        ("invoice.py", "sum_of", "total_of"),
    ],
    "services": [("services/store.ini", "max_connections = 250", "max_connections = 25")],
    "tax": [
        (
            "tax.py",
            None,
            '"""Tax in cents, by the class of the goods."""\n\n'
            'RATES_PER_MILLE = {"food": 70, "books": 70, "tools": 190, "wine": 190}\n'
            "DEFAULT_PER_MILLE = 190\nFREE_UP_TO_CENTS = 250\n\n\n"
            "def rate_of(goods):\n    return RATES_PER_MILLE.get(goods, DEFAULT_PER_MILLE)\n\n\n"
            "def tax_of(goods, cents):\n    if cents <= FREE_UP_TO_CENTS:\n        return 0\n"
            "    return (cents * rate_of(goods) + 500) // 1000\n",
        )
    ],
}


def repair(task: Task, workspace: Path, fixes: list[tuple[str, str | None, str]]) -> None:
    for name, old, new in fixes:
        path = workspace / name
        if old is not None:
            text = path.read_text()
            assert old in text
            new = text.replace(old, new)
        path.write_text(new)


def test_there_are_five_and_every_one_has_a_fix() -> None:
    assert len(TASKS) == 5
    assert set(TASKS) == set(FIXES)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_check_fails_on_the_untouched_files_and_passes_on_the_right_fix(
    task: Task, tmp_path: Path
) -> None:
    prepare(task, tmp_path)
    untouched = verdict(task, tmp_path)
    assert not untouched.passed
    assert "Error" in untouched.output
    repair(task, tmp_path, FIXES[task.id])
    assert verdict(task, tmp_path).passed


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_half_a_fix_is_not_enough(task: Task, tmp_path: Path) -> None:
    if len(FIXES[task.id]) > 1:
        prepare(task, tmp_path)
        repair(task, tmp_path, FIXES[task.id][:-1])
        assert not verdict(task, tmp_path).passed


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_check_does_not_trust_the_test_of_the_workspace(task: Task, tmp_path: Path) -> None:
    prepare(task, tmp_path)
    for path in tmp_path.glob("test_*.py"):
        path.write_text("print('99 tests passed')\n")
    assert not verdict(task, tmp_path).passed


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_prompt_names_a_command_that_counts_as_a_test_run(task: Task) -> None:
    assert task.test_command.search(task.prompt)
    assert not task.test_command.search("cat pager.py")


def test_a_check_that_hangs_or_prints_nonsense_fails(tmp_path: Path) -> None:
    hangs = Task(
        "x",
        "p",
        (("a", "b"),),
        ("{python}", "-c", "print('on', flush=True); input() or open(0).read()"),
        TASKS["tax"].test_command,
    )
    assert not verdict(hangs, tmp_path).passed
    slow = Task(
        "x",
        "p",
        (),
        ("{python}", "-c", "import time; print(1, flush=True); time.sleep(60)"),
        hangs.test_command,
    )
    late = verdict(slow, tmp_path, timeout_s=1)
    assert (late.passed, late.timed_out, late.output) == (False, True, "1\n")
    bytes_out = Task(
        "x", "p", (), ("{python}", "-c", "import os; os.write(1, bytes([255, 10]))"), hangs.test_command
    )
    assert verdict(bytes_out, tmp_path).passed
    assert sys.executable not in hangs.check


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("id: 'a b'", "id"),
        ("files: {../x: y}", "files"),
        ("files: {/x: y}", "files"),
        ("files: {}", "files"),
        ("check: []", "check"),
        ("test_command: '('", "test_command"),
        ("checks: [x]", "unknown key 'checks'"),
    ],
)
def test_a_task_file_that_does_not_fit_is_named(tmp_path: Path, change: str, named: str) -> None:
    good = {"id": "id: a", "prompt": "prompt: p", "files": "files: {a: b}", "check": "check: [x]"}
    lines = good | {"test_command": "test_command: t"} | {change.split(":")[0]: change}
    path = tmp_path / "task.yaml"
    path.write_text("\n".join(lines.values()))
    with pytest.raises(TaskError, match=rf"task\.yaml: {named}"):
        load_task(path)
