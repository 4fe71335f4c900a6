"""Run folders with something of everything: what a study of durability with faults on the tools leaves."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.scoring.logs import (
    MODERATE,
    OFF,
    decision,
    delivery,
    end,
    fault,
    request,
    run,
    start,
    write_decisions,
    write_journal,
    write_resumed,
    write_runs,
)

TASKS = ("limits", "pager", "rename", "services", "tax", "routes", "cache", "queue", "parser", "dates")
KINDS = (
    ("empty", "after", "implicit"),
    ("truncated", "after", "explicit"),
    ("wrong_data", "after", "implicit"),
    ("post_effect_error", "after", "explicit"),
    ("permission_denied", "before", "explicit"),
    ("phantom_success", "before", "implicit"),
)
MANIFEST = """\
run_id: study-7
taskset_sha: 5f2c
env: {python: '3.13', os: debian, container_digest: 'sha256:4e1f', cpus: 2, mem_gb: 8, disk: ssd}
endpoint: {provider_notes: scripted, model_id: m-1}
faults: {plan: 'patch_applied:hard_exit', repeats: 1}
checkpoints: [context_loaded, patch_drafted, patch_applied, tests_run]
harness: pi
threshold: 0.1
"""


def rich_folders(folder: Path, seeds: int = 6) -> dict[str, Path]:
    """Folders ``treated``, ``off``, ``positive`` and ``negative`` below ``folder``."""
    places = {name: folder / name for name in ("treated", "off", "positive", "negative")}
    for place in places.values():
        place.mkdir()
    draw = random.Random(4)
    _treated(places["treated"], seeds, draw)
    _plain(places["off"], seeds, draw, 0.9)
    write_runs(places["positive"], *(run(task, run_id=f"p-{task}") for task in TASKS))
    killed = (run(task, run_id=f"n-{task}", ended="restart_cut", passed=None) for task in TASKS)
    write_runs(places["negative"], *killed)
    return places


def _plain(folder: Path, seeds: int, draw: random.Random, rate: float) -> None:
    lines, log = [], []
    for task in TASKS:
        for seed in range(seeds):
            name = f"{task}-{seed}"
            passed = draw.random() < rate
            spent = 9000 + draw.randrange(4000)
            cost = {"tokens_used": spent, "wall_s": 20.0}
            lines.append(run(task, seed=seed, run_id=name, passed=passed, profile="off", **cost))
            log += [start(name, task_id=task, seed=seed, profile=OFF, profile_sha256="0" * 64)]
            log += [request(name), decision(name), end(name, "complete", passed)]
    write_runs(folder, *lines)
    write_decisions(folder, *log)


def _treated(folder: Path, seeds: int, draw: random.Random) -> None:
    (folder / "manifest.yaml").write_text(MANIFEST)
    lines: list[Any] = []
    log: list[Any] = []
    resumed: list[Any] = []
    journal: list[Any] = []
    for number, task in enumerate(TASKS):
        for seed in range(seeds):
            name = f"{task}-{seed}"
            log.append(start(name, task_id=task, seed=seed, profile=MODERATE, boot_id=f"boot-{seed % 2}"))
            log.append(request(name))
            log += _faults(name, draw)
            journal.append((name, task, "context_loaded", 1, "c"))
            ended = draw.choices(("complete", "quota_cut", "restart_cut", "error"), (82, 5, 9, 4))[0]
            passed = ended == "complete" and draw.random() < 0.92 - 0.06 * number
            if ended == "restart_cut":
                journal.append((name, task, "patch_applied", 1, "d1"))
                journal.append((name, task, "patch_applied", 2, draw.choice(("d1", "d2"))))
                again = draw.random() < 0.7
                resumed.append(run(task, seed=seed, run_id=name, attempt=2, passed=again, started="x"))
            claim = draw.choice(("done", "done", "done", "gave_up")) if ended == "complete" else None
            lines.append(
                run(
                    task,
                    seed=seed,
                    run_id=name,
                    ended=ended,
                    passed=passed if ended == "complete" else None,
                    claimed=claim,
                    tokens_used=11000 + draw.randrange(9000),
                    wall_s=round(20 + 15 * draw.random(), 2),
                    boot_id=f"boot-{seed % 2}",
                    profile="moderate",
                )
            )
            log.append(end(name, ended, passed if ended == "complete" else None))
    write_runs(folder, *lines)
    write_resumed(folder, *resumed)
    write_journal(folder / "journal.db", *journal)
    write_decisions(folder, *log)


def _faults(name: str, draw: random.Random) -> list[Any]:
    log: list[Any] = []
    for call in range(draw.randrange(4)):
        kind, timing, mode = draw.choice(KINDS)
        family = draw.choice(("read", "shell", "edit"))
        persistence = draw.choices(("transient", "permanent"), (3, 1))[0]
        sort = {"kind": kind, "timing": timing, "mode": mode, "persistence": persistence}
        log += [fault(name, call, family=family, tool=family, **sort), delivery(name, call)]
        if draw.random() < 0.6:
            again = {"call_digest": f"{call:064x}", "occurrence": 1, "tool": family, "family": family}
            log.append(decision(name, 50 + call, **again))
        if draw.random() < 0.3:
            log.append(decision(name, 80 + call))
    return log
