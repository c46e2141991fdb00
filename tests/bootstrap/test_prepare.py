"""What the first start does, what later starts leave out, and what an interruption costs."""

from __future__ import annotations

import platform
import threading
from pathlib import Path

import pytest

from router.installation.checkout import Checkout
from router.installation.prepare import prepare
from router.installation.programs import Finished
from router.installation.refusal import Refusal
from tests.bootstrap.scripted_programs import ScriptedPrograms, make_checkout

NO_NETWORK = Finished(
    1, "WARNING: Retrying ... NewConnectionError\nERROR: No matching distribution found for one\n"
)


def prepared(root: Path, **environ: str) -> tuple[Checkout, ScriptedPrograms]:
    run = ScriptedPrograms()
    checkout = make_checkout(root, run, **environ)
    prepare(checkout)
    return checkout, run


def test_the_first_start_makes_installs_and_builds(tmp_path: Path) -> None:
    _, run = prepared(tmp_path)

    assert run.calls("-m venv") == 1
    assert run.calls("--require-hashes --no-deps --no-compile --only-binary :all:") == 1
    assert run.calls("--no-build-isolation --no-deps --no-index") == 1
    assert run.calls("import local_backend._native") == 1


def test_the_second_start_runs_and_writes_nothing(tmp_path: Path) -> None:
    checkout, run = prepared(tmp_path)
    run.commands.clear()
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    prepare(checkout)

    assert run.commands == []
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_a_changed_native_source_is_built_again_and_nothing_else(tmp_path: Path) -> None:
    checkout, run = prepared(tmp_path)
    (tmp_path / "build" / "bootstrap").mkdir(parents=True)
    (tmp_path / "local_backend" / "native" / "a.cpp").write_text("int b;\n")
    run.commands.clear()
    prepare(checkout)

    assert run.calls("--editable") == 1
    assert run.calls("--require-hashes") == 0
    assert (tmp_path / "build" / "bootstrap").exists(), "only what changed is compiled again"


def test_a_renamed_native_source_is_noticed(tmp_path: Path) -> None:
    checkout, _ = prepared(tmp_path)
    native = tmp_path / "local_backend" / "native"
    (native / "a.cpp").rename(native / "b.cpp")

    assert not checkout.is_ready("native")


def test_another_compiler_starts_the_build_anew(tmp_path: Path) -> None:
    prepared(tmp_path)
    (tmp_path / "build" / "bootstrap").mkdir(parents=True)
    prepared(tmp_path, CXX="clang++")

    assert not (tmp_path / "build" / "bootstrap").exists()


def test_a_changed_lock_is_installed_into_the_same_environment(tmp_path: Path) -> None:
    checkout, run = prepared(tmp_path)
    run.commands.clear()
    checkout.requirements.write_text(checkout.requirements.read_text().replace("one==1.0", "one==1.1"))
    prepare(checkout)

    assert run.calls("-m venv") == 0
    assert run.calls("--require-hashes") == 1
    assert run.calls("--editable") == 1


def test_an_interrupted_installation_is_not_trusted(tmp_path: Path) -> None:
    run = ScriptedPrograms()
    checkout = make_checkout(tmp_path, run)

    def interrupt(line: str) -> None:
        if "--require-hashes" in line:
            raise KeyboardInterrupt

    run.during = interrupt
    with pytest.raises(KeyboardInterrupt):
        prepare(checkout)
    (checkout.venv / "half-written").touch()
    run.during = lambda line: None
    prepare(checkout)

    assert run.calls("-m venv") == 2
    assert not (checkout.venv / "half-written").exists()
    assert checkout.is_ready("packages")


def test_an_interrupted_build_is_taken_up_without_installing_again(tmp_path: Path) -> None:
    run = ScriptedPrograms({"--editable": Finished(1, "error: expected ';'\n")})
    checkout = make_checkout(tmp_path, run)
    with pytest.raises(Refusal):
        prepare(checkout)
    run.endings.clear()
    prepare(checkout)

    assert run.calls("--require-hashes") == 1
    assert run.calls("--editable") == 2
    assert checkout.is_ready("native")


def test_a_new_lock_without_a_network_leaves_the_old_environment_usable(tmp_path: Path) -> None:
    checkout, run = prepared(tmp_path)
    old = checkout.requirements.read_text()
    checkout.requirements.write_text(old.replace("one==1.0", "one==1.1"))
    run.endings["--require-hashes"] = NO_NETWORK
    with pytest.raises(Refusal):
        prepare(checkout)
    checkout.requirements.write_text(old)

    assert checkout.is_ready("packages")


def test_a_moved_checkout_gets_a_new_environment(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    prepared(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    _, run = prepared(tmp_path / "there")

    assert run.calls("-m venv") == 1


def test_an_environment_whose_python_is_gone_is_made_again(tmp_path: Path) -> None:
    checkout, run = prepared(tmp_path)
    checkout.python.unlink()
    prepare(checkout)

    assert run.calls("-m venv") == 2


def own_venv(root: Path, version: str) -> Path:
    """Make a virtual environment as a person would have made it for this checkout."""
    checkout = make_checkout(root, ScriptedPrograms())
    (checkout.site_packages / "pip").mkdir(parents=True)
    checkout.scripts.mkdir()
    checkout.python.touch()
    (checkout.venv / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {version}\n")
    (checkout.venv / "precious").touch()
    return checkout.venv


def test_an_environment_of_the_persons_own_is_used_where_it_fits(tmp_path: Path) -> None:
    venv = own_venv(tmp_path, platform.python_version())
    _, run = prepared(tmp_path)

    assert (venv / "precious").exists()
    assert run.calls("-m venv") == 0
    assert run.calls("--require-hashes") == 1


def test_a_failure_does_not_make_the_persons_environment_ours(tmp_path: Path) -> None:
    venv = own_venv(tmp_path, platform.python_version())
    run = ScriptedPrograms({"--require-hashes": Finished(1, "Installing collected packages: one\nkilled\n")})
    checkout = make_checkout(tmp_path, run)
    for _ in range(2):
        with pytest.raises(Refusal):
            prepare(checkout)

    assert (venv / "precious").exists()


def test_an_environment_of_the_persons_own_is_never_deleted(tmp_path: Path) -> None:
    venv = own_venv(tmp_path, "3.10.1")
    with pytest.raises(Refusal, match=r"was not made by bootstrap\.py"):
        prepared(tmp_path)

    assert (venv / "precious").exists()
    assert not (tmp_path / ".bootstrap" / "installing").exists()


def test_a_damaged_stamp_is_no_stamp(tmp_path: Path) -> None:
    checkout, _ = prepared(tmp_path)
    (checkout.venv / "roundhouse-native.json").write_text('{"lock": ')

    assert checkout.finished_key("native") == {}
    assert not checkout.is_ready("native")


def test_skipping_the_native_module_links_the_checkout_only(tmp_path: Path) -> None:
    checkout, run = prepared(tmp_path, ROUNDHOUSE_SKIP_NATIVE="1")

    assert run.calls("--editable") == 0
    assert (checkout.site_packages / "roundhouse-checkout.pth").read_text() == f"{tmp_path}\n"
    assert checkout.is_ready("native")


def test_a_build_after_skipping_removes_the_link(tmp_path: Path) -> None:
    prepared(tmp_path, ROUNDHOUSE_SKIP_NATIVE="1")
    checkout, run = prepared(tmp_path)

    assert run.calls("--editable") == 1
    assert not (checkout.site_packages / "roundhouse-checkout.pth").exists()


def test_two_starts_at_once_prepare_one_after_the_other(tmp_path: Path) -> None:
    run = ScriptedPrograms()
    first, second = make_checkout(tmp_path, run), make_checkout(tmp_path, run)
    waiting = threading.Event()
    other = threading.Thread(target=lambda: prepare(second))

    def start_the_other(line: str) -> None:
        if "--require-hashes" in line and not waiting.is_set():
            waiting.set()
            other.start()

    run.during = start_the_other
    prepare(first)
    other.join(timeout=10)

    assert not other.is_alive()
    assert run.calls("-m venv") == 1
    assert run.calls("--editable") == 1


def test_pip_is_not_led_elsewhere_by_the_environment(tmp_path: Path) -> None:
    _, run = prepared(tmp_path, PIP_TARGET="/elsewhere", PYTHONPATH="/elsewhere", PIP_INDEX_URL="kept")
    pip = next(
        environ
        for line, environ in zip(run.commands, run.environs, strict=True)
        if "--require-hashes" in line
    )

    assert "PIP_TARGET" not in pip
    assert "PYTHONPATH" not in pip
    assert pip["PIP_INDEX_URL"] == "kept"
    assert pip["PATH"].startswith(str(tmp_path / ".venv"))
