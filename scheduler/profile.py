"""A profile says how often what fails. Parsed from YAML text; every error names the nearest valid word."""

from __future__ import annotations

import hashlib
import re
from functools import cached_property
from typing import Any, Self

import rfc8785
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from scheduler.call import FAMILIES, Family, Identity
from scheduler.faults import KINDS
from scheduler.nearest import unknown


class ProfileError(ValueError):
    """A profile that cannot be used; the message says where it is wrong and what would be right."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    raise ValueError(unknown("key", str(key), cls.model_fields))
        return data


def _known_kind(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(unknown("kind", kind, KINDS))
    return kind


def _known_family(family: str) -> str:
    if family not in FAMILIES:
        raise ValueError(unknown("family", family, FAMILIES))
    return family


class PersistenceWeights(_Model):
    """How faults split into those that pass and those that stay; only the ratio counts."""

    transient: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    permanent: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.transient + self.permanent <= 0:
            raise ValueError("one of transient and permanent must be above 0")
        return self


class KindSettings(_Model):
    """Settings of the kinds that have any."""

    lines: int | None = Field(default=None, ge=0, description="truncated: keep this many lines")
    seconds: float | None = Field(default=None, gt=0, le=600, description="slow: wait this long")


class ForceRule(_Model):
    """One fault by hand: on the ``nth`` call (from 1) of a family or tool, or on calls whose canonical
    arguments ``match`` a regular expression; with both, on the nth of those that match."""

    family: Family | None = None
    tool: str | None = None
    nth: int | None = Field(default=None, ge=1)
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
            raise ValueError(f"kind {self.kind!r} does not fit family {self.family!r}")
        return self

    def matches(self, canonical: str) -> bool:
        return self.match is None or re.search(self.match, canonical) is not None


class Profile(_Model):
    """A resolved profile. Rates are probabilities per call; weights are relative, per family and kind."""

    name: str = Field(min_length=1)
    description: str = ""
    rate: float = Field(ge=0, le=1)
    rates: dict[Family, float] = Field(default_factory=dict)
    weights: dict[Family, dict[str, float]] = Field(default_factory=dict)
    persistence: PersistenceWeights = PersistenceWeights()
    identity: Identity = "content"
    skip_first: int = Field(default=0, ge=0)
    max_faults: int | None = Field(default=None, ge=0)
    min_gap: int = Field(default=0, ge=0)
    kinds: dict[str, KindSettings] = Field(default_factory=dict)
    force: tuple[ForceRule, ...] = ()

    @field_validator("rates", "weights", mode="before")
    @classmethod
    def _families(cls, value: Any) -> Any:
        for family in value if isinstance(value, dict) else ():
            _known_family(str(family))
        return value

    @field_validator("rates")
    @classmethod
    def _rates(cls, value: dict[Family, float]) -> dict[Family, float]:
        for family, rate in value.items():
            if not 0 <= rate <= 1:
                raise ValueError(f"the rate of {family} is a probability, 0 to 1, not {rate}")
        return value

    @field_validator("weights")
    @classmethod
    def _weights(cls, value: dict[Family, dict[str, float]]) -> dict[Family, dict[str, float]]:
        for family, weights in value.items():
            for kind, weight in weights.items():
                _known_kind(kind)
                if family not in KINDS[kind].families:
                    fits = ", ".join(k.name for k in KINDS.values() if family in k.families)
                    raise ValueError(f"kind {kind!r} does not fit family {family!r}: what fits is {fits}")
                if not 0 <= weight < float("inf"):
                    raise ValueError(f"the weight of {kind} for {family} must be 0 or more, not {weight}")
        return value

    @field_validator("kinds", mode="before")
    @classmethod
    def _settings(cls, value: Any) -> Any:
        for kind in value if isinstance(value, dict) else ():
            _known_kind(str(kind))
        return value

    def rate_of(self, family: str) -> float:
        return self.rates.get(family, self.rate)  # type: ignore[call-overload, no-any-return]

    def weights_of(self, family: str) -> dict[str, float]:
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
        return bool(self.live_kinds() or self.force)

    @cached_property
    def counts(self) -> bool:
        """Whether the limits or rules look at where a call stands in its conversation."""
        return bool(self.skip_first or self.max_faults is not None or self.min_gap or self.force)

    def resolved(self) -> dict[str, Any]:
        """The whole profile as plain data, defaults filled in: what the log keeps of it."""
        return self.model_dump(mode="json")

    @property
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
            " weight above 0, and there is no force rule); use the profile 'off' for a run without faults"
        )
    return profile


def _first_words(error: ValidationError) -> str:
    lines = []
    for item in error.errors():
        place = ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        lines.append(f"{place}: {message}" if place else message)
    return "; ".join(lines)
