"""What people state beside the ledgers: the manifest of a run folder, and verdicts on served runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
import orjson
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ledger.problems import BadManifest, BadVerdicts
from ledger.runs import Claim, Ended


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What verdicts.json says of one run; null where it says nothing.

    ``final_text`` is the agent's last message, ``claimed`` what it comes down to when somebody has read it.
    """

    passed: bool | None
    ended: Ended | None = None
    claimed: Claim | None = None
    final_text: str | None = None


def read_verdicts(path: Path) -> dict[str, Verdict]:
    """``{run_id: true|false}`` or ``{run_id: {"passed": …, …}}``. Raises ``BadVerdicts``."""
    try:
        data = orjson.loads(path.read_bytes())
    except OSError as error:
        raise BadVerdicts(f"cannot read {path}: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise BadVerdicts(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise BadVerdicts(f"{path}: verdicts are an object with run ids as its keys")
    return {run_id: _verdict(path, run_id, said) for run_id, said in data.items()}


def _verdict(path: Path, run_id: str, said: object) -> Verdict:
    if isinstance(said, bool):
        return Verdict(said)
    if isinstance(said, dict):
        unknown = sorted(set(said) - set(Verdict.__struct_fields__))
        if unknown:
            keys = ", ".join(Verdict.__struct_fields__)
            raise BadVerdicts(f"{path}: run {run_id}: unknown key {unknown[0]!r}: the keys are {keys}")
        try:
            return msgspec.convert(said, Verdict)
        except msgspec.ValidationError as error:
            raise BadVerdicts(f"{path}: run {run_id}: {error}") from error
    raise BadVerdicts(f'{path}: run {run_id}: give true, false or {{"passed": …, "ended": …}}, not {said!r}')


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a manifest.yaml says that scoring and comparing look at; null where it says nothing.

    ``tasks`` are sorted task ids where the manifest lists them; ``plan`` is the kill plan (``off``, or
    ``checkpoint:hard_exit``); ``checkpoints`` the declared ones; ``text`` the file as it is. ``frozen``: that
    of a run folder, where what is left out was not wanted.
    """

    container_digest: str | None = None
    cpus: float | None = None
    taskset_sha: str | None = None
    tasks: tuple[str, ...] | None = None
    token_budget: int | None = None
    threshold: float | None = None
    profile: str | None = None
    checkpoints: tuple[str, ...] | None = None
    plan: str | None = None
    repeats: int | None = None
    harness: str | None = None
    model_id: str | None = None
    frozen: bool = False
    text: str = ""


def read_manifest(path: Path) -> Manifest:
    """Reads a manifest.yaml; what is not asked for may say anything. Raises ``BadManifest``."""
    try:
        text = path.read_text("utf-8")
        data = YAML(typ="safe", pure=True).load(text)
    except OSError as error:
        raise BadManifest(f"cannot read {path}: {error.strerror}") from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise BadManifest(f"{path} is not YAML: {error}") from error
    said = _Said(path, data if isinstance(data, dict) else {})
    env, faults, endpoint = said.inside("env"), said.inside("faults"), said.inside("endpoint")
    return Manifest(
        container_digest=env.text("container_digest"),
        cpus=env.number("cpus"),
        taskset_sha=said.text("taskset_sha"),
        tasks=said.names("tasks"),
        token_budget=said.whole("token_budget"),
        threshold=_share(path, said.number("threshold")),
        profile=said.text("profile"),
        checkpoints=said.names("checkpoints"),
        plan=faults.text("plan"),
        repeats=faults.whole("repeats"),
        harness=said.text("harness"),
        model_id=endpoint.text("model_id"),
        frozen=bool(said.inside("frozen")),
        text=text,
    )


def _share(path: Path, said: float | None) -> float | None:
    if said is not None and not 0 <= said <= 1:
        raise BadManifest(f"{path}: threshold is {said:g}: give a share between 0 and 1, such as 0.10")
    return said


class _Said:
    """A mapping of a manifest, read field by field."""

    def __init__(self, path: Path, data: dict[Any, Any], within: str = "") -> None:
        self._path = path
        self._data = data
        self._within = within

    def __bool__(self) -> bool:
        return bool(self._data)

    def inside(self, name: str) -> _Said:
        data = self._data.get(name)
        return _Said(self._path, data if isinstance(data, dict) else {}, f"{name}.")

    def text(self, name: str) -> str | None:
        """A word; a list of words is one with commas; a mapping goes by its name."""
        said = self._data.get(name)
        if said is None:
            return None
        # YAML 1.1 readers take a bare off for false.
        if said is False:
            return "off"
        if isinstance(said, dict):
            said = said.get("name", said)
        return ",".join(map(str, said)) if isinstance(said, list) else str(said)

    def number(self, name: str) -> float | None:
        said = self._data.get(name)
        if said is None:
            return None
        if isinstance(said, bool) or not isinstance(said, int | float):
            raise BadManifest(f"{self._path}: {self._within}{name} is {said!r}: give a number")
        return float(said)

    def whole(self, name: str) -> int | None:
        said = self.number(name)
        return None if said is None else int(said)

    def names(self, name: str) -> tuple[str, ...] | None:
        """Sorted names out of a list of words or of mappings with an id, a task_id or a name."""
        said = self._data.get(name)
        if said is None:
            return None
        if not isinstance(said, list):
            return (str(said),)
        return tuple(sorted(_name_of(item) for item in said))


def _name_of(item: object) -> str:
    if isinstance(item, dict):
        keys: tuple[Literal["id", "task_id", "name"], ...] = ("id", "task_id", "name")
        return next((str(item[key]) for key in keys if key in item), str(item))
    return str(item)
