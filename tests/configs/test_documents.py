"""The examples of the documents are read by what reads them in use."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import configs
from scheduler.apply import apply_before
from scheduler.call import FAMILIES
from scheduler.dialect import parse_dialect
from scheduler.faults import KINDS, Rewrite
from scheduler.fitting import fitting_kinds
from scheduler.profile import Profile, parse_profile
from scheduler.schedule import Draw
from scoring.rates import METRICS, Tally, estimate_all

BEFORE = {kind.name for kind in KINDS.values() if kind.timing == "before"}
DOCS = Path(__file__).parents[2] / "docs"


def examples(document: str, language: str) -> list[str]:
    text = (DOCS / document).read_text("utf-8")
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", example, flags=re.MULTILINE) for indent, example in found]


PROFILES = examples("profiles.md", "yaml")


@pytest.mark.parametrize("text", PROFILES, ids=lambda text: text.split("\n")[0])
def test_every_profile_of_the_document_can_be_used(text: str) -> None:
    assert parse_profile(configs.read_yaml(text, "profiles.md"), "profiles.md").can_fire


def test_every_key_of_a_profile_has_an_example() -> None:
    used = {key for text in PROFILES for key in configs.read_yaml(text, "profiles.md")}
    assert used == set(Profile.model_fields)


def test_every_shipped_profile_is_listed_with_its_rate() -> None:
    table = re.findall(r"^\| `([a-z<>-]+)` \| ([\d ]+)%? \|", (DOCS / "profiles.md").read_text("utf-8"), re.M)
    rates = {name: float(rate) / 100 for name, rate in table}
    for name in configs.profile_names():
        listed = "only-<kind>" if name.startswith("only-") else name
        assert rates[listed] == configs.load_profile(name).rate


def test_the_matrix_is_the_registrys() -> None:
    text = (DOCS / "faults.md").read_text("utf-8")
    header = next(line for line in text.splitlines() if line.startswith("| kind | timing"))
    families = [cell.strip() for cell in header.strip("|").split("|")][3:]
    assert tuple(families) == FAMILIES
    rows = re.findall(r"^\| `(\w+)` \| (before|after) \| ([^|]+) \|(.+)\|$", text, re.MULTILINE)
    assert {row[0] for row in rows} == set(KINDS)
    for name, timing, _mode, cells in rows:
        marked = {
            family for family, cell in zip(families, cells.split("|"), strict=True) if cell.strip() == "x"
        }
        assert (timing, marked) == (KINDS[name].timing, KINDS[name].families)


def test_every_kind_is_described() -> None:
    text = (DOCS / "faults.md").read_text("utf-8")
    assert set(re.findall(r"^\*\*`(\w+)`\*\*:", text, re.MULTILINE)) == set(KINDS)


def test_the_dialect_of_the_guide_can_be_used() -> None:
    text, swapping = (
        configs.read_yaml(part, "the guide") for part in examples("adding-a-harness.md", "yaml")
    )
    dialect = parse_dialect(text, "the guide")
    assert dialect.rule("mcp__a__b").family == "other"
    assert dialect.split_appended("x\n\n<note>y</note>") == ("x", "\n\n<note>y</note>")
    fits = {tool: fitting_kinds(dialect, tool, dialect.rule(tool).family) for tool in dialect.tools}
    assert {"permission_denied", "not_found"} == BEFORE & {*fits["read_file"]}
    assert {"phantom_success", "not_found"} == BEFORE & {*fits["run"]}
    swaps = parse_dialect(text | swapping, "the guide")
    assert BEFORE & {*fitting_kinds(swaps, "run", "shell")} == BEFORE & {*fits["run"]}


def test_the_kind_of_the_guide_works() -> None:
    from scheduler.dialect import take_apart
    from scheduler.faults.registry import Scene
    from scheduler.uniform import PayloadStream

    code, _ = examples("adding-a-fault.md", "python")
    names: dict[str, object] = {}
    try:
        exec(compile(code, "the guide", "exec"), names)  # noqa: S102
        kind = KINDS["repeated"]
        claude = configs.dialect("claude-code")
        form = claude.form("Read", "read")
        scene = Scene(
            tool="Read",
            family="read",
            rule=claude.rule("Read"),
            form=form,
            arguments={},
            shown=take_apart(form, "1\ta\n2\tb"),
            stream=PayloadStream(("k",), 7),
        )
        assert kind.rewrite is not None
        assert kind.rewrite(scene) == Rewrite("1\ta\n2\ta\n3\tb\n4\tb")
    finally:
        KINDS.pop("repeated", None)


def test_the_before_kind_of_the_guide_works() -> None:
    _, code = examples("adding-a-fault.md", "python")
    names: dict[str, object] = {}
    form = {"errors": {"gone": [{"text": "{target}: no such device", "error": True}]}}
    told = parse_dialect(
        {
            "name": "x",
            "title": "X",
            "tools": {"cat": {"family": "read", "target": "file"}},
            "forms": {"read": form},
        },
        "x",
    )
    try:
        exec(compile(code, "the guide", "exec"), names)  # noqa: S102
        assert "gone" in fitting_kinds(told, "cat", "read")
        assert "gone" not in fitting_kinds(configs.dialect("pi"), "read", "read")
        drawn = Draw(("k",), 0.0, 1.0, True, "gone", "transient")
        assert apply_before(drawn, told, 7, "cat", {"file": "a"}) == Rewrite("a: no such device", True)
    finally:
        KINDS.pop("gone", None)


def test_the_score_of_the_guide_works() -> None:
    (code,) = examples("adding-a-number.md", "python")
    try:
        exec(compile(code, "the guide", "exec"), {})  # noqa: S102
        none = dict.fromkeys(Tally._fields, np.zeros(2))
        tally = Tally(
            **none
            | {"runs": np.array([4.0, 4]), "known": np.array([4.0, 4]), "quota_cut": np.array([1.0, 1])}
        )
        found = estimate_all(tally)["quota_rate"]
        assert (found.value, found.numerator, found.denominator) == (0.25, 2, 8)
        assert found.wilson is not None
    finally:
        METRICS.pop("quota_rate", None)


@pytest.mark.parametrize("document", sorted(DOCS.glob("adding-*.md")), ids=lambda path: path.stem)
def test_every_file_that_a_guide_names_is_there(document: Path) -> None:
    """Whole paths as well as names of files of the rooms."""
    places = [DOCS.parent, DOCS.parent / "proxy", *(DOCS.parent / "tests").rglob("*")]
    for name in re.findall(r"`([\w/-]+\.(?:py|md|yaml))`", document.read_text("utf-8")):
        if "repeated" not in name:
            assert any((place / name).exists() for place in places), name
