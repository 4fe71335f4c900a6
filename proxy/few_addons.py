"""mitmproxy's master and the few of its addons that are needed here, without the import of all the others.

``mitmproxy.addons``, which the master imports, imports every addon there is, a web application and an LDAP
client among them: more work than the rest of the start together. Its modules do not need it.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import mitmproxy

if TYPE_CHECKING:
    from mitmproxy.addons import core, disable_h2c, next_layer, proxyserver, tlsconfig
    from mitmproxy.master import Master

__all__ = ["Master", "core", "disable_h2c", "next_layer", "proxyserver", "tlsconfig"]

_PACKAGE = "mitmproxy.addons"


def _load() -> None:
    for name in ("core", "disable_h2c", "next_layer", "proxyserver", "tlsconfig"):
        globals()[name] = importlib.import_module(f"{_PACKAGE}.{name}")
    globals()["Master"] = importlib.import_module("mitmproxy.master").Master


def _load_without_the_others() -> None:
    # A package that is only its folder stands in for the real one, and is gone again before anyone asks.
    stand_in = ModuleType(_PACKAGE)
    stand_in.__path__ = [str(Path(folder) / "addons") for folder in mitmproxy.__path__]
    sys.modules[_PACKAGE] = stand_in
    try:
        _load()
    finally:
        del sys.modules[_PACKAGE]


if _PACKAGE in sys.modules:
    _load()
else:
    _load_without_the_others()
