"""The switch of CI: what was to be installed must be there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = """
import pytest
from tests.availability import need

def test_needs_a_client():
    need("the client", False, "install it")

def test_needs_what_is_there():
    need("Python", True, "")

def test_skips_by_itself():
    pytest.skip("no browser")

def test_needs_hardware():
    pytest.skip("this machine has no avx512")
"""
CONFTEST = "from tests.availability import pytest_make_collect_report, pytest_runtest_makereport\n"


def run_suite(folder: Path, suite: str, **environ: str) -> str:
    """Run ``suite`` as a test run of its own; return what it printed."""
    (folder / "test_inner.py").write_text(suite)
    (folder / "conftest.py").write_text(CONFTEST)
    clean = {name: value for name, value in os.environ.items() if name != "ROUNDHOUSE_REQUIRE"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        "-rA",
        "--rootdir",
        str(folder),
        str(folder),
    ]
    finished = subprocess.run(
        command,
        cwd=folder,
        env=clean | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | environ,
        capture_output=True,
        text=True,
        check=False,
    )
    return finished.stdout + finished.stderr


def test_what_is_missing_is_skipped_with_the_way_to_get_it(tmp_path: Path) -> None:
    printed = run_suite(tmp_path, SUITE)

    assert "1 passed, 3 skipped" in printed
    assert "the client: not here (install it)" in printed


def test_where_all_is_required_only_hardware_may_be_missing(tmp_path: Path) -> None:
    printed = run_suite(tmp_path, SUITE, ROUNDHOUSE_REQUIRE="all")

    assert "2 failed, 1 passed, 1 skipped" in printed
    assert "no browser" in printed


def test_where_all_is_required_a_module_cannot_skip_itself(tmp_path: Path) -> None:
    suite = "import pytest\npytest.importorskip('a_module_that_nobody_has')\n"

    assert "1 skipped" in run_suite(tmp_path, suite)
    assert "1 error" in run_suite(tmp_path, suite, ROUNDHOUSE_REQUIRE="all")


def test_a_switch_that_means_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.availability import everything_is_required

    monkeypatch.setenv("ROUNDHOUSE_REQUIRE", "everything")

    with pytest.raises(pytest.UsageError, match="means nothing"):
        everything_is_required()
