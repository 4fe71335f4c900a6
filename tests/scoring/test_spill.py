"""Rows come back from disk bucket by bucket, in the order in which they came."""

from __future__ import annotations

import numpy as np
import pytest

from scoring.spill import BUCKETS, Spill


@pytest.mark.parametrize("held", [1, 7, 1000])
def test_rows_come_back_in_their_buckets_and_order(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr("scoring.spill._ROWS_HELD", held)
    keys = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 500).tolist()
    with Spill(key="q", number="i", half="d") as spill:
        for number, key in enumerate(keys):
            spill.rows.append((key, number, number / 2))
            spill.settle()
        buckets = list(spill.read())
    assert len(buckets) == BUCKETS
    expected = [[n for n, key in enumerate(keys) if key % BUCKETS == b] for b in range(BUCKETS)]
    assert [rows["number"].tolist() for rows in buckets] == expected
    assert all((rows["half"] == rows["number"] / 2).all() for rows in buckets)


def test_nothing_comes_back_as_nothing() -> None:
    with Spill(key="q") as spill:
        assert [len(rows) for rows in spill.read()] == [0] * BUCKETS
