"""A back-reference at a result that was replaced: a passing fault passes, a lasting one lasts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proxy.stage import Stage, force, only, profile, read

WASTED = (
    "Wasted call — file unchanged since your last Read. Refer to that earlier tool_result instead."
)  # fmt: skip
FILE = "1\tline one\n2\tline two\n3\t"
TRUNCATED = {"tool": "Read", "nth": 1, "kind": "truncated"}
FAILED = {"tool": "Read", "nth": 1, "kind": "post_effect_error"}


def test_the_second_read_gets_the_true_content(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force(TRUNCATED))
    agent = stage.claude()
    agent.turn(*read("t1"), FILE)
    agent.turn(*read("t2"), WASTED)
    sent = agent.ask()
    assert sent["t1"] != FILE
    assert sent["t2"] == FILE
    assert [d["skipped"] for d in stage.decisions()] == [None, "dereferenced"]
    stage.restart()
    assert agent.ask().left == sent.left or agent.ask().results == sent.results


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a.txt", "/ws/a.txt"),
        ("/ws/a.txt", "a.txt"),
        ("./a.txt", "/ws/a.txt"),
        ("sub/a.txt", "/ws/sub/a.txt"),
    ],
)
def test_a_relative_and_an_absolute_path_are_one_file(tmp_path: Path, first: str, second: str) -> None:
    stage = Stage(tmp_path, force(FAILED))
    agent = stage.claude()
    agent.turn(*read("t1", first), FILE)
    agent.turn(*read("t2", second), WASTED)
    assert agent.ask()["t2"] == FILE


def test_another_file_is_not_meant(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force(FAILED))
    agent = stage.claude()
    agent.turn(*read("t1", "a.txt"), FILE)
    agent.turn(*read("t2", "b.txt"), "1\tb")
    agent.turn(*read("t3", "b.txt"), WASTED)
    sent = agent.ask()
    assert sent["t3"] == WASTED


def test_a_first_line_that_is_said_or_not_is_one_range(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force(FAILED))
    agent = stage.claude()
    agent.turn(*read("t1"), FILE)
    agent.turn(*read("t2", offset=1), WASTED)
    assert agent.ask()["t2"] == FILE


def test_the_last_read_of_the_file_is_meant(tmp_path: Path) -> None:
    """A whole read was replaced, a part of the file was read after it, and then the part again."""
    stage = Stage(tmp_path, force(FAILED))
    agent = stage.claude()
    agent.turn(*read("t1"), FILE)
    agent.turn(*read("t2", offset=2, limit=1), "2\tline two")
    agent.turn(*read("t3", offset=2, limit=1), WASTED)
    assert agent.ask()["t3"] == WASTED


def test_a_reference_to_a_reference(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force(TRUNCATED))
    agent = stage.claude()
    agent.turn(*read("t1"), FILE)
    for i in (2, 3, 4):
        agent.turn(*read(f"t{i}"), WASTED)
    sent = agent.ask()
    # The second shows the truth, so a reference to it is right.
    assert [content for _, content in sent.results[1:]] == [FILE, WASTED, WASTED]


def test_a_reference_that_is_replaced_itself_starts_from_the_true_content(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force({"tool": "Read", "nth": 2, "kind": "truncated"}))
    agent = stage.claude()
    agent.turn(*read("t1"), FILE)
    agent.turn(*read("t2"), WASTED)
    agent.turn(*read("t3"), WASTED)
    sent = agent.ask()
    assert sent["t1"] == FILE
    assert sent["t2"].startswith("1\tline one")
    assert sent["t2"] != FILE
    assert sent["t3"] == FILE


def test_both_reads_in_one_message(tmp_path: Path) -> None:
    for order in ([0, 1], [1, 0]):
        stage = Stage(tmp_path / str(order[0]), force(TRUNCATED))
        agent = stage.claude()
        agent.ask(read("t1"), read("t2"))
        results = [("t1", FILE), ("t2", WASTED)]
        sent = agent.results(*(results[i] for i in order)).ask()
        assert sent["t1"] != FILE
        assert sent["t2"] == FILE


def test_a_failed_read_in_between_is_nothing_to_point_at(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force(TRUNCATED))
    agent = stage.claude()
    agent.turn(*read("t1"), FILE)
    agent.ask(read("t2"))
    agent.results(
        {"type": "tool_result", "content": "EAGAIN: try again", "is_error": True, "tool_use_id": "t2"}
    )
    agent.turn(*read("t3"), WASTED)
    assert agent.ask()["t3"] == FILE


def test_a_lasting_fault_lasts(tmp_path: Path) -> None:
    stage = Stage(tmp_path, only("truncated", persistence={"transient": 0, "permanent": 1}))
    agent = stage.claude()
    agent.turn(*read("t1"), FILE)
    agent.turn(*read("t2"), WASTED)
    sent = agent.ask()
    assert sent["t1"] == sent["t2"] != FILE


def test_a_lasting_fault_is_not_undone_by_another_spelling(tmp_path: Path) -> None:
    """The other spelling is another call, and is not faulted itself here."""
    lasting = {"transient": 0, "permanent": 1}
    stage = Stage(tmp_path, only("truncated", persistence=lasting, max_faults=1))
    agent = stage.claude()
    agent.turn(*read("t1", "a.txt"), FILE)
    agent.turn(*read("t2", "/ws/a.txt"), WASTED)
    sent = agent.ask()
    assert sent["t1"] != FILE
    assert sent["t2"] == WASTED


def test_a_true_read_in_between_ends_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force(TRUNCATED))
    agent = stage.claude()
    agent.turn(*read("t1"), FILE)
    agent.turn(*read("t2"), "1\tafter an edit")
    agent.turn(*read("t3"), WASTED)
    assert agent.ask()["t3"] == WASTED


def test_the_limits_of_a_profile_do_not_keep_the_truth_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path, only("truncated", max_faults=1))
    agent = stage.claude()
    agent.turn(*read("t1"), FILE)
    agent.turn(*read("t2"), WASTED)
    assert agent.ask()["t2"] == FILE


def test_nothing_was_replaced_so_nothing_is_undone(tmp_path: Path) -> None:
    stage = Stage(tmp_path, profile(name="off"))
    agent = stage.claude()
    agent.turn(*read("t1"), FILE)
    agent.turn(*read("t2"), WASTED)
    sent = agent.ask()
    assert sent.left == sent.came


def test_an_earlier_error_is_no_stale_content(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force({"tool": "Read", "nth": 3, "kind": "stale"}))
    agent = stage.claude()
    agent.turn(*read("t1"), "1\told")
    agent.ask(read("t2"))
    agent.results({"type": "tool_result", "content": "EIO: i/o", "is_error": True, "tool_use_id": "t2"})
    agent.turn(*read("t3"), "1\tnew")
    assert agent.ask()["t3"] == "1\told"


def test_stale_content_is_of_the_same_part(tmp_path: Path) -> None:
    stage = Stage(tmp_path, force({"tool": "Read", "nth": 2, "kind": "stale"}))
    agent = stage.claude()
    agent.turn(*read("t1", limit=1), "1\told")
    agent.turn(*read("t2"), "1\tnew\n2\tmore")
    assert agent.ask()["t2"] == "1\tnew\n2\tmore"
    assert [d["skipped"] for d in stage.decisions()] == [None, "no_change"]


def test_the_true_content_of_a_replaced_result_can_be_stale_later(tmp_path: Path) -> None:
    rules = [{"tool": "Read", "nth": 1, "kind": "empty"}, {"tool": "Read", "nth": 2, "kind": "stale"}]
    stage = Stage(tmp_path, force(*rules))
    agent = stage.claude()
    agent.turn(*read("t1"), "1\told")
    agent.turn(*read("t2"), "1\tnew")
    assert agent.ask()["t2"] == "1\told"
