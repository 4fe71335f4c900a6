"""Scores of whole run folders: what counts, what does not, and which exit code says so."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.problems import (
    BadRunLine,
    BadVerdicts,
    EmptyLog,
    NoStart,
    ReadingError,
    RunIdClash,
    StartMismatch,
    UnusablePath,
)
from scoring.score import BadThreshold, Score, score_json, score_paths
from tests.scoring.logs import (
    MODERATE,
    OFF,
    decision,
    delivery,
    end,
    error,
    fault,
    line,
    published_runs,
    request,
    run,
    start,
    write_decisions,
    write_runs,
    write_verdicts,
)


def served(folder: Path, *more: Any, **start_changes: Any) -> Score:
    """The score of one served run that passed, with one delivered fault and ``more``."""
    log = (start(**start_changes), request(), fault(call=1), delivery(call=1), *more, end(passed=True))
    return score_paths([write_decisions(folder, *log)])


def problems(score: Score) -> str:
    return "\n".join(map(str, score.problems))


def test_the_published_example(tmp_path: Path) -> None:
    score = score_paths([write_runs(tmp_path, *published_runs())])
    assert (score.runs, score.counts.complete, score.counts.passed) == (120, 98, 65)
    assert score.truncation_rate == 22 / 120
    assert score.strict == 65 / 120
    assert score.observed == 65 / 98
    assert score.truncation_exposure == pytest.approx(65 / 98 - 65 / 120)
    assert (score.headline.value, score.headline.basis) == (65 / 120, "strict")
    assert score.exposure is None
    assert score.estimates["exposure"].value is None
    assert score.exit_code == 0


def test_empty_denominators_are_null(tmp_path: Path) -> None:
    score = score_paths([write_runs(tmp_path, run(ended="quota_cut", passed=None))])
    assert score.observed is None
    assert score.truncation_exposure is None
    assert (score.strict, score.truncation_rate) == (0.0, 1.0)
    assert score.efficiency.tokens_per_run.value is None
    assert score.efficiency.tokens_per_pass.value is None
    assert score.estimates["strict"].wilson is None
    assert score.estimates["strict"].bootstrap is None
    assert json.loads(score_json(score))["observed"] is None


def test_a_cut_run_that_passed_its_check_is_no_pass(tmp_path: Path) -> None:
    score = score_paths([write_runs(tmp_path, run(), run("t2", ended="restart_cut", passed=True))])
    assert (score.strict, score.observed) == (0.5, 1.0)


def test_first_attempts_only(tmp_path: Path) -> None:
    write_runs(tmp_path, run(run_id="r1", passed=False), run(run_id="r1", attempt=2))
    (tmp_path / "runlog.resumed.jsonl").write_bytes(line(run(run_id="r1", attempt=2)))
    score = score_paths([tmp_path])
    assert (score.runs, score.strict) == (1, 0.0)
    assert "attempt 2" in problems(score)


def test_a_served_run(tmp_path: Path) -> None:
    score = served(tmp_path, decision(call=2), task_id="fix-it")
    assert (score.strict, score.observed, score.exit_code) == (1.0, 1.0, 0)
    assert score.tasks[0].task_id == "fix-it"
    assert score.exposure is not None
    assert score.exposure.calls == 2
    assert (score.exposure.decided, score.exposure.delivered, score.exposure.exposed_runs) == (1, 1, 1)
    assert score.efficiency.tokens_per_run.value == 135
    assert score.origins[0].harness == "pi"


def test_served_without_a_verdict_is_inconclusive_but_shows_exposure(tmp_path: Path) -> None:
    log = write_decisions(tmp_path, start(), request(), fault(), delivery(), end())
    score = score_paths([log])
    assert score.exit_code == 3
    assert (score.strict, score.observed, score.truncation_rate, score.headline.value) == (None,) * 4
    assert score.exposure is not None
    assert score.exposure.delivered == 1
    assert "could be judged" in score.findings[0].what


@pytest.mark.parametrize(
    ("verdict", "strict", "truncation"),
    [
        (True, 1.0, 0.0),
        (False, 0.0, 0.0),
        ({"passed": True}, 1.0, 0.0),
        ({"passed": True, "ended": "complete"}, 1.0, 0.0),
        ({"passed": None, "ended": "restart_cut"}, 0.0, 1.0),
    ],
)
def test_verdicts_judge_served_runs(
    tmp_path: Path, verdict: object, strict: float, truncation: float
) -> None:
    write_decisions(tmp_path, start(), request(), fault(), delivery())
    write_verdicts(tmp_path, {"r1": verdict})
    score = score_paths([tmp_path / "decisions.jsonl"])
    assert (score.strict, score.truncation_rate, score.exit_code) == (strict, truncation, 0)


def test_given_verdicts_go_before_those_of_the_folder(tmp_path: Path) -> None:
    write_decisions(tmp_path, start(), request(), fault(), delivery())
    write_verdicts(tmp_path, {"r1": False})
    given_file = tmp_path / "mine.json"
    given_file.write_text('{"r1": true, "r9": true}')
    score = score_paths([tmp_path], verdicts=given_file)
    assert score.strict == 1.0
    assert "a verdict for run r9, which is in no log" in problems(score)


def test_the_end_record_goes_before_the_verdict(tmp_path: Path) -> None:
    write_decisions(tmp_path, start(), request(), fault(), delivery(), end(ended="error"), end())
    write_verdicts(tmp_path, {"r1": True})
    score = score_paths([tmp_path])
    assert (score.strict, score.error_rate, score.headline.basis) == (0.0, 1.0, "strict")


def test_verdicts_fill_in_what_the_run_log_leaves_open(tmp_path: Path) -> None:
    write_runs(tmp_path, run(run_id="r1", passed=None), run("t2", run_id="r2", passed=True))
    write_verdicts(tmp_path, {"r1": True, "r2": False})
    score = score_paths([tmp_path])
    assert score.strict == 1.0
    assert "the verdicts say otherwise" in problems(score)


def test_a_spent_budget_is_a_cut_unless_somebody_says_otherwise(tmp_path: Path) -> None:
    quota = b'{"event":"quota","ts":"2026-01-01T00:00:05Z","run_id":"r1","budget":10,"used":11}\n'
    write_decisions(tmp_path, start(), request(), fault(), delivery(), quota)
    write_verdicts(tmp_path, {"r1": False})
    assert score_paths([tmp_path]).truncation_rate == 1.0


def test_unjudged_runs_stay_in_n_as_failures_and_in_the_bound(tmp_path: Path) -> None:
    write_runs(tmp_path, run(), run("t2", passed=None))
    score = score_paths([tmp_path])
    assert (score.strict, score.strict_bound, score.counts.unjudged) == (0.5, 1.0, 1)
    assert (score.headline.basis, score.exit_code) == ("strict", 0)
    assert score.headline.reason == "unjudged runs above the 10% threshold"


def test_an_error_record_makes_a_run_invalid(tmp_path: Path) -> None:
    score = served(tmp_path, error(), error())
    assert (score.strict, score.strict_bound, score.counts.invalid) == (0.0, 1.0, 1)
    assert score.invalid_runs[0].reasons == ("injector error: rewrite: it broke (2 times)",)
    assert score.exit_code == 1


def test_invalid_runs_within_the_threshold_are_a_footnote(tmp_path: Path) -> None:
    write_runs(tmp_path, *(run(f"t{k}", run_id=f"r{k}") for k in range(20)))
    log = [start(f"r{k}", task_id=f"t{k}", profile=OFF) for k in range(20)]
    write_decisions(tmp_path, *log, *(request(f"r{k}") for k in range(20)), error("r3"), error("r4"))
    score = score_paths([tmp_path])
    assert (score.counts.invalid, score.strict, score.strict_bound) == (2, 18 / 20, 1.0)
    assert score.exit_code == 0
    assert score_paths([tmp_path], threshold=0.05).exit_code == 1


def test_a_run_without_a_start_is_invalid(tmp_path: Path) -> None:
    write_runs(tmp_path, run(run_id="r1", seed=7), run("t2", run_id="r2"))
    write_decisions(tmp_path, start(task_id="t1", profile=OFF), request(), decision("r2"))
    score = score_paths([tmp_path])
    assert [bad.run_id for bad in score.invalid_runs] == ["r2"]
    assert score.exit_code == 1


@pytest.mark.parametrize(
    ("changes", "invalid"),
    [
        ({}, True),
        ({"skipped": "already_failed", "payload_sha256": None}, False),
        ({"kind": "slow", "payload_sha256": None}, False),
        ({"payload_sha256": None}, False),
    ],
)
def test_undelivered_faults_make_a_run_invalid(
    tmp_path: Path, changes: dict[str, Any], *, invalid: bool
) -> None:
    score = served(tmp_path, fault(call=2, **changes))
    assert bool(score.invalid_runs) == invalid
    if invalid:
        assert score.invalid_runs[0].reasons == ("1 of 2 faults never reached the model",)


def test_a_refused_request_delivers_nothing(tmp_path: Path) -> None:
    assert served(tmp_path, fault(call=2), delivery(call=2, upstream_status=529)).counts.invalid == 1


def test_a_fault_in_flight_when_the_run_was_cut_is_no_fault_of_the_injector(tmp_path: Path) -> None:
    write_runs(tmp_path, run("t1", run_id="r1", ended="restart_cut", passed=None))
    log = (start(task_id="t1"), request(), fault(call=1), delivery(call=1), fault(call=2))
    write_decisions(tmp_path, *log)
    score = score_paths([tmp_path])
    assert score.counts.invalid == 0
    assert score.exposure is not None
    assert (score.exposure.undelivered, score.exposure.in_flight) == (1, 1)


def test_a_call_logged_twice_counts_once(tmp_path: Path) -> None:
    again = (start(), fault(call=1, latency_us=99.0), decision(call=2), decision(call=2))
    exposure = served(tmp_path, *again).exposure
    assert exposure is not None
    assert (exposure.calls, exposure.decided, exposure.delivered) == (2, 1, 1)


@pytest.mark.parametrize(
    "other",
    [{"conversation": "c2"}, {"call_digest": "d"}, {"nth": 1}, {"call_id": "toolu_9"}],
)
def test_calls_that_differ_in_one_part_of_their_key_count_each(tmp_path: Path, other: dict[str, Any]) -> None:
    exposure = served(tmp_path, decision(call=2), decision(call=2, **other)).exposure
    assert exposure is not None
    assert exposure.calls == 3


def test_a_call_decided_twice_differently_makes_the_run_invalid(tmp_path: Path) -> None:
    score = served(tmp_path, fault(call=1, payload_sha256="e" * 64))
    assert "decided twice" in score.invalid_runs[0].reasons[-1]


def test_an_orphan_that_is_answered_later_counts_once_and_as_answered(tmp_path: Path) -> None:
    orphan = fault(call=2, skipped="orphaned", mode=None, payload_sha256=None, payload_bytes=None)
    score = served(tmp_path, orphan, fault(call=2), delivery(call=2))
    assert score.exposure is not None
    assert (score.exposure.decided, score.exposure.delivered, score.counts.invalid) == (2, 2, 0)
    assert score.exposure.skipped == {}


def test_counting_tokens_is_no_request_of_an_agent(tmp_path: Path) -> None:
    counting = request(path="/v1/messages/count_tokens", output_tokens=None, input_tokens=None)
    assert served(tmp_path, counting).efficiency.tokens_per_run.value == 135
    assert served(tmp_path, request(output_tokens=None)).efficiency.tokens_per_run.value is None
    log = write_decisions(tmp_path, start(), counting, end(passed=True))
    assert score_paths([log]).exit_code == 3


def test_superseded_after_delivery_keeps_the_delivery(tmp_path: Path) -> None:
    later = fault(call=1, skipped="superseded", payload_sha256=None)
    score = served(tmp_path, later)
    assert score.exposure is not None
    assert (score.exposure.delivered, score.exposure.superseded, score.exposure.decided) == (1, 1, 1)
    assert score.counts.invalid == 0


def test_superseded_before_delivery_is_not_undelivered(tmp_path: Path) -> None:
    score = served(tmp_path, fault(call=2), fault(call=2, skipped="superseded"))
    assert score.counts.invalid == 0


def test_the_resumed_attempt_in_the_same_log_is_left_out(tmp_path: Path) -> None:
    write_runs(tmp_path, run(run_id="r1", task_id="r1"))
    resumed = (start(attempt=2), fault(call=5), delivery(call=5), error(), decision(call=6))
    write_decisions(tmp_path, start(), request(), fault(), delivery(), *resumed)
    score = score_paths([tmp_path])
    assert score.exposure is not None
    assert (score.exposure.calls, score.exposure.delivered, score.counts.invalid) == (1, 1, 0)


def test_slow_stands_outside_exposure_and_latency(tmp_path: Path) -> None:
    slow = fault(call=2, kind="slow", timing="after", mode=None, payload_sha256=None, latency_us=1e6)
    score = served(tmp_path, slow)
    assert score.exposure is not None
    assert (score.exposure.decided, score.exposure.slowed) == (1, 1)
    assert score.latency is not None
    assert (score.latency.max_us, score.latency.calls) == (10.0, 1)


def test_a_run_that_was_only_slowed_is_not_unexposed(tmp_path: Path) -> None:
    slow = fault(kind="slow", mode=None, payload_sha256=None)
    score = score_paths([write_decisions(tmp_path, start(), request(), slow, end(passed=True))])
    assert score.exit_code == 0


def test_exposure_by_kind_family_and_sort(tmp_path: Path) -> None:
    shell = {
        "family": "shell",
        "kind": "timeout_after_effect",
        "mode": "explicit",
        "persistence": "permanent",
    }
    exposure = served(
        tmp_path,
        fault(call=2, **shell),
        delivery(call=2),
        fault(call=3, skipped="already_failed", payload_sha256=None),
        decision(call=4, skipped="dereferenced", payload_sha256="o" * 64),
    ).exposure
    assert exposure is not None
    rows = {row.name: (row.decided, row.applied, row.delivered) for row in exposure.by_kind}
    assert rows == {"empty": (2, 1, 1), "timeout_after_effect": (1, 1, 1)}
    assert [row.name for row in exposure.by_family] == ["read", "shell"]
    assert [row.name for row in exposure.by_sort] == [
        "after · explicit · permanent",
        "after · implicit · transient",
    ]
    assert exposure.skipped == {"already_failed": 1}
    assert exposure.dereferenced == 1


def test_latency_quantiles_are_numpys(tmp_path: Path) -> None:
    took = np.random.default_rng(1).exponential(10, 999).round(3)
    log = [decision(call=k, latency_us=float(value)) for k, value in enumerate(took)]
    score = score_paths([write_decisions(tmp_path, start(profile=OFF), request(), *log, end(passed=True))])
    assert score.latency is not None
    assert score.latency.p50_us == pytest.approx(np.quantile(took, 0.5), rel=1e-3)
    assert score.latency.p99_us == pytest.approx(np.quantile(took, 0.99), rel=1e-3)
    assert score.latency.max_us == pytest.approx(took.max())


def test_no_agent_request_is_inconclusive(tmp_path: Path) -> None:
    noise = (request(protocol=None, tools_digest=None), request(tools_digest=None))
    score = score_paths([write_decisions(tmp_path, start(), *noise, end(passed=True))])
    assert score.exit_code == 3
    assert "no agent request" in score.findings[0].what


@pytest.mark.parametrize(("profile", "code"), [(MODERATE, 3), (OFF, 0)])
def test_nothing_exposed_is_inconclusive_when_something_could_fire(
    tmp_path: Path, profile: dict[str, Any], code: int
) -> None:
    log = write_decisions(tmp_path, start(profile=profile), request(), decision(), end(passed=True))
    assert score_paths([log]).exit_code == code


def test_a_failed_check_outweighs_an_open_question(tmp_path: Path) -> None:
    score = score_paths([write_decisions(tmp_path, start(), error())])
    assert sorted(finding.exit for finding in score.findings) == [1, 3, 3]
    assert score.exit_code == 1


def test_threshold_from_manifest_and_option(tmp_path: Path) -> None:
    write_runs(tmp_path, *published_runs())
    (tmp_path / "manifest.yaml").write_text("threshold: 0.2\nharness: pi\n")
    stated = score_paths([tmp_path])
    assert (stated.threshold.value, stated.headline.basis) == (0.2, "observed")
    assert stated.threshold.source == str(tmp_path / "manifest.yaml")
    overridden = score_paths([tmp_path / "runlog.jsonl"], threshold=0.05)
    assert overridden.headline.basis == "strict"
    assert overridden.threshold.source.startswith("--threshold, instead of 0.2 of ")
    with pytest.raises(BadThreshold, match="share"):
        score_paths([tmp_path], threshold=10)


def test_manifests_that_disagree_need_a_choice(tmp_path: Path) -> None:
    for name, threshold in (("a", 0.1), ("b", 0.2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.yaml").write_text(f"threshold: {threshold}")
        write_runs(tmp_path / name, run(run_id=name, seed=ord(name)))
    folders = [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(BadThreshold, match="disagree"):
        score_paths(folders)
    assert score_paths(folders, threshold=0.1).runs == 2


def test_a_share_at_the_threshold_is_within_it(tmp_path: Path) -> None:
    score = score_paths([write_runs(tmp_path, *(run(f"t{k}") for k in range(9)), run("t9", ended="error"))])
    assert (score.error_rate, score.headline.basis) == (0.1, "observed")


def test_several_folders_and_a_file_given_twice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_runs(tmp_path / name, run(run_id=name, seed=ord(name)))
    score = score_paths([tmp_path / "a", tmp_path / "b", tmp_path / "a" / "runlog.jsonl"])
    assert (score.runs, score.counts.tasks) == (2, 1)
    assert "given twice" in problems(score)


def test_a_run_log_without_ids_finds_its_decision_log_by_cell(tmp_path: Path) -> None:
    write_runs(tmp_path, run("t1"))
    write_decisions(tmp_path, start("x", task_id="t1"), request("x"), fault("x"), delivery("x"))
    score = score_paths([tmp_path])
    assert (score.runs, score.tasks[0].faults_delivered) == (1, 1)


def test_a_started_run_without_a_line_stays_in_n(tmp_path: Path) -> None:
    write_runs(tmp_path, run("r1", run_id="r1"))
    write_decisions(tmp_path, *(start(r, profile=OFF) for r in ("r1", "r2")), request("r1"), request("r2"))
    score = score_paths([tmp_path])
    assert (score.runs, score.strict, score.counts.unknown) == (2, 0.5, 1)
    assert "run r2 has no line in the run log" in problems(score)


def test_the_default_run_counts_only_when_it_was_used(tmp_path: Path) -> None:
    write_runs(tmp_path, run("r1", run_id="r1"))
    log = [start("r1", profile=OFF), request("r1"), start("default", profile=OFF)]
    write_decisions(tmp_path, *log)
    score = score_paths([tmp_path])
    assert score.runs == 1
    assert "default was never used" in problems(score)
    write_decisions(tmp_path, *log, request("default"))
    assert score_paths([tmp_path]).runs == 2


def test_the_run_log_alone_says_what_it_does_not_know(tmp_path: Path) -> None:
    write_runs(tmp_path, run("r1", run_id="r1"))
    write_decisions(tmp_path, start(), error())
    assert "exposure and invalid runs are unknown" in problems(score_paths([tmp_path / "runlog.jsonl"]))


def failing(folder: Path, *log: Any, runs: tuple[Any, ...] = ()) -> ReadingError:
    write_decisions(folder, *log)
    if runs:
        write_runs(folder, *runs)
    with pytest.raises(ReadingError) as caught:
        score_paths([folder])
    return caught.value


def test_logs_that_cannot_be_scored(tmp_path: Path) -> None:
    assert isinstance(failing(tmp_path), EmptyLog)
    assert isinstance(failing(tmp_path, decision(), end(passed=True)), NoStart)
    assert isinstance(failing(tmp_path, start(seed=1), start(seed=2)), StartMismatch)
    assert isinstance(failing(tmp_path, start(task_id="a"), start(task_id="b")), StartMismatch)
    two = (run("a", run_id="r1"), run("b", run_id="r1"))
    assert isinstance(failing(tmp_path, start(), runs=two), RunIdClash)
    assert isinstance(failing(tmp_path, start(task_id="a"), runs=(run("b", run_id="r1"),)), RunIdClash)
    assert isinstance(failing(tmp_path, start(), runs=(b'{"task_id": "a"}\n',)), BadRunLine)
    with pytest.raises(UnusablePath, match="does not exist"):
        score_paths([tmp_path / "nowhere"])
    write_runs(tmp_path, run())
    with pytest.raises(BadVerdicts, match="run event"):
        score_paths([tmp_path / "runlog.jsonl"], verdicts=tmp_path / "decisions.jsonl")


def test_one_id_in_two_logs_is_a_clash(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_decisions(tmp_path / name, start("default"), request("default"))
    with pytest.raises(RunIdClash, match="both hold a run default"):
        score_paths([tmp_path / "a", tmp_path / "b"])


def test_an_empty_decision_log_beside_runs_makes_them_invalid(tmp_path: Path) -> None:
    write_runs(tmp_path, run(run_id="r1"))
    write_decisions(tmp_path)
    score = score_paths([tmp_path])
    assert (score.strict, score.counts.invalid, score.exit_code) == (0.0, 1, 1)
    assert "has no record" in problems(score)


def test_torn_and_foreign_lines_are_said_and_survived(tmp_path: Path) -> None:
    score = served(tmp_path, b"hello\n", b'{"event":"party","ts":"x","run_id":"r1"}\n')
    assert score.exit_code == 0
    assert len(score.problems) == 2
    log = (start(), request(), fault(), delivery(), end(passed=True), line(decision(call=9))[:-40])
    score = score_paths([write_decisions(tmp_path, *log)])
    assert (score.exit_code, score.strict) == (0, 1.0)
    assert "torn last line" in problems(score)


def test_a_damaged_record_makes_its_run_invalid(tmp_path: Path) -> None:
    score = served(tmp_path, b'{"event":"error","run_id":"r1"}\n')
    assert score.invalid_runs[0].reasons == ("injector error: damaged error record on line 5",)


def test_json_is_complete_and_strict(tmp_path: Path) -> None:
    data = json.loads(score_json(served(tmp_path)), parse_constant=pytest.fail)
    assert data["runs"] == 1
    assert data["exit_code"] == 0
    assert data["headline"]["basis"] == "observed"
    assert data["method"] == {"level": 0.95, "resamples": 10_000, "seed": 20_260_101, "unit": "task"}
    assert data["exposure"]["by_kind"][0]["name"] == "empty"
    assert data["origins"][0]["harness"] == "pi"


runs_of_tasks = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from(["complete", "quota_cut", "restart_cut", "error"]),
        st.booleans(),
        st.one_of(st.none(), st.integers(0, 10**6)),
        st.one_of(st.none(), st.floats(0, 1e4)),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs_of_tasks, st.randoms(use_true_random=False))
def test_properties(tmp_path: Path, rows: list[Any], order: random.Random) -> None:
    runs = [
        run(f"t{task}", seed=number, ended=ended, passed=passed, tokens_used=tokens, wall_s=wall)
        for number, (task, ended, passed, tokens, wall) in enumerate(rows)
    ]
    score = score_paths([write_runs(tmp_path, *runs)])
    order.shuffle(runs)
    assert score_json(score_paths([write_runs(tmp_path, *runs)])) == score_json(score)
    assert score.strict is not None
    assert score.completion_rate is not None
    if score.observed is None:
        assert score.completion_rate == 0
    else:
        assert score.strict <= score.observed
        assert score.strict == pytest.approx(score.observed * score.completion_rate)
    shares = (score.completion_rate, score.truncation_rate, score.error_rate)
    assert sum(share or 0.0 for share in shares) == pytest.approx(1)
    for estimate in score.estimates.values():
        for interval in (estimate.wilson, estimate.bootstrap):
            assert interval is None or 0 <= interval.low <= interval.high <= 1


def test_memory_does_not_grow_with_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scoring.spill._ROWS_HELD", 1 << 12)  # so that the short log, too, is written out

    def peak(calls: int) -> int:
        path = tmp_path / "decisions.jsonl"
        with path.open("wb") as file:
            file.write(line(start()) + line(request()))
            for call in range(calls):
                if call % 10:
                    file.write(line(decision(call=call, latency_us=call % 997 + 0.125)))
                else:
                    file.write(line(fault(call=call)) + line(delivery(call=call)))
            file.write(line(end(passed=True)))
        tracemalloc.start()
        score = score_paths([path])
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert score.exposure is not None
        assert (score.exposure.calls, score.exposure.delivered) == (calls, calls // 10)
        return used

    peak(100)
    assert peak(100_000) < 1.25 * peak(10_000)
