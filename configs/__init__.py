"""The shipped profiles, dialects and capability files, and the one place that reads them from disk."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, partial
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from configs.parsed import parsed
from scheduler.capability import Capability, capability_name, is_file_name, parse_capability
from scheduler.dialect import Dialect, parse_dialect
from scheduler.fitting import family_gaps
from scheduler.nearest import unknown
from scheduler.profile import Profile, ProfileError, parse_profile


class ConfigError(ValueError):
    """A configuration file that cannot be read; the message says which and why."""


def _shipped(folder: str) -> dict[str, str]:
    """name → text of every YAML file of ``configs/<folder>``, which need not be there."""
    place = files(__name__).joinpath(folder)
    if not place.is_dir():
        return {}
    return {
        entry.name.removesuffix(".yaml"): entry.read_text("utf-8")
        for entry in sorted(place.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".yaml")
    }


def read_yaml(text: str, source: str) -> Any:
    """The data of a YAML text; raises ``ConfigError`` with the place of the first fault in it."""
    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise ConfigError(f"{source}: not YAML: {' '.join(str(error).split())}") from None


@lru_cache(maxsize=1)
def _profile_texts() -> dict[str, str]:
    return _shipped("profiles")


def profile_names() -> tuple[str, ...]:
    """The names of the shipped profiles."""
    return tuple(_profile_texts())


def load_profile(name_or_path: str) -> Profile:
    """A shipped profile by name, or one from a YAML file by path.

    Raises ``ProfileError`` or ``ConfigError``; both say what to do.
    """
    text = _profile_texts().get(name_or_path)
    source = f"profile {name_or_path}"
    if text is None:
        path = Path(name_or_path)
        if path.suffix not in {".yaml", ".yml"} and "/" not in name_or_path:
            raise ProfileError(
                f"{unknown('profile', name_or_path, profile_names())} (or give the path of a .yaml file)"
            )
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the profile {name_or_path}: {error}") from None
        source = str(path)
    return parse_profile(read_yaml(text, source), source)


@lru_cache(maxsize=1)
def dialects() -> dict[str, Dialect]:
    """name → dialect, for every harness that is known."""
    return {
        name: parse_dialect(parsed(text, partial(read_yaml, source=f"dialect {name}")), f"dialect {name}")
        for name, text in _shipped("harnesses").items()
    }


def dialect(name: str) -> Dialect:
    """The dialect of one harness; raises ``ConfigError`` naming the nearest one."""
    found = dialects().get(name)
    if found is None:
        raise ConfigError(unknown("harness", name, dialects()))
    return found


def capability_names() -> tuple[str, ...]:
    """``<harness>@<version>`` of every harness version that has a capability file."""
    return tuple(_shipped("capabilities"))


def asked_digest(harness: str) -> str:
    """SHA-256 over what the conformance suite asks a harness with: its dialect and its probes, as data, so
    that a comment does not count. Raises ``ConfigError`` for a harness that has neither."""
    texts = [(folder, _shipped(folder).get(harness)) for folder in ("harnesses", "probes")]
    data = [
        None if text is None else parsed(text, partial(read_yaml, source=f"{harness} in configs/{folder}"))
        for folder, text in texts
    ]
    if data == [None, None]:
        raise ConfigError(unknown("harness", harness, dialects()))
    return sha256(orjson.dumps(data, option=orjson.OPT_SORT_KEYS)).hexdigest()


@lru_cache(maxsize=64)
def load_capability(harness: str, version: str) -> Capability | None:
    """What was shown of this harness version; None when there is no file of it.

    Raises ``ConfigError`` or ``CapabilityError`` for a file that is none, or is another version's.
    """
    name = capability_name(harness, version)
    if not is_file_name(name):
        return None
    file = files(__name__).joinpath("capabilities", f"{name}.yaml")
    if not file.is_file():
        return None
    source = f"capability {name}"
    found = parse_capability(parsed(file.read_text("utf-8"), partial(read_yaml, source=source)), source)
    if found.name != name:
        raise ConfigError(f"{source}: it is of {found.name}")
    return found


def read_capability(name_or_path: str) -> Capability:
    """A shipped capability by its ``<harness>@<version>``, or one from a YAML file by path.

    Raises ``ConfigError`` or ``CapabilityError``; both say what to do.
    """
    if name_or_path in capability_names():
        harness, _, version = name_or_path.rpartition("@")
        found = load_capability(harness, version)
        if found is not None:
            return found
    path = Path(name_or_path)
    if path.suffix not in {".yaml", ".yml"} and "/" not in name_or_path:
        raise ConfigError(
            f"{unknown('capability file', name_or_path, capability_names())}"
            " (or give the path of a .yaml file)"
        )
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the capability file {name_or_path}: {error}") from None
    return parse_capability(read_yaml(text, name_or_path), name_or_path)


def gaps_in_common(capabilities: Iterable[Capability]) -> dict[str, list[str]]:
    """family → the kinds that some of these harness versions cannot do to it: none of them is to get one."""
    found: dict[str, set[str]] = {}
    for capability in capabilities:
        for family, kinds in family_gaps(dialect(capability.harness), capability).items():
            found.setdefault(family, set()).update(kinds)
    return {family: sorted(kinds) for family, kinds in sorted(found.items())}
