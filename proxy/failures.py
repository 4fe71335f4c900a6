"""Errors that are the user's to mend: one line that says what to do, exit code 2."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable


def _known() -> tuple[type[Exception], ...]:
    from configs import ConfigError
    from harness.adapter import HarnessError
    from harness.task import TaskError
    from ledger.decisions import LedgerError
    from ledger.manifest import ManifestError
    from ledger.reading import ReadingError
    from proxy.server import ServerError
    from proxy.service import ServiceError
    from proxy.upstream import UpstreamError
    from proxy.usage import UsageError
    from scheduler.dialect import DialectError
    from scheduler.profile import ProfileError
    from scoring.plan import BadPlan

    return (
        BadPlan,
        ConfigError,
        DialectError,
        HarnessError,
        LedgerError,
        ManifestError,
        ProfileError,
        ReadingError,
        ServerError,
        ServiceError,
        TaskError,
        UpstreamError,
        UsageError,
    )


def friendly[**P](command: Callable[P, None]) -> Callable[P, None]:
    """A command whose known errors end as one line on standard error and exit code 2."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except Exception as error:
            if not isinstance(error, _known()):
                raise
            print(f"chaosproxy: {error}", file=sys.stderr)  # noqa: T201
            raise SystemExit(2) from None

    return wrapped
