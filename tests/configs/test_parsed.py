"""What YAML came to is kept, and a cache that is damaged or cannot be written changes nothing."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from configs import dialects, read_yaml
from configs.parsed import parsed

TEXT = "name: x\nrate: 0.1\nlines: [1, 2.0, true, null, 'off']\n"


class Parse:
    """Counts how often it was asked."""

    def __init__(self, value: Any = None) -> None:
        self.times = 0
        self._value = value

    def __call__(self, text: str) -> Any:
        self.times += 1
        return read_yaml(text, "a test") if self._value is None else self._value


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "chaosproxy" / "configs"


def test_a_text_is_parsed_once_and_another_for_itself(cache: Path) -> None:
    parse = Parse()
    first = parsed(TEXT, parse)
    assert parsed(TEXT, parse) == first == read_yaml(TEXT, "a test")
    assert parse.times == 1
    assert parsed(TEXT + "more: 1\n", parse) == first | {"more": 1}
    assert parse.times == 2
    assert [file.stat().st_mode & 0o077 for file in cache.iterdir()] == [0, 0]


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff"])
def test_a_damaged_file_is_made_anew(cache: Path, damage: bytes) -> None:
    parse = Parse()
    first = parsed(TEXT, parse)
    (file,) = cache.iterdir()
    file.write_bytes(damage)
    assert parsed(TEXT, parse) == first
    assert parsed(TEXT, parse) == first
    assert parse.times == 2


def test_a_cache_that_cannot_be_written_is_done_without(cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder would be", "ascii")
    assert parsed(TEXT, Parse()) == read_yaml(TEXT, "a test")


@pytest.mark.parametrize("value", [date(2026, 1, 2), {"day": date(2026, 1, 2)}, {1: "x"}, {"s": {1, 2}}])
def test_what_json_cannot_say_is_not_kept(cache: Path, value: Any) -> None:
    parse = Parse(value)
    assert parsed(TEXT, parse) == value
    assert parsed(TEXT, parse) == value
    assert parse.times == 2
    assert not cache.exists()


def test_every_dialect_comes_out_of_the_cache_as_it_went_in(cache: Path) -> None:
    dialects.cache_clear()
    parsed_now = dialects()
    kept = len(list(cache.iterdir()))
    dialects.cache_clear()
    assert dialects() == parsed_now
    assert kept == len(parsed_now)
