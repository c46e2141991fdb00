"""What a test needs of its machine: absent, it skips the test, or fails one that must have it.

``ROUNDHOUSE_REQUIRE=all`` says that all was installed. Then every skip is a failure, whoever asked for it;
only what nobody can install, such as an instruction set, may be missing ("this machine has no …").
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

__all__ = ["everything_is_required", "need", "pytest_make_collect_report", "pytest_runtest_makereport"]

SWITCH = "ROUNDHOUSE_REQUIRE"
HARDWARE = "this machine has no"


def everything_is_required() -> bool:
    """Say whether a missing service, browser or client is a failure."""
    wanted = os.environ.get(SWITCH, "")
    if wanted not in {"", "all"}:
        raise pytest.UsageError(f"{SWITCH}={wanted!r} means nothing: it is 'all', or not set")
    return wanted == "all"


def need(what: str, present: bool, how: str) -> None:
    """Go on where ``what`` is ``present``; else skip, or fail where required, saying ``how`` to get it."""
    if present:
        return
    message = f"{what}: not here ({how})"
    if everything_is_required():
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def _as_failure(reason: object) -> str | None:
    """Return the failure that a skip for ``reason`` is, or nothing where it may stand."""
    text = str(reason[2]) if isinstance(reason, tuple) else str(reason)
    if not everything_is_required() or HARDWARE in text:
        return None
    return f"{text}\nskipped, yet {SWITCH}=all: what the tests need was meant to be installed"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the skip of a test into a failure where everything is required."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and (failure := _as_failure(report.longrepr)):
        report.outcome, report.longrepr = "failed", failure
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn the skip of a whole module into a failure where everything is required."""
    report = yield
    if report.skipped and (failure := _as_failure(report.longrepr)):
        report.outcome, report.longrepr = "failed", failure
    return report
