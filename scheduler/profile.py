"""A profile says how often what fails. Parsed from YAML text; every error names the nearest valid word."""

from __future__ import annotations

import hashlib
import re
from functools import cached_property
from typing import Annotated, Any, Self, get_args

import rfc8785
from pydantic import Field, ValidationError, field_validator, model_validator

from scheduler.call import FAMILIES, Family, Identity
from scheduler.faults import KINDS
from scheduler.form import Checked
from scheduler.nearest import unknown


class ProfileError(ValueError):
    """A profile that cannot be used; the message says where it is wrong and what would be right."""


def _known_kind(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(unknown("kind", kind, KINDS))
    return kind


def _known_family(family: str) -> str:
    if family not in FAMILIES:
        raise ValueError(unknown("family", family, FAMILIES))
    return family


def _unfitting(kind: str, family: str) -> str:
    fits = ", ".join(k.name for k in KINDS.values() if family in k.families)
    return f"kind {kind!r} does not fit family {family!r}: what fits is {fits}"


# Strict, so that "rate: true" or a number in quotes is an error and not 1.
_Rate = Annotated[float, Field(strict=True, ge=0, le=1)]
_Weight = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(strict=True, ge=0)]
_AtLeastOne = Annotated[int, Field(strict=True, ge=1)]


class PersistenceWeights(Checked):
    """How faults split into those that pass and those that stay; only the ratio counts, what is not named has
    no part."""

    transient: _Weight = 0.0
    permanent: _Weight = 0.0

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.transient + self.permanent <= 0:
            raise ValueError("one of transient and permanent must be above 0")
        return self


class KindSettings(Checked):
    """Settings of a kind: ``lines`` that a cut result keeps, ``seconds`` that a slow one waits."""

    lines: _AtLeastOne | None = None
    seconds: Annotated[float, Field(strict=True, gt=0, le=600)] | None = None

    def given(self) -> list[str]:
        """The names of the settings that are set."""
        return [name for name in type(self).model_fields if getattr(self, name) is not None]


class ForceRule(Checked):
    """One fault by hand: on the ``nth`` call (from 1) of a family or tool, or on calls whose canonical
    arguments ``match`` a regular expression; with both, on the nth of those that match."""

    family: Family | None = None
    tool: str | None = None
    nth: _AtLeastOne | None = None
    match: str | None = None
    kind: str

    _kind = field_validator("kind")(_known_kind)

    @field_validator("family", mode="before")
    @classmethod
    def _family(cls, value: Any) -> Any:
        return _known_family(value) if isinstance(value, str) else value

    @field_validator("match")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                re.compile(value)
            except re.error as error:
                raise ValueError(f"match is not a regular expression: {error}") from None
        return value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.family is None) == (self.tool is None):
            raise ValueError("a force rule names either a family or a tool")
        if self.nth is None and self.match is None:
            raise ValueError("a force rule says which call: nth (1 is the first), match, or both")
        if self.family is not None and self.family not in KINDS[self.kind].families:
            raise ValueError(_unfitting(self.kind, self.family))
        return self

    def matches(self, canonical: str) -> bool:
        """Whether the rule's pattern is found in a call's canonical arguments."""
        return self.match is None or re.search(self.match, canonical) is not None


class Profile(Checked):
    """A resolved profile. Rates are probabilities per call; weights are relative, per family and kind."""

    name: str = Field(min_length=1)
    description: str = ""
    rate: _Rate
    rates: dict[Family, _Rate] = Field(default_factory=dict)
    weights: dict[Family, dict[str, _Weight]] = Field(default_factory=dict)
    persistence: PersistenceWeights = PersistenceWeights(transient=1.0)
    identity: Identity = "content"
    skip_first: _Count = 0
    max_faults: _Count | None = None
    min_gap: _Count = 0
    kinds: dict[str, KindSettings] = Field(default_factory=dict)
    force: tuple[ForceRule, ...] = ()

    @field_validator("rates", "weights", mode="before")
    @classmethod
    def _families(cls, value: Any) -> Any:
        for family in value if isinstance(value, dict) else ():
            _known_family(str(family))
        return value

    @field_validator("identity", mode="before")
    @classmethod
    def _identity(cls, value: Any) -> Any:
        if value not in get_args(Identity):
            raise ValueError(unknown("identity", str(value), get_args(Identity)))
        return value

    @field_validator("weights")
    @classmethod
    def _weights(cls, value: dict[Family, dict[str, float]]) -> dict[Family, dict[str, float]]:
        for family, weights in value.items():
            for kind in weights:
                _known_kind(kind)
                if family not in KINDS[kind].families:
                    raise ValueError(_unfitting(kind, family))
        return value

    @field_validator("kinds", mode="before")
    @classmethod
    def _settings(cls, value: Any) -> Any:
        for kind in value if isinstance(value, dict) else ():
            _known_kind(str(kind))
        return value

    @field_validator("kinds")
    @classmethod
    def _listened_to(cls, value: dict[str, KindSettings]) -> dict[str, KindSettings]:
        for kind, settings in value.items():
            for name in settings.given():
                if name not in KINDS[kind].settings:
                    has = ", ".join(sorted(KINDS[kind].settings)) or "none"
                    raise ValueError(f"kind {kind!r} has no setting {name!r}: it has {has}")
        return value

    def rate_of(self, family: str) -> float:
        """The probability that a call of ``family`` fails."""
        return self.rates.get(family, self.rate)  # type: ignore[call-overload, no-any-return]

    def weights_of(self, family: str) -> dict[str, float]:
        """kind → weight for calls of ``family``."""
        return self.weights.get(family, {})  # type: ignore[call-overload, no-any-return]

    def live_kinds(self) -> dict[Family, tuple[str, ...]]:
        """Per family, the kinds that this profile can fire there by its rates and weights."""
        return {
            family: tuple(kind for kind, weight in sorted(self.weights_of(family).items()) if weight > 0)
            for family in FAMILIES
            if self.rate_of(family) > 0 and any(w > 0 for w in self.weights_of(family).values())
        }

    @property
    def can_fire(self) -> bool:
        """Whether any call can fail under this profile."""
        return bool(self.force) or (bool(self.live_kinds()) and self.max_faults != 0)

    @cached_property
    def counts(self) -> bool:
        """Whether the limits or rules look at where a call stands in its conversation."""
        return bool(self.skip_first or self.max_faults is not None or self.min_gap or self.force)

    def resolved(self) -> dict[str, Any]:
        """The whole profile as plain data, defaults filled in: what the log keeps of it."""
        return self.model_dump(mode="json")

    @cached_property
    def sha256(self) -> str:
        """SHA-256 over the RFC 8785 form of the resolved profile, in hex."""
        return hashlib.sha256(rfc8785.dumps(self.resolved())).hexdigest()


def parse_profile(data: Any, source: str) -> Profile:
    """A profile from what a YAML reader made of its text.

    Raises ``ProfileError`` with ``source`` and the place of each fault in it.
    """
    if not isinstance(data, dict):
        raise ProfileError(f"{source}: a profile is a mapping with at least name and rate")
    try:
        profile = Profile.model_validate(data)
    except ValidationError as error:
        raise ProfileError(f"{source}: {_first_words(error)}") from None
    if not profile.can_fire and profile.name != "off":
        raise ProfileError(
            f"{source}: this profile can fire nothing (no family has both a rate above 0 and a kind with a"
            " weight above 0, or max_faults is 0, and there is no force rule); use the profile 'off' for a"
            " run without faults"
        )
    return profile


def _first_words(error: ValidationError) -> str:
    lines = []
    for item in error.errors():
        place = ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        lines.append(f"{place}: {message}" if place else message)
    return "; ".join(lines)
