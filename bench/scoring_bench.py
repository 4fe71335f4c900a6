"""Speed of scoring, as ratios measured in one run: ``python -m bench.scoring_bench``.

The cluster bootstrap against ``scipy.stats.bootstrap`` on the same statistic, at sizes that scipy can do and
at the size that was promised; scoring a log against a loop that only parses it; peak memory by log length.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import orjson
import scipy.stats

from bench.figures import Figure, spread
from ledger.records import Decision, Delivery, End, Request, Start
from scoring.intervals import RESAMPLES, Floats
from scoring.rates import METRICS, Gap, Ratio, Tally, bootstrap_parts
from scoring.score import score_paths

_WANTED = ("strict", "observed", "truncation_rate", "recovery_ratio")
_TIMES = 5
_FASTER = 20  # than scipy, at the promised number of clusters


def _tally(clusters: int) -> Tally:
    """Counts of tasks with five runs each."""
    rng = np.random.default_rng(1)
    ends = rng.multinomial(5, (0.8, 0.06, 0.1, 0.04), clusters)
    complete, quota, restart, error = ends.T
    passed = rng.binomial(complete, 0.7)
    resumed = restart + quota
    again = rng.binomial(resumed, 0.5)
    runs = np.full(clusters, 5)
    exposed = rng.binomial(5, 0.6, clusters)
    fields = (runs, runs, runs, complete, passed, quota, restart, error, runs, exposed)
    counts = np.stack([*fields, resumed, again, resumed, again]).astype(np.float64)
    return Tally(*counts)


def _parts(tally: Tally) -> dict[str, Ratio | Gap]:
    return {name: METRICS[name].compute(tally) for name in _WANTED}


def _ours(tally: Tally) -> None:
    bootstrap_parts(_parts(tally))


def _scipys(tally: Tally, resamples: int) -> None:
    """The same four ratios by scipy: paired columns, none twice, vectorised, percentile."""
    ratios = [np.stack(part) for part in _parts(tally).values()]
    columns, places = np.unique(np.concatenate(ratios), axis=0, return_inverse=True)

    def statistic(*rows: Floats, axis: int = -1) -> Floats:
        sums = np.stack([row.sum(axis=axis) for row in rows])[places]
        values: Floats = sums[0::2] / sums[1::2]
        return values

    scipy.stats.bootstrap(
        tuple(columns),
        statistic,
        paired=True,
        vectorized=True,
        n_resamples=resamples,
        batch=max(1, 2_000_000 // columns.shape[1]),
        method="percentile",
        rng=np.random.default_rng(1),
    )


class _Took(NamedTuple):
    """Seconds: of the processor, and on the wall. Ratios are taken of the first: other work on the machine
    stretches the second, and not evenly."""

    cpu: float
    wall: float


def _took(do: Callable[[], object]) -> _Took:
    cpu, wall = time.process_time(), time.perf_counter()
    do()
    return _Took(time.process_time() - cpu, time.perf_counter() - wall)


def bootstrap_figures(sizes: tuple[int, ...], promised: int) -> list[Figure]:
    """How many times faster than scipy, by the number of clusters. Where all resamples would take scipy
    minutes, its time is scaled up from fewer, with which it grows linearly."""
    figures = []
    for clusters in (*sizes, promised):
        tally = _tally(clusters)
        some = RESAMPLES if clusters <= 1000 else max(20, 2_000_000 // clusters)
        ratios, absolute = [], ""
        for _ in range(3):
            theirs, ours = _took(lambda t=tally, r=some: _scipys(t, r)), _took(lambda t=tally: _ours(t))
            scaled = theirs.cpu * RESAMPLES / some
            ratios.append(scaled / ours.cpu)
            absolute = f"scipy {scaled:.2f} s ({some} resamples measured), ours {ours.cpu:.3f} s"
        figures.append(
            Figure("bootstrap", f"{clusters:,} clusters", "scipy / ours", spread(ratios), None, absolute)
        )
    return figures


def write_log(path: Path, calls: int) -> None:
    """A log of one run with ``calls`` calls, every tenth with a delivered fault."""
    encode = msgspec.json.Encoder().encode
    ts = "2026-01-01T00:00:00.000000Z"
    base = {"ts": ts, "run_id": "r"}
    profile = {"name": "moderate", "rate": 0.1}
    start = {"version": "1", "seed": 7, "profile": profile, "profile_sha256": "p", "identity": "content"}
    who = {"harness": "pi", "harness_version": "1.0.3", "pid": 1, "boot_id": "b", "started": ts}
    first = Start(**base, **start, **who, task_id="t", repeat=0, attempt=1)
    asked = {"path": "/v1/messages", "protocol": "anthropic", "bytes_in": 1, "bytes_out": 1, "faults": 0}
    took = {"tools_digest": "t" * 64, "overhead_us": 5.0, "upstream_ms": 1.0, "status": 200}
    used = {"input_tokens": 1, "cache_read_tokens": 0, "cache_write_tokens": 0, "output_tokens": 1}
    with path.open("wb") as file:
        file.write(encode(first) + b"\n" + encode(Request(**base, **asked, **took, **used)) + b"\n")
        for call in range(calls):
            fires = call % 10 == 0
            payload = f"{call:063x}f" if fires else None
            place = {"conversation": "c0", "call_id": f"toolu_{call:024x}", "nth": 0}
            kind = ("empty", "after", "implicit") if fires else (None, None, None)
            decision = Decision(
                **base, **place, role="main", tool="read", family="read", occurrence=0, ordinal=call,
                call_digest=f"{call:064x}", u=call % 997 / 997, rate=0.1, fired=fires, kind=kind[0],
                timing=kind[1], mode=kind[2], persistence="transient", forced=False, wire_name=None,
                original_sha256=f"{call:064x}", original_bytes=100, payload_sha256=payload,
                payload_bytes=0 if fires else None, latency_us=10 + call % 997 / 7, skipped=None,
                target_digest=f"{call % 40:064x}",
            )  # fmt: skip
            file.write(encode(decision) + b"\n")
            if payload is not None:
                sent = {"call_digest": decision.call_digest, "payload_sha256": payload}
                file.write(encode(Delivery(**base, **place, **sent, upstream_status=200, first=True)) + b"\n")
        file.write(encode(End(**base, ended="complete", passed=True)) + b"\n")


def _parse(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            orjson.loads(line)


def log_figures(folder: Path, calls: int) -> list[Figure]:
    """Scoring a log over only parsing it, side by side; and how peak memory grows from a tenth of it."""
    path = folder / "decisions.jsonl"
    write_log(path, calls)
    ratios, absolute = [], ""
    for _ in range(_TIMES):
        parse, score = _took(lambda: _parse(path)), _took(lambda: score_paths([path]))
        ratios.append(score.cpu / parse.cpu)
        absolute = (
            f"parse {parse.cpu:.2f} s, score {score.cpu:.2f} s; on the wall {score.wall / parse.wall:.2f}"
        )
    whole = _peak_mb(path)
    write_log(path, calls // 10)
    tenth = _peak_mb(path)
    return [
        Figure("scoring", f"{calls:,} decisions", "score / orjson loop", spread(ratios), 1.5, absolute),
        Figure(
            "scoring",
            f"{calls:,} over {calls // 10:,} decisions",
            "peak memory",
            spread([whole / tenth]),
            1.25,
            f"{whole:.0f} MB and {tenth:.0f} MB",
        ),
    ]


def _peak_mb(path: Path) -> float:
    """Peak resident memory of a process of its own that scores ``path``."""
    command = [sys.executable, "-m", "bench.scoring_bench", "--peak", str(path)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def figures(calls: int = 1_000_000, clusters: int = 100_000) -> list[Figure]:
    """All figures of scoring."""
    with tempfile.TemporaryDirectory() as folder:
        return [*bootstrap_figures((100, 1000, 10_000), clusters), *log_figures(Path(folder), calls)]


def main() -> int:
    """Prints the figures; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--clusters", type=int, default=100_000)
    parser.add_argument("--peak", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak is not None:
        score_paths([options.peak])
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return 0
    missed = 0
    for figure in figures(options.calls, options.clusters):
        value = figure.value.median
        if figure.measure == "bootstrap":
            wrong = figure.case == f"{options.clusters:,} clusters" and value < _FASTER
        else:
            wrong = figure.target is not None and value > figure.target
        missed += wrong
        mark = "MISSED" if wrong else "ok"
        print(f"{mark:7}{figure.measure}, {figure.case}: {figure.what} {value:.2f} ({figure.absolute})")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
