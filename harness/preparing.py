"""From a manifest as written to everything that it means: tasks, profile, facts, and the frozen copy."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import harness
from configs import gaps_in_common, load_profile, read_capability
from harness.adapter import HarnessError
from harness.attempt import declared_of
from harness.command import Command
from harness.folder import RunFolder
from harness.task import Task
from harness.taskset import load_tasks, pinned, taskset_sha
from ledger.identity import package_version
from ledger.machine import this_machine
from ledger.manifest import (
    Manifest,
    ManifestError,
    differences,
    freeze,
    load_manifest,
    parse_manifest,
    read_frozen,
    with_facts,
)
from scheduler.capability import Capability, parse_capability
from scheduler.fitting import Gaps
from scheduler.profile import Profile, parse_profile


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What `chaosproxy run` was asked for beyond the manifest; None leaves the manifest's word."""

    out: Path
    plan: str | None = None
    repeats: int | None = None
    jobs: int = 1
    upstream: str | None = None
    command: tuple[str, ...] = ()
    tested_only: bool = False
    capabilities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A manifest with everything that it means. ``filled``: the facts that were read off the machine;
    ``shared_gaps``: family → the kinds that the harness versions of its ``capabilities`` cannot do."""

    manifest: Manifest
    tasks: tuple[Task, ...]
    profile: Profile
    filled: tuple[str, ...] = ()
    shared_gaps: Gaps = field(default_factory=dict)

    @property
    def profile_sha256(self) -> str:
        return self.profile.sha256


def read_prepared(path: Path, options: RunOptions) -> Prepared:
    """Reads a manifest and all that it names; raises ``ManifestError``, ``TaskError``, ``ProfileError``."""
    return prepare_manifest(load_manifest(path), path.parent, options)


def prepare_manifest(manifest: Manifest, base: Path, options: RunOptions) -> Prepared:
    """The same for a manifest that is already read; relative paths in it count from ``base``."""
    if manifest.frozen is not None:
        manifest = manifest.model_copy(update={"frozen": None})
    manifest = _with_options(manifest, options)
    tasks = load_tasks(manifest.tasks, base)
    profile = _profile(manifest, base)
    capabilities = _capabilities(manifest, base)
    for task in tasks:
        _check_kills(manifest, task)
    # What stands elsewhere is taken in: a resume must find it as it is now.
    taken_in: dict[str, Any] = {"tasks": [pinned(task) for task in tasks]}
    if isinstance(manifest.profile, str) and _is_path(manifest.profile):
        taken_in["profile"] = profile.resolved()
    if manifest.capabilities:
        taken_in["capabilities"] = tuple(
            one if isinstance(one, str) and not _is_path(one) else read.data()
            for one, read in zip(manifest.capabilities, capabilities, strict=True)
        )
    whole = manifest.model_copy(update=taken_in)
    filled, names = with_facts(
        whole,
        this_machine(options.out),
        run_id=_run_id(options.out),
        taskset_sha=taskset_sha(tasks),
        runner_sha=runner_sha(),
    )
    return Prepared(filled, tasks, profile, names, gaps_in_common(capabilities))


def _with_options(manifest: Manifest, options: RunOptions) -> Manifest:
    changes: dict[str, Any] = {}
    faults = manifest.faults.model_dump()
    if options.plan is not None:
        faults["plan"] = options.plan
    if options.repeats is not None:
        faults["repeats"] = options.repeats
    if faults != manifest.faults.model_dump():
        changes["faults"] = faults
    if options.command:
        changes |= {"harness": Command.name, "command": list(options.command)}
    if options.capabilities:
        changes["capabilities"] = [
            str(Path(one).absolute()) if _is_path(one) else one for one in options.capabilities
        ]
    if options.upstream is not None:
        changes["endpoint"] = manifest.endpoint.model_dump() | {"base_url": options.upstream}
    return parse_manifest(
        manifest.model_dump(exclude_none=True) | changes, "the manifest with the options given"
    )


def _profile(manifest: Manifest, base: Path) -> Profile:
    named = manifest.profile
    if isinstance(named, dict):
        profile = parse_profile(named, "profile in the manifest")
    else:
        profile = load_profile(str(base / named) if _is_path(named) else named)
    if manifest.identity is None or manifest.identity == profile.identity:
        return profile
    return profile.model_copy(update={"identity": manifest.identity})


def _capabilities(manifest: Manifest, base: Path) -> list[Capability]:
    return [
        parse_capability(one, "a capability in the manifest")
        if isinstance(one, dict)
        else read_capability(str(base / one) if _is_path(one) else one)
        for one in manifest.capabilities or ()
    ]


def _is_path(named: str) -> bool:
    return named.endswith((".yaml", ".yml")) or "/" in named


def _check_kills(manifest: Manifest, task: Task) -> None:
    declared = declared_of(task, manifest)
    for name in manifest.kills:
        if name not in declared:
            raise ManifestError(
                f"the plan kills at {name}, which task {task.id} does not declare; it declares "
                + (", ".join(sorted(declared)) or "none")
            )


def _run_id(out: Path) -> str:
    name = "".join(c if c.isascii() and (c.isalnum() or c in "._~-") else "-" for c in out.absolute().name)
    return name[:64] or "run"


def runner_sha() -> str:
    """SHA-256 over the version and every source file of this package's rooms, in hex."""
    whole = hashlib.sha256(package_version().encode())
    root = Path(harness.__path__[0]).parent
    for room in ("configs", "harness", "ledger", "proxy", "scheduler"):
        for path in sorted((root / room).rglob("*")):
            if path.suffix in (".py", ".yaml") and path.is_file():
                whole.update(f"{path.relative_to(root).as_posix()}\0".encode())
                whole.update(path.read_bytes())
    return whole.hexdigest()


def freeze_into(folder: RunFolder, prepared: Prepared) -> Prepared:
    """Freezes the manifest into the folder, or finds the one that is there to be the same.

    Raises ``ManifestError`` when the folder holds the runs of another manifest, ``HarnessError`` when it
    holds something else.
    """
    if folder.manifest.exists():
        there = read_frozen(folder.manifest)
        differing = differences(there, prepared.manifest)
        if differing:
            raise ManifestError(
                f"{folder.path} holds runs of another manifest; they differ in {'; '.join(differing[:5])}:"
                " give another --out, or the manifest that it was begun with"
            )
        return replace(prepared, manifest=there)
    strangers = [path.name for path in folder.path.iterdir() if path.name not in (".lock", "controls")]
    if strangers:
        raise HarnessError(f"{folder.path} holds {strangers[0]} but no manifest.yaml: give another --out")
    frozen = freeze(prepared.manifest, folder.manifest, prepared.filled, prepared.profile_sha256)
    return replace(prepared, manifest=frozen)


def read_back(folder: RunFolder) -> Prepared:
    """What a run folder was begun with; raises ``ManifestError``."""
    manifest = read_frozen(folder.manifest)
    return Prepared(
        manifest,
        load_tasks(manifest.tasks, folder.path),
        _profile(manifest, folder.path),
        shared_gaps=gaps_in_common(_capabilities(manifest, folder.path)),
    )
