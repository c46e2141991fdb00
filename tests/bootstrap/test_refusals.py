"""Each way in which a start can fail is told in one sentence, with a status other than 0."""

from __future__ import annotations

import errno
import os
import shutil
import sysconfig
from pathlib import Path

import pytest

from router.installation import packages
from router.installation.build import build_native
from router.installation.prepare import prepare
from router.installation.programs import Finished
from router.installation.refusal import Refusal
from router.installation.start import start
from tests.bootstrap.scripted_programs import ScriptedPrograms, make_checkout

UNREACHABLE = """WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError(...)'
ERROR: Could not find a version that satisfies the requirement one==1.0 (from versions: none)
ERROR: No matching distribution found for one==1.0
"""
OTHER_HASH = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n    one==1.0:\n"
OS_ERROR = "ERROR: Could not install packages due to an OSError: "
PIP_SAYS = {
    "network": (UNREACHABLE, "The package index cannot be reached"),
    "disk": (f"{OS_ERROR}[Errno 28] No space left on device\n", "The disk is full"),
    "hash": (OTHER_HASH, "not the one that requirements.lock pins"),
    "rights": (f"{OS_ERROR}[Errno 13] Permission denied: 'x'\n", "cannot be written"),
    "wheel": ("ERROR: No matching distribution found for one==1.0\n", "has no wheel for this Python"),
}


def refusal_of(root: Path, run: ScriptedPrograms, **environ: str) -> str:
    """Prepare; return what a person reads."""
    checkout = make_checkout(root, run, **environ)
    with pytest.raises(Refusal) as caught:
        prepare(checkout)
    return str(caught.value)


@pytest.mark.parametrize(("output", "sentence"), PIP_SAYS.values(), ids=PIP_SAYS)
def test_what_pip_says_becomes_one_sentence(tmp_path: Path, output: str, sentence: str) -> None:
    told = refusal_of(tmp_path, ScriptedPrograms({"--require-hashes": Finished(1, output)}))

    assert sentence in told
    assert "\n" not in told
    assert str(tmp_path / ".bootstrap" / "packages.log") in told


def test_what_nobody_foresaw_shows_the_last_lines(tmp_path: Path) -> None:
    output = "".join(f"line {n}\n" for n in range(40))
    told = refusal_of(tmp_path, ScriptedPrograms({"--require-hashes": Finished(1, output)}))

    assert told.startswith("The packages could not be installed.")
    assert "    line 39" in told
    assert "line 24" not in told


def test_a_failed_compilation_shows_the_log_and_the_first_error(tmp_path: Path) -> None:
    output = "[1/9] fine\na.cpp:3:7: error: expected ';'\n" + "pip has much to say\n" * 40
    told = refusal_of(tmp_path, ScriptedPrograms({"--editable": Finished(1, output)}))

    assert told.startswith(
        f"The engine could not be compiled. The log: {tmp_path / '.bootstrap' / 'build.log'}"
    )
    assert "    a.cpp:3:7: error: expected ';'" in told
    assert "[1/9] fine" not in told


def test_a_module_that_cannot_be_loaded_is_not_called_built(tmp_path: Path) -> None:
    run = ScriptedPrograms(
        {"import local_backend._native": Finished(1, "ImportError: undefined symbol: x\n")}
    )
    checkout = make_checkout(tmp_path, run)
    with pytest.raises(Refusal, match="cannot be loaded"):
        prepare(checkout)

    assert not checkout.is_ready("native")


def test_a_missing_venv_module_names_the_package() -> None:
    with pytest.raises(Refusal, match="apt install python3-venv"):
        packages.check_venv_module(lambda name: None if name == "ensurepip" else object())


def test_too_little_space_is_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 9 * 10**8, 10**8))
    run = ScriptedPrograms()
    told = refusal_of(tmp_path, run)

    assert "The disk is too full" in told
    assert "0.10 GB are free" in told
    assert run.commands == []


def test_missing_headers_name_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "include"))
    checkout = make_checkout(tmp_path, ScriptedPrograms())
    with pytest.raises(Refusal, match="apt install python3-dev"):
        build_native(checkout)


def test_a_checkout_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *args: object, **kwargs: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    checkout = make_checkout(tmp_path, ScriptedPrograms())
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(Refusal, match="cannot be written \\(Read-only file system\\)"):
        prepare(checkout)


def test_a_refusal_goes_to_standard_error_with_a_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ScriptedPrograms({"--require-hashes": Finished(1, UNREACHABLE)})
    make_checkout(tmp_path, run)
    status = start(str(tmp_path), ["serve"], {}, run)
    printed = capsys.readouterr()

    assert status == 1
    assert printed.out == ""
    assert printed.err.splitlines()[-1].startswith("bootstrap: The package index cannot be reached")


def test_a_full_disk_is_told_wherever_it_is_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def full(line: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run = ScriptedPrograms()
    run.during = full
    make_checkout(tmp_path, run)

    assert start(str(tmp_path), ["serve"], {}, run) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("bootstrap: The disk is full")


def test_an_interruption_ends_with_the_status_of_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    run = ScriptedPrograms()
    run.during = interrupt
    make_checkout(tmp_path, run)

    assert start(str(tmp_path), ["serve"], {}, run) == 130
    assert "interrupted" in capsys.readouterr().err
