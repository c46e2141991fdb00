"""bootstrap.py as a person meets it: old Pythons, help, and arguments passed on."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from router.installation.checkout import Checkout
from router.installation.start import command_for

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def front_door() -> ModuleType:
    spec = importlib.util.spec_from_file_location("front_door", ROOT / "bootstrap.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("minor", range(4, 11))
def test_old_pythons_can_parse_it(minor: int) -> None:
    ast.parse((ROOT / "bootstrap.py").read_text(), feature_version=(3, minor))


@pytest.mark.parametrize("version", [(2, 7, 18), (3, 6, 15), (3, 10, 13)])
def test_an_old_python_is_told_what_to_install(front_door: ModuleType, version: tuple[int, ...]) -> None:
    sentence = front_door.too_old(version, "")

    assert sentence.startswith(
        f"Roundhouse needs Python 3.11 or newer, and this is {version[0]}.{version[1]}:"
    )
    assert "install Python 3.11 or newer" in sentence


def test_an_old_python_is_told_of_a_newer_one(front_door: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "python3.12").touch()

    assert "run this with python3.12" in front_door.too_old((3, 9, 1), os.pathsep.join(["", str(tmp_path)]))


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 13, 5), (4, 0, 0)])
def test_a_new_python_goes_on(front_door: ModuleType, version: tuple[int, ...]) -> None:
    assert front_door.too_old(version, "") is None


def run_front_door(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "bootstrap.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)


def test_its_help_explains_the_first_start_and_the_commands() -> None:
    finished = run_front_door("--help")

    assert finished.returncode == 0
    for word in ("serve", "test", "engine", "requirements.lock", "no network", "ROUNDHOUSE_COMPILER"):
        assert word in finished.stdout


def test_without_a_command_it_shows_its_help_and_fails() -> None:
    finished = run_front_door()

    assert finished.returncode == 2
    assert finished.stdout.startswith("usage:")


def test_arguments_reach_the_command_as_they_were_typed() -> None:
    checkout = Checkout(ROOT, {})

    assert command_for(checkout, ["serve", "--help"])[1:] == ["-P", "-m", "router", "serve", "--help"]
    assert command_for(checkout, ["engine", "plan", "a b.gguf"])[-2:] == ["plan", "a b.gguf"]
    assert command_for(checkout, ["test", "-k", "x or y"])[1:] == ["-m", "pytest", "-k", "x or y"]
