"""Holding the call blocks of a response until it is known whether the call is to run.

A block is held from its first frame to its last, and only when something could keep its call from running.
Nothing else waits: pings overtake what is held, and text passes through. What is held is never lost: at the
end of the response it goes on as it came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from proxy.protocols.text import json_string
from proxy.protocols.wire import Frame


def renamed(frame: Frame, names: Mapping[str, str]) -> bytes:
    """The bytes of a frame with the tools of these calls (by ``ref``) named otherwise."""
    out: list[bytes] = []
    at = 0
    for place in sorted(frame.names, key=lambda place: place.at):
        name = names.get(place.ref)
        if name is not None:
            out += (frame.raw[at : place.at.start], json_string(name))
            at = place.at.end
    if not out:
        return frame.raw
    out.append(frame.raw[at:])
    return b"".join(out)


class Holder:
    """The frames of one response on their way to the harness."""

    def __init__(self, may_hold: Callable[[str], bool]) -> None:
        """``may_hold`` says of a tool whether a call of it could be kept from running."""
        self._may_hold = may_hold
        self._held: list[Frame] = []
        self._names: dict[str, str] = {}

    def rename(self, ref: str, wire_name: str) -> None:
        """From now on the call ``ref`` is named ``wire_name``, in what is held and in all that follows."""
        self._names[ref] = wire_name

    def can_rename(self, ref: str, frames: Sequence[Frame]) -> bool:
        """Whether the call ``ref`` has not gone on yet: its first frame is held, or among ``frames``."""
        return any(place.ref == ref for frame in (*self._held, *frames) for place in frame.names)

    def take(self, frame: Frame) -> bytes:
        """What goes on now that ``frame`` is here and its calls are decided."""
        if frame.passes and self._held:
            return renamed(frame, self._names)
        if self._held or any(self._may_hold(tool) for tool in frame.open_tools):
            self._held.append(frame)
            return b"" if frame.open_tools else self.release()
        return renamed(frame, self._names)

    def release(self) -> bytes:
        """Everything that is held, in order."""
        held, self._held = self._held, []
        return b"".join(renamed(frame, self._names) for frame in held)
