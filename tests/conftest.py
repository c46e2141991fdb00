"""Fixtures that every test may use; few on purpose."""

from __future__ import annotations

import pytest

from tests.availability import pytest_make_collect_report, pytest_runtest_makereport

__all__ = ["anyio_backend", "pytest_make_collect_report", "pytest_runtest_makereport"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
