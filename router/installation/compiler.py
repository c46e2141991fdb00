"""Which C++ compiler builds the native module: the machine's own, else the pinned zig.

Knows how to tell whether a compiler works; not what is built with it.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

from router.installation.checkout import Checkout
from router.installation.packages import install_sections
from router.installation.refusal import Refusal

__all__ = ["choose_compiler", "fault_of", "find_compiler"]

_OLDEST = {"gcc": 11, "clang": 14}
_NAMES = (
    "c++",
    "g++",
    "clang++",
    *(f"g++-{major}" for major in range(15, 10, -1)),
    *(f"clang++-{major}" for major in range(21, 13, -1)),
)
_PROBE = "#include <span>\n#include <vector>\nint first(std::span<int> values) { return values[0]; }\n"


def fault_of(banner: str) -> str | None:
    """Return what is wrong with a compiler by its ``--version``, or nothing."""
    found = re.search(r"clang version (?P<clang>\d+)|\) (?P<gcc>\d+)\.\d+", banner)
    if found is None:
        return "is neither g++ nor clang"
    family, major = next((name, int(value)) for name, value in found.groupdict().items() if value)
    return f"is {family} {major}" if major < _OLDEST[family] else None


def find_compiler(
    checkout: Checkout, which: Callable[[str], str | None] = shutil.which
) -> tuple[str | None, tuple[str, ...]]:
    """Return the machine's compiler to use or nothing, and what is wrong with those found before it.

    One is usable where it is new enough and really links a C++20 library: its headers may be missing.
    """
    wrong: list[str] = []
    log, environ = checkout.log("compiler"), checkout.clean_environ()
    for name in (environ["CXX"],) if environ.get("CXX") else _NAMES:
        words = shlex.split(name)
        if not which(words[0]):
            continue
        fault = fault_of(checkout.run([*words, "--version"], log, environ).output)
        if fault is None:
            source = checkout.state / "probe.cpp"
            source.write_text(_PROBE, encoding="utf-8")
            flags = ["-std=c++20", "-shared", "-fPIC", str(source), "-o", str(checkout.state / "probe.so")]
            if checkout.run([*words, *flags], log, environ).status == 0:
                return name, tuple(wrong)
            fault = "cannot build a C++20 library"
        wrong.append(f"{name} {fault}")
    return None, tuple(wrong)


def _zig_environ(checkout: Checkout) -> dict[str, str]:
    """Return what makes CMake use the zig in ``.venv``: wrapper scripts, since it wants names of one word."""
    zig = shlex.quote(str(checkout.site_packages / "ziglang" / "zig"))
    folder = checkout.state / "zig"
    folder.mkdir(exist_ok=True)
    # The baseline processor: sources for newer ones carry flags of their own and are chosen at run time.
    commands = {"cc": "cc -mcpu=baseline", "c++": "c++ -mcpu=baseline", "ar": "ar", "ranlib": "ranlib"}
    paths: dict[str, Path] = {}
    for name, words in commands.items():
        paths[name] = folder / name
        paths[name].write_text(f'#!/bin/sh\nexec {zig} {words} "$@"\n', encoding="utf-8")
        paths[name].chmod(0o755)
    defines = f"CMAKE_AR={paths['ar']};CMAKE_RANLIB={paths['ranlib']}"
    return {"CC": str(paths["cc"]), "CXX": str(paths["c++"]), "SKBUILD_CMAKE_DEFINE": defines}


def choose_compiler(checkout: Checkout) -> dict[str, str]:
    """Return the variables that make CMake use a compiler that works; zig is installed where needed.

    Raises
    ------
    Refusal
        Python's headers are missing, the choice means nothing, or no compiler works and zig is not wanted.

    """
    if sys.platform == "win32":
        return {}  # CMake finds Visual Studio's compiler itself, and says so where there is none
    headers = Path(sysconfig.get_path("include"), "Python.h")
    if not headers.exists():
        raise Refusal(
            f"Python's own headers are missing ({headers}): on Debian or Ubuntu run "
            "`apt install python3-dev`, then start again."
        )
    wanted = checkout.environ.get("ROUNDHOUSE_COMPILER", "")
    if wanted not in {"", "zig", "system"}:
        raise Refusal(f"ROUNDHOUSE_COMPILER is {wanted!r}: it is 'zig' or 'system', or not set.")
    name, wrong = (None, ()) if wanted == "zig" else find_compiler(checkout)
    if name:
        return {"CXX": name}
    found = "; ".join(wrong) or "no other was found"
    if wanted == "system":
        raise Refusal(f"No C++ compiler of this machine can be used (g++ 11 or clang 14 is needed): {found}.")
    checkout.progress.say(f"installing the zig compiler ({'as asked' if wanted == 'zig' else found})")
    install_sections(checkout, "compiler", ("compiler",))
    return _zig_environ(checkout)
