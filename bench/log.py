"""What the bench reads of a decision log."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import orjson


class RequestLine(NamedTuple):
    """One ``request`` record: its run, the injector's time for it, and how many faults it carried."""

    run_id: str
    overhead_us: float
    faults: int


def request_records(log: Path) -> list[RequestLine]:
    """The ``request`` records of a log, in order."""
    found = []
    for line in log.read_bytes().splitlines():
        record = orjson.loads(line)
        if record["event"] == "request":
            found.append(RequestLine(record["run_id"], record["overhead_us"], record["faults"]))
    return found


def count_records(log: Path, event: str) -> int:
    """How many records of one sort a log has."""
    return sum(orjson.loads(line)["event"] == event for line in log.read_bytes().splitlines())
