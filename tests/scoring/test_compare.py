"""Comparisons and the effect of faults: pairing, refusal, R's `sleep`, and counts made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import scipy.stats

from scoring.compare import NothingToPair, compare_json, compare_paths
from scoring.compare_text import compare_lines, compare_text
from scoring.envelope import EnvelopesDiffer
from scoring.score import Score, score_paths
from tests.scoring.logs import (
    MODERATE,
    OFF,
    delivery,
    end,
    fault,
    request,
    run,
    start,
    write_decisions,
    write_runs,
)
from tests.scoring.test_paired import SLEEP_1, SLEEP_2


def arms(folder: Path, a: list[Any], b: list[Any]) -> tuple[Path, Path]:
    for name, runs in (("a", a), ("b", b)):
        (folder / name).mkdir(exist_ok=True)
        write_runs(folder / name, *runs)
    return folder / "a", folder / "b"


def manifest(folder: Path, text: str) -> None:
    (folder / "manifest.yaml").write_text(text)


def test_costs_are_rs_paired_t_test_on_sleep(tmp_path: Path) -> None:
    sides = [[run(f"t{k}", wall_s=float(x[k])) for k in range(10)] for x in (SLEEP_1, SLEEP_2)]
    found = compare_paths(*arms(tmp_path, *sides))
    wall = next(one for one in found.secondary if one.name == "wall time per run, s")
    assert wall.difference == pytest.approx(1.58)
    assert wall.interval == pytest.approx((0.7001142, 2.4598858), abs=5e-8)
    assert wall.p_exact
    # Cohen's d of the differences: t / √n, t = 4.0621 (R).
    assert wall.effect_size == pytest.approx(4.0621 / 10**0.5, abs=5e-5)
    assert (wall.tasks, wall.pairs) == (10, 10)


def test_the_primary_contrast_by_hand(tmp_path: Path) -> None:
    # Task 1: A passes 1 of 2 seeds, B both; task 2: A passes, B does not; repeats of a seed are averaged.
    a = [run("1", seed=1), run("1", seed=2, passed=False), run("2", seed=1)]
    b = [
        run("1", seed=1),
        run("1", seed=2, passed=True),
        run("2", seed=1, passed=False),
        run("2", seed=1, repeat=1, passed=True),
    ]
    found = compare_paths(*arms(tmp_path, a, b))
    assert [(row.task_id, row.a, row.b, row.seeds) for row in found.rows] == [
        ("1", 0.5, 1.0, 2),
        ("2", 1.0, 0.5, 1),
    ]
    assert (found.primary.difference, found.primary.p, found.pairs) == (0.0, 1.0, 3)
    assert (found.primary.a, found.primary.b) == (0.75, 0.75)


def test_cut_and_invalid_runs_did_not_pass(tmp_path: Path) -> None:
    a = [run(f"t{k}") for k in range(4)]
    b = [run("t0"), run("t1", ended="quota_cut"), run("t2", ended="error"), run("t3")]
    found = compare_paths(*arms(tmp_path, a, b))
    assert found.primary.difference == -0.5
    observed = next(one for one in found.secondary if "observed" in one.name)
    assert (observed.tasks, observed.difference) == (2, 0.0)
    rates = {one.name: one.difference for one in found.secondary}
    assert (rates["truncation rate"], rates["error rate"]) == (0.25, 0.25)


def test_holm_is_over_the_secondary_contrasts(tmp_path: Path) -> None:
    a = [run(f"t{k}", wall_s=10.0 + k, tokens_used=100) for k in range(8)]
    b = [run(f"t{k}", wall_s=20.0 + 2 * k, tokens_used=100 + k % 2) for k in range(8)]
    found = {one.name: one for one in compare_paths(*arms(tmp_path, a, b)).secondary}
    # All eight differences point the same way: 2 of 256 patterns; six contrasts are tested.
    assert found["wall time per run, s"].p == pytest.approx(2 / 256)
    assert found["wall time per run, s"].p_holm == pytest.approx(6 * 2 / 256)
    assert found["tokens per run"].p == pytest.approx(2 / 16)
    assert found["tokens per run"].p_holm == pytest.approx(5 * 2 / 16)
    assert all(one.p_holm == 1.0 for name, one in found.items() if "rate" in name)


def test_when_nothing_differs_there_is_a_bound_and_no_interval(tmp_path: Path) -> None:
    same = [run(f"t{k}") for k in range(10)]
    found = compare_paths(*arms(tmp_path, same, same)).primary
    assert (found.difference, found.interval, found.p, found.smallest_detectable) == (0.0, None, 1.0, None)
    # Wilson for 0 of 10 (R): .2775328
    assert "±0.278" in found.note


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        ("env: {container_digest: x}", "env: {container_digest: y}", "container digest: A x, B y"),
        ("env: {cpus: 2}", "env: {cpus: 4}", "CPU count: A 2, B 4"),
        ("taskset_sha: x", "taskset_sha: y", "task set"),
        ("tasks: [t1]", "tasks: [t1, t2]", "task set"),
        ("token_budget: 1000", "token_budget: 2000", "token budget: A 1000, B 2000"),
        ("threshold: 0.1", "threshold: 0.2", r"threshold: A 0\.1, B 0\.2"),
        ("profile: mild", "profile: moderate", "profile: A mild, B moderate"),
        ("checkpoints: [a]", "checkpoints: [a, b]", "checkpoints: A a, B a, b"),
    ],
)
def test_different_conditions_are_refused(tmp_path: Path, a: str, b: str, says: str) -> None:
    folders = arms(tmp_path, [run("t1")], [run("t1")])
    for folder, text in zip(folders, (a, b), strict=True):
        manifest(folder, text)
    with pytest.raises(EnvelopesDiffer, match=says):
        compare_paths(*folders)


def test_without_manifests_the_logs_speak(tmp_path: Path) -> None:
    folders = arms(tmp_path, [run("t1")], [run("t2")])
    with pytest.raises(EnvelopesDiffer, match="task set: A t1, B t2"):
        compare_paths(*folders)
    folders = arms(tmp_path, [run("t", run_id="r")], [run("t", run_id="r")])
    for folder, sha in zip(folders, "pq", strict=True):
        write_decisions(folder, start("r", task_id="t", profile_sha256=sha * 64), request("r"))
    with pytest.raises(EnvelopesDiffer, match="profile: A moderate p"):
        compare_paths(*folders)
    folders = arms(tmp_path, [run("t", profile="mild")], [run("t", profile="off")])
    for folder in folders:
        (folder / "decisions.jsonl").unlink()
    with pytest.raises(EnvelopesDiffer, match="the folder with faults and the one under off"):
        compare_paths(*folders)


def test_what_one_arm_left_out_of_its_draws_the_other_leaves_out_too(tmp_path: Path) -> None:
    folders = arms(tmp_path, [run("t", run_id="r")], [run("t", run_id="r")])
    shared, own = {"*": ["locked"], "@read": ["empty"]}, {"*": ["timeout"]}

    def log(folder: Path, gaps: dict[str, list[str]]) -> None:
        write_decisions(folder, start("r", task_id="t", profile=MODERATE | {"gaps": gaps}), request("r"))

    log(folders[0], shared)
    log(folders[1], own)
    with pytest.raises(EnvelopesDiffer, match="capabilities: A @read empty, B nothing"):
        compare_paths(*folders)
    # What each harness cannot do by itself makes no other conditions.
    log(folders[1], {"*": [], "@read": ["empty"]})
    assert "capabilities" in {one.name for one in compare_paths(*folders).conditions}
    log(folders[0], own)
    log(folders[1], {})
    assert "capabilities" not in {one.name for one in compare_paths(*folders).conditions}


def test_what_is_known_of_one_arm_only_is_said(tmp_path: Path) -> None:
    folders = arms(tmp_path, [run("t1"), run("t2")], [run("t1"), run("t2")])
    manifest(folders[0], "env: {cpus: 2}")
    found = compare_paths(*folders)
    assert "conditions: CPU count: not known in B" in "\n".join(map(str, found.problems))


def test_mixed_seeds(tmp_path: Path) -> None:
    a = [run("t", seed=s) for s in (1, 2)] + [run("u", seed=1)]
    b = [run("t", seed=s) for s in (2, 3)] + [run("u", seed=1)]
    found = compare_paths(*arms(tmp_path, a, b))
    assert (found.pairs, found.a.unpaired, found.b.unpaired) == (2, 1, 1)
    assert "1 of 3 runs of A have a task and seed that B has not" in "\n".join(map(str, found.problems))
    with pytest.raises(NothingToPair, match="same seeds"):
        compare_paths(*arms(tmp_path, [run("t", seed=1)], [run("t", seed=2)]))


def test_findings_of_both_arms_count(tmp_path: Path) -> None:
    folders = arms(tmp_path, [run("t", run_id="r")], [run("t", passed=None)])
    write_decisions(folders[0], start("r", task_id="t"), request("r"), fault("r"))
    found = compare_paths(*folders)
    assert found.exit_code == 1
    assert {finding.what[:2] for finding in found.findings} == {"A:", "B:"}


def test_a_smoke_run_ranks_nothing(tmp_path: Path) -> None:
    small = compare_paths(*arms(tmp_path, [run("t", passed=False)], [run("t")]))
    assert "too small to say which is better" in compare_lines(small)[1]
    runs = [run(f"t{k}") for k in range(10)]
    failed = [run(f"t{k}", passed=k > 4) for k in range(10)]
    assert compare_lines(compare_paths(*arms(tmp_path, failed, runs))) == (
        "tasks: 10 | pairs: 10 | A: 0.500 | B: 1.000 | difference: +0.500",
        "primary: +0.500 [0.123, 0.877] (paired t), p 0.062 — this design finds differences of 0.524 or more",
    )


def test_exploratory_cells_are_labelled(tmp_path: Path) -> None:
    folders = arms(tmp_path, *([run(t, run_id=t, passed=t > limit) for t in "xy"] for limit in ("x", "w")))
    for folder in folders:
        log = [record for t in "xy" for record in (start(t), request(t), fault(t), delivery(t))]
        write_decisions(folder, *log)
    found = compare_paths(*folders)
    assert [(one.name, one.difference, one.rank) for one in found.exploratory] == [
        ("after · implicit · transient", 0.5, "exploratory"),
        ("empty", 0.5, "exploratory"),
    ]
    assert "Exploratory" in compare_text(found)
    assert json.loads(compare_json(found))["primary"]["rank"] == "primary"


def effect(folder: Path, treated: list[Any], off: list[Any]) -> Score:
    """A folder with one delivered fault a run, and one under off."""
    for name, runs, profile in (("t", treated, MODERATE), ("o", off, OFF)):
        (folder / name).mkdir(exist_ok=True)
        write_runs(folder / name, *runs)
        log: list[Any] = []
        for one in runs:
            log += [start(one.run_id, task_id=one.task_id, profile=profile, profile_sha256=name)]
            log += [request(one.run_id)]
            log += [fault(one.run_id), delivery(one.run_id)] if name == "t" else []
            log += [end(one.run_id, one.ended, one.passed)]
        write_decisions(folder / name, *log)
    return score_paths([folder / "t", folder / "o"])


def test_the_effect_of_faults_by_hand(tmp_path: Path) -> None:
    treated = [
        run(f"t{k}", run_id=f"t{k}", passed=k > 1, tokens_used=200 + 100 * (k % 2), wall_s=9.0)
        for k in range(4)
    ]
    off = [run(f"t{k}", run_id=f"t{k}", tokens_used=100, wall_s=10.0) for k in range(4)]
    score = effect(tmp_path, treated, off)
    assert score.effect is not None
    assert (score.effect.pass_rate.a, score.effect.pass_rate.b) == (1.0, 0.5)
    assert score.effect.pass_rate.difference == -0.5
    # (100 + 200 + 100 + 200) tokens over four faults; a second less.
    assert score.effect.tokens_per_fault.value == 150
    assert score.effect.wall_s_per_fault.value == -1.0
    assert (score.effect.tokens_per_fault.per, score.effect.baseline_runs) == (4, 4)
    # The baseline is in no other number, and that is said.
    assert (score.runs, score.strict) == (4, 0.5)
    assert "the baseline for the effect of faults (4 runs), not scored" in "\n".join(map(str, score.problems))
    theirs = scipy.stats.ttest_1samp([100.0, 200, 100, 200], 0).confidence_interval(0.95)
    assert score.effect.tokens_per_fault.interval == pytest.approx((theirs.low, theirs.high))


def test_unpaired_runs_of_an_effect_are_said(tmp_path: Path) -> None:
    score = effect(tmp_path, [run("t1", run_id="t1"), run("t2", run_id="t2")], [run("t1", run_id="t1")])
    assert score.effect is not None
    assert score.effect.unpaired == (0, 1)


def test_folders_under_off_alone_are_scored(tmp_path: Path) -> None:
    score = score_paths([write_runs(tmp_path, run("t1", profile="off"), run("t2", profile="off"))])
    assert (score.runs, score.effect) == (2, None)
