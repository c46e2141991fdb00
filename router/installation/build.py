"""The native module's build, and the package's installation as a link to the checkout.

Knows pip's editable installation over scikit-build-core; not which compiler or why.
"""

from __future__ import annotations

import os
import re
import shutil

from router.installation.checkout import Checkout
from router.installation.compiler import choose_compiler
from router.installation.refusal import Refusal, explain

__all__ = ["build_native"]

_LINES_OF_AN_ERROR = 12


def _from_first_error(output: str) -> str:
    """Return what follows the compiler's or CMake's first error; pip's own words about it come much later."""
    lines = output.splitlines()
    starts = (
        i for i, line in enumerate(lines) if re.search(r":\d+: (fatal )?error|: error: |CMake Error", line)
    )
    first = next(starts, None)
    return output if first is None else "\n".join(lines[first : first + _LINES_OF_AN_ERROR])


def build_native(checkout: Checkout) -> None:
    """Build and install; with ``ROUNDHOUSE_SKIP_NATIVE`` only link the checkout's Python files.

    Raises
    ------
    Refusal
        No compiler, a failed compilation, or a module that cannot be loaded.

    """
    link = checkout.site_packages / "roundhouse-checkout.pth"
    key, before = checkout.native_key(), checkout.finished_key("native")
    if key["ROUNDHOUSE_SKIP_NATIVE"] not in {"", "0"}:
        link.write_text(f"{checkout.root}\n", encoding="utf-8")
        checkout.write_stamp("native", key)
        return
    environ = checkout.clean_environ() | choose_compiler(checkout)
    folder = checkout.root / "build" / "bootstrap"
    if {**before, "sources": key["sources"]} != key:
        # Another compiler, Python or binding library, or an unfinished build: CMake would mix old and new.
        shutil.rmtree(folder, ignore_errors=True)
    environ |= {"SKBUILD_BUILD_DIR": str(folder), "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count() or 1)}
    checkout.progress.say(
        f"building the engine with {environ.get('CXX', 'Visual C++')} (log: .bootstrap/build.log)"
    )
    pip = [
        str(checkout.python),
        "-m",
        "pip",
        "install",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "-v",
    ]
    built = checkout.run([*pip, "--editable", str(checkout.root)], checkout.log("build"), environ)
    if built.status:
        output = _from_first_error(built.output)
        raise explain(output, checkout.log("build"), "The engine could not be compiled.")
    link.unlink(missing_ok=True)
    load = [str(checkout.python), "-c", "import local_backend._native"]
    loaded = checkout.run(load, checkout.log("load"), checkout.clean_environ())
    if loaded.status:
        raise Refusal("The engine was built but cannot be loaded.", loaded.output)
    checkout.write_stamp("native", key)
