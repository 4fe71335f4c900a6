"""Holding the call blocks of a response until it is known whether the call is to run.

A block is held from its first frame to its last, and only when something could keep its call from running.
Nothing else waits: pings overtake what is held, and text passes through. What is held is never lost: at the
end of the response it goes on as it came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.protocols.text import json_string, text_of
from proxy.protocols.wire import ArgumentsAt, Edit, Frame, splice


class Holder:
    """The frames of one response on their way to the harness."""

    def __init__(self, may_hold: Callable[[str], bool]) -> None:
        """``may_hold`` says of a tool whether a call of it could be kept from running."""
        self._may_hold = may_hold
        self._held: list[Frame] = []
        self._names: dict[str, str] = {}
        self._arguments: dict[str, str] = {}
        self._told: set[str] = set()

    def rename(self, ref: str, wire_name: str) -> None:
        """From now on the call ``ref`` is named ``wire_name``, in what is held and in all that follows."""
        self._names[ref] = wire_name

    def swap(self, ref: str, arguments: str) -> None:
        """From now on the call ``ref`` has ``arguments``, in what is held and in all that follows."""
        self._arguments[ref] = arguments

    def can_rename(self, ref: str, frames: Sequence[Frame]) -> bool:
        """Whether the call ``ref`` has not gone on yet: its first frame is held, or among ``frames``."""
        return any(place.ref == ref for frame in (*self._held, *frames) for place in frame.names)

    def can_swap(self, ref: str, frames: Sequence[Frame], arguments: bytes) -> bool:
        """Whether all that says the ``arguments`` of the call ``ref`` is held, or among ``frames``."""
        if not self.can_rename(ref, frames):
            return False
        here = [
            (frame, place)
            for frame in (*self._held, *frames)
            for place in frame.arguments
            if place.ref == ref
        ]
        pieces = [_text(frame, place) for frame, place in here if place.how == "piece"]
        return bool(here) and (not pieces or "".join(pieces).encode("utf-8", "surrogatepass") == arguments)

    def take(self, frame: Frame) -> list[bytes]:
        """What goes on now that ``frame`` is here and its calls are decided."""
        if frame.passes and self._held:
            return [self._changed(frame)]
        if self._held or any(self._may_hold(tool) for tool in frame.open_tools):
            self._held.append(frame)
            return [] if frame.open_tools else self.release()
        return [self._changed(frame)]

    def release(self) -> list[bytes]:
        """Everything that is held, in order."""
        held, self._held = self._held, []
        return [self._changed(frame) for frame in held]

    def _changed(self, frame: Frame) -> bytes:
        """The bytes of a frame, its calls named and given arguments as they are to go on."""
        if not self._names and not self._arguments:
            return frame.raw
        edits = [
            Edit(*place.at, json_string(self._names[place.ref]))
            for place in frame.names
            if place.ref in self._names
        ]
        for said in frame.arguments:
            if said.ref in self._arguments:
                edits.append(Edit(*said.at, self._new_arguments(said)))
        return splice(frame.raw, edits)

    def _new_arguments(self, said: ArgumentsAt) -> bytes:
        """What stands in the place ``said``: of pieces, the first has everything."""
        arguments = self._arguments[said.ref]
        if said.how == "value":
            return arguments.encode()
        if said.how == "piece":
            if said.ref in self._told:
                return json_string("")
            self._told.add(said.ref)
        return json_string(arguments)


def _text(frame: Frame, place: ArgumentsAt) -> str:
    return text_of(frame.raw[place.at.start : place.at.end])
