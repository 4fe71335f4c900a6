"""Rows come back as they went in, however many there are."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from scoring.spill import BUCKETS, Spill


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1)), max_size=600))
def test_rows_keep_their_bucket_and_order(rows: list[tuple[int, int]]) -> None:
    expected: dict[int, list[tuple[int, int, float]]] = defaultdict(list)
    with Spill(key="q", place="i", share="d") as spill:
        for place, (bucket, key) in enumerate(rows):
            spill.append(bucket, key, place, place / 2)
            expected[bucket].append((key, place, place / 2))
        read = [bucket.tolist() for bucket in spill.read()]
    assert len(read) == BUCKETS
    assert read == [expected[bucket] for bucket in range(BUCKETS)]
