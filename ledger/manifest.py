"""manifest.yaml: what is to be run, under what, on which machine; frozen with its digest before it is run."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import rfc8785
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ledger.decisions import timestamp
from ledger.journal import CHECKPOINTS, CheckpointName
from ledger.machine import Machine
from scheduler.nearest import unknown

OFF = "off"
_EXIT = "hard_exit"


class ManifestError(ValueError):
    """A manifest that cannot be used; the message names the file and the field."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                raise ValueError(unknown("key", str(key), cls.model_fields))
        return data


_AtLeastOne = Annotated[int, Field(strict=True, ge=1)]
_Seed = Annotated[int, Field(strict=True, ge=0, lt=2**64)]
_RunId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._~-]{1,64}$")]


class Env(_Part):
    """The machine: read off it where it is left out. ``mem_gb`` in 10^9 bytes."""

    python: str | None = None
    os: str | None = None
    container_digest: str | None = None
    cpus: Annotated[float, Field(gt=0)] | None = None
    mem_gb: Annotated[float, Field(gt=0)] | None = None
    disk: str | None = None


class Endpoint(_Part):
    """The model endpoint. ``model_id`` is what is asked for, and checked against what the responses report.

    ``base_url``: where it is, when it is not the provider's own address.
    """

    provider_notes: str | None = None
    model_id: str | None = None
    allocation_today: str | int | float | None = None
    base_url: str | None = None


class Faults(_Part):
    """``plan``: ``off``, or ``CHECKPOINT:hard_exit`` (several with commas); ``repeats``: runs per cell."""

    plan: str = OFF
    repeats: _AtLeastOne = 1

    @field_validator("plan", mode="before")
    @classmethod
    def _plan(cls, value: Any) -> str:
        # YAML 1.1 writers spell a bare off as false.
        text = OFF if value is False or value is None else str(value)
        parse_plan(text)
        return text


class Frozen(_Part):
    """What freezing adds. ``filled``: the fields that were left out and read off the machine."""

    sha256: str
    at: str
    filled: tuple[str, ...] = ()
    profile_sha256: str | None = None


class Manifest(_Part):
    """One set of runs. ``timeout`` is seconds per attempt, ``token_budget`` tokens per run with its resumes.

    ``tasks``: ``shipped``, the path of a task set, or a list of names, paths and whole tasks. ``checkpoints``
    stands for the tasks that declare none. ``capabilities``: ``HARNESS@VERSION``, the path of a capability
    file, or what is in one: nothing is drawn that one of these harness versions cannot be done.
    ``command``: any command in the place of a known harness,
    ``resume_command`` how to go on with it. ``stored``: what a resume in a fresh workspace still finds,
    relative to HOME. ``pass_env``: names of variables that the harness inherits from the caller.
    """

    run_id: _RunId | None = None
    taskset_sha: str | None = None
    runner_sha: str | None = None
    env: Env = Env()
    endpoint: Endpoint = Endpoint()
    faults: Faults = Faults()
    harness: str = "reference"
    tasks: str | list[str | dict[str, Any]] = "shipped"
    seed: _Seed | Annotated[list[_Seed], Field(min_length=1)] = 0
    profile: str | dict[str, Any] = OFF
    capabilities: tuple[str | dict[str, Any], ...] | None = None
    identity: Literal["content", "ordinal"] | None = None
    token_budget: _AtLeastOne | None = None
    threshold: Annotated[float, Field(strict=True, ge=0, le=1)] = 0.10
    timeout: Annotated[float, Field(gt=0)] = 600
    workspace: Literal["keep", "fresh"] = "keep"
    checkpoints: tuple[CheckpointName, ...] = CHECKPOINTS
    resume_prompt: str = "You were interrupted. Go on with the task from where you stopped."
    command: Annotated[list[str], Field(min_length=1)] | None = None
    resume_command: Annotated[list[str], Field(min_length=1)] | None = None
    stored: tuple[str, ...] | None = None
    pass_env: tuple[str, ...] = ()
    control: Literal["positive", "negative"] | None = None
    frozen: Frozen | None = None

    @field_validator("profile", mode="before")
    @classmethod
    def _profile(cls, value: Any) -> Any:
        return OFF if value is False else value

    @field_validator("checkpoints", mode="before")
    @classmethod
    def _checkpoints(cls, value: Any) -> Any:
        for name in value if isinstance(value, list | tuple) else ():
            _checkpoint(str(name))
        return value

    @field_validator("identity", "workspace", "control", mode="before")
    @classmethod
    def _words(cls, value: Any, info: Any) -> Any:
        valid = _WORDS[info.field_name]
        if value is not None and value not in valid:
            raise ValueError(unknown(info.field_name, str(value), valid))
        return value

    @field_validator("seed")
    @classmethod
    def _different(cls, value: int | list[int]) -> int | list[int]:
        if isinstance(value, list) and len(set(value)) != len(value):
            raise ValueError("a seed is given twice")
        return value

    @model_validator(mode="after")
    def _treated(self) -> Self:
        if self.harness == "command" and self.command is None:
            raise ValueError("harness is 'command', but no command is given")
        return self

    @property
    def seeds(self) -> tuple[int, ...]:
        """Every seed, in the order given."""
        return tuple(self.seed) if isinstance(self.seed, list) else (self.seed,)

    @property
    def kills(self) -> tuple[CheckpointName, ...]:
        """The checkpoints at which a first attempt is killed."""
        return parse_plan(self.faults.plan)


_WORDS: Mapping[str, tuple[str, ...]] = {
    "identity": ("content", "ordinal"),
    "workspace": ("keep", "fresh"),
    "control": ("positive", "negative"),
}


def parse_plan(text: str) -> tuple[CheckpointName, ...]:
    """The checkpoints to kill at: ``off``, or ``CHECKPOINT:hard_exit[,…]``. Raises ``ValueError``."""
    if text.strip() == OFF:
        return ()
    found: list[CheckpointName] = []
    for entry in text.split(","):
        name, colon, action = entry.strip().partition(":")
        if not colon:
            raise ValueError(f"{entry.strip()!r} is no fault: give off, or CHECKPOINT:{_EXIT}")
        if action.strip() != _EXIT:
            raise ValueError(unknown("action", action.strip(), (_EXIT,)))
        found.append(_checkpoint(name.strip()))
    return tuple(dict.fromkeys(found))


def _checkpoint(name: str) -> CheckpointName:
    for known in CHECKPOINTS:
        if name == known:
            return known
    raise ValueError(unknown("checkpoint", name, CHECKPOINTS))


def load_manifest(path: Path) -> Manifest:
    """Reads a manifest; raises ``ManifestError``."""
    try:
        data = YAML(typ="safe", pure=True).load(path.read_text("utf-8"))
    except OSError as error:
        raise ManifestError(f"cannot read the manifest {path}: {error.strerror}") from None
    except (YAMLError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    return parse_manifest({} if data is None else data, str(path))


def parse_manifest(data: Any, source: str) -> Manifest:
    """A manifest out of plain data; raises ``ManifestError`` naming ``source`` and the field."""
    if not isinstance(data, dict):
        raise ManifestError(f"{source}: a manifest is a mapping")
    try:
        return Manifest.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if isinstance(part, int) or part in _FIELDS)
        message = first["msg"].removeprefix("Value error, ")
        raise ManifestError(f"{source}: {place}: {message}" if place else f"{source}: {message}") from None


_FIELDS = frozenset(name for part in (Manifest, Env, Endpoint, Faults, Frozen) for name in part.model_fields)


def with_facts(
    manifest: Manifest, machine: Machine, *, run_id: str, taskset_sha: str, runner_sha: str
) -> tuple[Manifest, tuple[str, ...]]:
    """(the manifest with every fact that it left out, the names of those facts).

    Raises ``ManifestError`` when it names a task set other than the one that is there.
    """
    if manifest.taskset_sha not in (None, taskset_sha):
        raise ManifestError(
            f"taskset_sha is {manifest.taskset_sha}, but the tasks that are there have {taskset_sha}: they"
            " were changed since; correct it, or leave it out"
        )
    filled: list[str] = []
    env = manifest.env.model_dump()
    for name, value in asdict(machine).items():
        if env[name] is None and value is not None:
            env[name] = value
            filled.append(f"env.{name}")
    facts: dict[str, Any] = {"env": Env(**env)}
    for name, value in (("run_id", run_id), ("taskset_sha", taskset_sha), ("runner_sha", runner_sha)):
        if getattr(manifest, name) is None:
            facts[name] = value
            filled.append(name)
    return manifest.model_copy(update=facts), tuple(filled)


def digest_of(manifest: Manifest) -> str:
    """SHA-256 over the RFC 8785 form of everything but ``frozen``, in hex."""
    return hashlib.sha256(rfc8785.dumps(_plain(manifest))).hexdigest()


def freeze(manifest: Manifest, path: Path, filled: Sequence[str], profile_sha256: str) -> Manifest:
    """Writes the frozen copy, 0600, whole or not at all; raises ``OSError``."""
    block = Frozen(
        sha256=digest_of(manifest), at=timestamp(), filled=tuple(filled), profile_sha256=profile_sha256
    )
    frozen = manifest.model_copy(update={"frozen": block})
    text = StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.dump(frozen.model_dump(mode="json", exclude_none=True), text)
    unfinished = path.with_suffix(".tmp")
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text.getvalue())
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    return frozen


def read_frozen(path: Path) -> Manifest:
    """A frozen copy; raises ``ManifestError`` when it is none, or was changed after it was frozen."""
    manifest = load_manifest(path)
    if manifest.frozen is None:
        raise ManifestError(f"{path} was never frozen: `chaosproxy run` writes the copy of a run folder")
    if manifest.frozen.sha256 != digest_of(manifest):
        raise ManifestError(f"{path} was changed after it was frozen: its digest does not fit any more")
    return manifest


def differences(one: Manifest, other: Manifest) -> tuple[str, ...]:
    """The fields in which two manifests differ, as ``env.cpus: 2 and 4``; nothing of ``frozen`` counts."""
    return tuple(_differing(_plain(one), _plain(other), ""))


_COMPARED = (
    *("env.container_digest", "env.cpus", "taskset_sha", "token_budget", "threshold", "profile"),
    *("capabilities", "checkpoints"),
)


def disagreements(one: Manifest, other: Manifest) -> tuple[str, ...]:
    """Why two sets of runs cannot be compared: the differences in what a comparison must hold fixed."""
    found = [line for line in differences(one, other) if line.partition(":")[0].startswith(_COMPARED)]
    mine, theirs = one.frozen, other.frozen
    if (
        mine is not None
        and theirs is not None
        and mine.profile_sha256 != theirs.profile_sha256
        and not any(line.startswith("profile") for line in found)
    ):
        found.append(f"profile: the same name, but {mine.profile_sha256} and {theirs.profile_sha256}")
    return tuple(found)


def _plain(manifest: Manifest) -> dict[str, Any]:
    return manifest.model_dump(mode="json", exclude={"frozen"}, exclude_none=True)


def _differing(one: Any, other: Any, place: str) -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        keys = dict.fromkeys([*one, *other])
        return [
            line
            for key in keys
            for line in _differing(one.get(key), other.get(key), f"{place}.{key}" if place else str(key))
        ]
    return [] if one == other else [f"{place}: {_shown(one)} and {_shown(other)}"]


def _shown(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
