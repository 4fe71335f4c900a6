"""Where the controls of a run folder lie: beside its runs, each a run folder of its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

ControlKind = Literal["positive", "negative"]


def control_folder(path: Path, kind: ControlKind) -> Path:
    """``DIR/controls/positive`` or ``DIR/controls/negative``."""
    return path / "controls" / kind


def control_folders(paths: Iterable[Path], kind: ControlKind) -> tuple[Path, ...]:
    """The controls of that kind that lie in run folders, or beside single ledgers of them."""
    folders = dict.fromkeys(path if path.is_dir() else path.parent for path in paths)
    found = (control_folder(folder, kind) for folder in folders)
    return tuple(folder for folder in found if (folder / "runlog.jsonl").is_file())
