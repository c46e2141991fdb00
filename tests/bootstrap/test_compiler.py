"""Which compiler is taken, and what is said of those that are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from router.installation.checkout import Checkout
from router.installation.compiler import choose_compiler, fault_of, find_compiler
from router.installation.programs import Finished
from router.installation.refusal import Refusal
from tests.bootstrap.scripted_programs import ScriptedPrograms, make_checkout

OLD_GCC = Finished(0, "g++ (Ubuntu 9.4.0-1ubuntu1~20.04.2) 9.4.0\n")
NEW_CLANG = Finished(0, "Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu\n")


def checkout_with(
    root: Path, endings: dict[str, Finished], **environ: str
) -> tuple[Checkout, ScriptedPrograms]:
    run = ScriptedPrograms(endings)
    checkout = make_checkout(root, run, **environ)
    checkout.state.mkdir()
    return checkout, run


@pytest.mark.parametrize(
    ("banner", "fault"),
    [
        ("g++ (Debian 12.2.0-14) 12.2.0\nCopyright (C) 2022", None),
        ("c++ (GCC) 11.5.0 20240719 (Red Hat 11.5.0-2)", None),
        ("g++ (Ubuntu 9.4.0-1ubuntu1~20.04.2) 9.4.0", "is gcc 9"),
        ("Ubuntu clang version 14.0.0-1ubuntu1.1", None),
        ("Apple clang version 15.0.0 (clang-1500.3.9.4)", None),
        ("clang version 13.0.1", "is clang 13"),
        ("tcc version 0.9.27", "is neither g++ nor clang"),
        ("", "is neither g++ nor clang"),
    ],
)
def test_a_banner_tells_family_and_age(banner: str, fault: str | None) -> None:
    assert fault_of(banner) == fault


def test_the_first_that_works_is_taken(tmp_path: Path) -> None:
    checkout, _ = checkout_with(tmp_path, {"g++ --version": OLD_GCC, "clang++ --version": NEW_CLANG})
    found = find_compiler(checkout, {"g++": "/g++", "clang++": "/clang++"}.get)

    assert found == ("clang++", ("g++ is gcc 9",))


def test_a_compiler_without_its_headers_is_passed_over(tmp_path: Path) -> None:
    checkout, _ = checkout_with(
        tmp_path, {"c++ -std=c++20": Finished(1, "fatal error: span: No such file\n")}
    )
    found = find_compiler(checkout, {"c++": "/c++"}.get)

    assert found == (None, ("c++ cannot build a C++20 library",))


def test_the_compiler_asked_for_is_the_only_one_tried(tmp_path: Path) -> None:
    checkout, run = checkout_with(tmp_path, {"my-gcc": OLD_GCC}, CXX="ccache my-gcc")
    found = find_compiler(checkout, lambda name: f"/{name}")

    assert found == (None, ("ccache my-gcc is gcc 9",))
    assert run.commands == ["ccache my-gcc --version"]


def test_without_a_compiler_zig_is_installed_with_wrappers_of_one_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    checkout, run = checkout_with(tmp_path, {}, ROUNDHOUSE_COMPILER="zig")
    environ = choose_compiler(checkout)

    assert (checkout.state / "compiler.txt").read_text().split()[0] == "ziglang==4.0"
    assert run.calls("--require-hashes") == 1
    for name in ("CC", "CXX"):
        assert " " not in environ[name].removeprefix(str(tmp_path))
        assert os.access(environ[name], os.X_OK)
    assert Path(environ["CXX"]).read_text().startswith("#!/bin/sh\nexec ")
    assert "zig c++" in Path(environ["CXX"]).read_text()
    assert f"CMAKE_AR={checkout.state / 'zig' / 'ar'};" in environ["SKBUILD_CMAKE_DEFINE"]
    assert "CMAKE_RANLIB=" in environ["SKBUILD_CMAKE_DEFINE"]


def test_where_a_compiler_works_zig_is_not_installed(tmp_path: Path) -> None:
    checkout, run = checkout_with(tmp_path, {}, CXX="sh")

    assert choose_compiler(checkout) == {"CXX": "sh"}
    assert run.calls("--require-hashes") == 0


def test_only_the_machines_own_compiler_means_only_that(tmp_path: Path) -> None:
    checkout, run = checkout_with(tmp_path, {"--version": OLD_GCC}, CXX="sh", ROUNDHOUSE_COMPILER="system")
    with pytest.raises(Refusal, match=r"g\+\+ 11 or clang 14 is needed\): sh is gcc 9"):
        choose_compiler(checkout)

    assert run.calls("--require-hashes") == 0


def test_a_word_that_is_no_compiler_choice_is_refused(tmp_path: Path) -> None:
    checkout, _ = checkout_with(tmp_path, {}, ROUNDHOUSE_COMPILER="Zig ")
    with pytest.raises(Refusal, match="'zig' or 'system'"):
        choose_compiler(checkout)
