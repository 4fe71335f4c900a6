"""Manifests: every field checked, facts read off the machine and said so, frozen with a digest."""

from __future__ import annotations

import hashlib
import json
import platform
import stat
from pathlib import Path
from typing import Any

import pytest

from ledger.machine import Machine, machine_started, this_machine
from ledger.manifest import (
    Manifest,
    ManifestError,
    differences,
    digest_of,
    disagreements,
    freeze,
    load_manifest,
    parse_manifest,
    parse_plan,
    read_frozen,
    with_facts,
)
from ledger.reading_stated import read_manifest

MACHINE = Machine("3.13.1", "Linux 6 x86_64", None, 2.0, 7.8, "100 GB on ext4")
FULL = """
run_id: pilot-1
taskset_sha: abc
runner_sha: def
env: {python: 3.13.1, os: Linux, container_digest: sha256:00, cpus: 4, mem_gb: 16, disk: 100 GB}
endpoint: {provider_notes: "tier 2", model_id: claude-sonnet-4-5, allocation_today: 5000000}
faults: {plan: patch_applied:hard_exit, repeats: 5}
harness: claude-code
tasks: shipped
seed: [1, 2]
profile: moderate
identity: content
token_budget: 60000
threshold: 0.2
timeout: 300
"""


def written(folder: Path, text: str) -> Path:
    (folder / "m.yaml").write_text(text, "utf-8")
    return folder / "m.yaml"


def filled(manifest: Manifest) -> tuple[Manifest, tuple[str, ...]]:
    return with_facts(manifest, MACHINE, run_id="out", taskset_sha="tt", runner_sha="rr")


def test_every_field_is_read(tmp_path: Path) -> None:
    manifest = load_manifest(written(tmp_path, FULL))
    assert manifest.run_id == "pilot-1"
    assert manifest.env.cpus == 4
    assert manifest.endpoint.allocation_today == 5000000
    assert manifest.kills == ("patch_applied",)
    assert manifest.faults.repeats == 5
    assert manifest.seeds == (1, 2)
    assert (manifest.token_budget, manifest.threshold, manifest.timeout) == (60000, 0.2, 300)
    assert manifest.checkpoints == ("context_loaded", "patch_drafted", "patch_applied", "tests_run")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("treshold: 0.1", "did you mean 'threshold'?"),
        ("env: {cpu: 2}", "env: unknown key 'cpu': did you mean 'cpus'?"),
        ("endpoint: {model: x}", "did you mean 'model_id'?"),
        ("threshold: 1.5", "threshold: Input should be less than or equal to 1"),
        ("threshold: yes please", "threshold: "),
        ("seed: -1", "seed: "),
        ("seed: [1, 1]", "seed: a seed is given twice"),
        (
            "faults: {plan: patch_aplied:hard_exit}",
            "faults.plan: unknown checkpoint 'patch_aplied': did you mean",
        ),
        ("faults: {plan: patch_applied}", "give off, or CHECKPOINT:hard_exit"),
        ("faults: {plan: patch_applied:hardexit}", "did you mean 'hard_exit'?"),
        ("faults: {repeats: 0}", "faults.repeats: "),
        (
            "checkpoints: [tests_ran]",
            "checkpoints: unknown checkpoint 'tests_ran': did you mean 'tests_run'?",
        ),
        ("workspace: kept", "workspace: unknown workspace 'kept': did you mean 'keep'?"),
        ("identity: contents", "did you mean 'content'?"),
        ("token_budget: 0", "token_budget: "),
        ("timeout: 0", "timeout: "),
        ("run_id: 'a b'", "run_id: "),
        ("harness: command", "no command is given"),
        ("- a", "is a mapping"),
        ("a: [", "not YAML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ManifestError) as caught:
        load_manifest(written(tmp_path, text))
    assert says in str(caught.value)
    assert "m.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="No such file"):
        load_manifest(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "kills"),
    [
        ("off", ()),
        ("tests_run:hard_exit", ("tests_run",)),
        (" context_loaded:hard_exit , tests_run:hard_exit", ("context_loaded", "tests_run")),
        ("tests_run:hard_exit,tests_run:hard_exit", ("tests_run",)),
    ],
)
def test_plans(text: str, kills: tuple[str, ...]) -> None:
    assert parse_plan(text) == kills


@pytest.mark.parametrize("text", ["faults: {plan: off}", "faults: {plan: false}", "{}"])
def test_off_is_off_in_every_yaml(tmp_path: Path, text: str) -> None:
    assert load_manifest(written(tmp_path, text)).kills == ()


def test_facts_left_out_are_read_off_the_machine_and_said() -> None:
    manifest, names = filled(parse_manifest({"env": {"cpus": 8}, "run_id": "mine"}, "test"))
    assert (manifest.env.python, manifest.env.cpus, manifest.run_id) == ("3.13.1", 8, "mine")
    assert (manifest.taskset_sha, manifest.runner_sha) == ("tt", "rr")
    assert names == ("env.python", "env.os", "env.mem_gb", "env.disk", "taskset_sha", "runner_sha")
    assert filled(manifest)[1] == ()


def test_another_task_set_is_refused() -> None:
    with pytest.raises(ManifestError, match="taskset_sha is other"):
        filled(parse_manifest({"taskset_sha": "other"}, "test"))


def test_frozen_with_its_digest(tmp_path: Path) -> None:
    manifest, names = filled(load_manifest(written(tmp_path, FULL.replace("taskset_sha: abc", ""))))
    path = tmp_path / "manifest.yaml"
    frozen = freeze(manifest, path, names, "pp")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_frozen(path) == frozen
    assert frozen.frozen is not None
    assert frozen.frozen.filled == ("taskset_sha",)
    # RFC 8785 of such data (ASCII, short numbers) is JSON with sorted keys and no blanks.
    plain = manifest.model_dump(mode="json", exclude={"frozen"}, exclude_none=True)
    for whole in ("cpus", "mem_gb"):
        plain["env"][whole] = int(plain["env"][whole])
    plain["timeout"] = int(plain["timeout"])
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    assert frozen.frozen.sha256 == hashlib.sha256(text.encode()).hexdigest() == digest_of(manifest)


def test_a_frozen_copy_that_was_edited_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    freeze(filled(Manifest())[0], path, (), "pp")
    path.write_text(path.read_text().replace("threshold: 0.1", "threshold: 0.5"))
    with pytest.raises(ManifestError, match="changed after it was frozen"):
        read_frozen(path)
    with pytest.raises(ManifestError, match="never frozen"):
        read_frozen(written(tmp_path, FULL))


def test_scoring_reads_the_frozen_copy(tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    data: dict[str, Any] = {"tasks": [{"id": "b"}, {"id": "a"}], "faults": {"plan": "off"}, "token_budget": 7}
    freeze(filled(parse_manifest(data, "test"))[0], path, (), "pp")
    read = read_manifest(path)
    assert (read.cpus, read.taskset_sha, read.token_budget, read.threshold) == (2.0, "tt", 7, 0.1)
    assert (read.tasks, read.plan, read.profile) == (("a", "b"), "off", "off")
    assert read.checkpoints == ("context_loaded", "patch_applied", "patch_drafted", "tests_run")


def test_differences_name_the_fields() -> None:
    one = parse_manifest({"env": {"cpus": 2}, "token_budget": 5, "harness": "pi"}, "one")
    other = parse_manifest({"env": {"cpus": 4}, "harness": "claude-code"}, "other")
    assert differences(one, one) == ()
    assert differences(one, other) == (
        "env.cpus: 2.0 and 4.0",
        "harness: pi and claude-code",
        "token_budget: 5 and nothing",
    )
    assert disagreements(one, other) == ("env.cpus: 2.0 and 4.0", "token_budget: 5 and nothing")


def test_the_same_profile_name_with_other_contents_disagrees(tmp_path: Path) -> None:
    manifest = filled(Manifest())[0]
    one = freeze(manifest, tmp_path / "a.yaml", (), "aa")
    other = freeze(manifest, tmp_path / "b.yaml", (), "bb")
    assert disagreements(one, other) == ("profile: the same name, but aa and bb",)
    assert disagreements(one, one) == ()


def test_this_machine(tmp_path: Path) -> None:
    machine = this_machine(tmp_path / "not" / "there" / "yet")
    assert machine.python == platform.python_version()
    assert 0 < machine.cpus <= 4096
    assert machine.mem_gb is None or machine.mem_gb > 0
    assert " GB" in machine.disk
    started = machine_started()
    assert started is None or started.startswith("20")
