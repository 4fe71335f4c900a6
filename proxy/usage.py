"""What the user asked for and cannot have."""

from __future__ import annotations


class UsageError(ValueError):
    """Options or input that cannot be used; the message says what to change."""
