"""explain says what the draw and the payload of one call will be."""

from __future__ import annotations

import configs
from scheduler.apply import apply_after, apply_before
from scheduler.call import Call, Places
from scheduler.explain import explain
from scheduler.faults import KINDS
from scheduler.fitting import fitting_kinds
from scheduler.schedule import draw
from tests.scheduler.calls import profile

CLAUDE = configs.dialect("claude-code")
ARGUMENTS = b'{"file_path": "/ws/a.txt"}'
PLACES = Places(workspace="/ws")


def test_it_is_the_draw_and_the_payload_that_the_proxy_makes() -> None:
    moderate = configs.load_profile("severe")
    fired = withheld = 0
    for n in range(200):
        told = explain(
            7,
            moderate,
            CLAUDE,
            "Read",
            ARGUMENTS,
            task_id="t",
            occurrence=n,
            k=n,
            places=PLACES,
            result="1\tx = 10\n2\ty = 20\n3\t",
        )
        call = Call("Read", "read", told.call_digest, told.canonical, n, n)
        drawn = draw(7, moderate, "t", "main", call, fitting_kinds(CLAUDE, "Read", "read"))
        assert told.canonical == b'{"file_path":"{ws}/a.txt"}'
        assert told.key == ("content", "t", "main", "Read", told.call_digest, str(n))
        assert (told.u, told.rate, told.fired, told.kind, told.persistence) == (
            drawn.u,
            0.25,
            drawn.fired,
            drawn.kind,
            drawn.persistence,
        )
        if drawn.kind is not None and KINDS[drawn.kind].timing == "before":
            answer = apply_before(drawn, CLAUDE, 7, "Read", {"file_path": "/ws/a.txt"}, workspace="/ws")
            assert (told.payload, told.is_error, told.timing) == (answer.text, answer.is_error, "before")
            withheld += 1
        elif drawn.fired:
            fired += 1
            outcome = apply_after(
                drawn,
                moderate,
                CLAUDE,
                7,
                "Read",
                {"file_path": "/ws/a.txt"},
                "1\tx = 10\n2\ty = 20\n3\t",
                None,
                (),
            )
            assert (told.payload or told.skipped) == outcome[0]
            assert (told.timing, told.family) == ("after", "read")
    assert 20 < fired + withheld < 80
    assert min(fired, withheld) > 5


def test_what_the_harness_appended_is_no_part_of_the_payload() -> None:
    reminder = "\n\n<system-reminder>\n12 tokens left\n</system-reminder>"
    only = configs.load_profile("only-empty")
    told = explain(7, only, CLAUDE, "Bash", b'{"command":"ls"}', result=f"a.txt{reminder}")
    assert (told.payload, told.family, told.mode) == ("(Bash completed with no output)", "list", "implicit")


def test_without_a_result_there_is_no_payload_and_no_reason() -> None:
    told = explain(7, configs.load_profile("only-truncated"), configs.dialect("pi"), "read", b"{}")
    assert (told.fired, told.kind, told.mode) == (True, "truncated", "explicit")
    assert (told.payload, told.skipped, told.wait_s, told.is_error) == (None, None, None, None)


def test_the_mode_is_that_of_this_very_payload() -> None:
    only = configs.load_profile("only-truncated")
    told = explain(7, only, configs.dialect("pi"), "read", b"{}", result="one lone line")
    assert (told.payload, told.mode) == ("one lo", "implicit")


def test_a_reason_for_a_skip_is_told() -> None:
    only = configs.load_profile("only-wrong_data")
    assert explain(7, only, CLAUDE, "Bash", b"{}", result="Exit code 1", is_error=True).skipped == (
        "already_failed"
    )
    assert explain(7, only, CLAUDE, "Bash", b"{}", result="(Bash completed with no output)").skipped == (
        "no_change"
    )
    assert explain(7, profile(rate=1, skip_first=3), CLAUDE, "Read", b"{}", k=2).skipped == "skip_first"


def test_an_error_and_a_wait_are_told() -> None:
    error = explain(7, configs.load_profile("only-post_effect_error"), CLAUDE, "Read", ARGUMENTS, result="x")
    assert error.is_error is True
    slow = explain(7, configs.load_profile("only-slow"), CLAUDE, "Read", ARGUMENTS, result="x")
    assert (slow.wait_s, slow.payload, slow.mode) == (5, None, None)


def test_what_a_call_that_never_runs_is_answered_needs_no_result() -> None:
    only = configs.load_profile("only-permission_denied")
    told = explain(7, only, CLAUDE, "Grep", b'{"pattern":"x","path":"src"}', places=PLACES)
    assert (told.timing, told.mode, told.is_error, told.skipped) == ("before", "explicit", True, None)
    assert told.payload in (
        "Permission to use Grep has been denied.",
        "Refusing to search /ws/src: it could not be opened (EACCES) — it is unreadable, or is being replaced"
        " concurrently.",
    )
    assert (
        explain(7, only, CLAUDE, "Grep", b'{"pattern":"x","path":"src"}', places=PLACES, result="x") == told
    )


def test_a_call_that_is_not_withheld_has_no_answer() -> None:
    kinds = profile(rate=1, weights={"shell": {"phantom_success": 1}}, skip_first=2)
    told = explain(7, kinds, CLAUDE, "Bash", b'{"command":"make"}')
    assert (told.kind, told.payload, told.skipped) == ("phantom_success", None, "skip_first")
    forced = profile(rate=0, force=[{"tool": "TodoWrite", "nth": 1, "kind": "phantom_success"}])
    told = explain(7, forced, CLAUDE, "TodoWrite", b"{}")
    assert (told.fired, told.payload, told.skipped) == (True, None, "no_fit")


def test_a_gap_is_not_drawn() -> None:
    only = configs.load_profile("only-locked")
    assert explain(7, only, CLAUDE, "Read", ARGUMENTS).kind == "locked"
    assert explain(7, only, CLAUDE, "Read", ARGUMENTS, gaps={"Read": ["locked"]}).kind is None
    assert explain(7, only, CLAUDE, "WebFetch", b'{"url":"https://a.org"}').kind is None


def test_earlier_results_make_a_stale_one() -> None:
    only = configs.load_profile("only-stale")
    told = explain(7, only, configs.dialect("pi"), "read", b"{}", result="new\n", earlier=["old\n"])
    assert told.payload == "old\n"


def test_a_forced_fault_is_found_by_its_place_in_its_family() -> None:
    rules = profile(rate=0, force=[{"family": "read", "nth": 3, "kind": "empty"}])
    assert [explain(7, rules, CLAUDE, "Read", b"{}", k=k).forced for k in range(4)] == [
        False,
        False,
        True,
        False,
    ]


def test_arguments_that_are_no_json_are_told_too() -> None:
    told = explain(7, profile(rate=1), CLAUDE, "Read", b"{broken")
    assert told.canonical == b'"{broken"'
    assert explain(7, profile(rate=1), CLAUDE, "Read", b"[1]").canonical == b"[1]"
