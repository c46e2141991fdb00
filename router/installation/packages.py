"""The virtual environment and the packages in it, exactly as requirements.lock pins them.

Knows venv and pip; not the native module.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import sys
from collections.abc import Callable

from router.installation.checkout import Checkout
from router.installation.refusal import Refusal, explain

__all__ = ["check_venv_module", "install_packages", "install_sections", "make_venv"]

_SPACE_NEEDED = 1_200_000_000  # bytes: the packages unpacked, the build, and what pip holds meanwhile


def check_venv_module(find_spec: Callable[[str], object | None] = importlib.util.find_spec) -> None:
    """Refuse a Python without its venv module; Debian keeps the needed part in a package of its own."""
    if find_spec("venv") is None or find_spec("ensurepip") is None:
        raise Refusal(
            "This Python cannot make a virtual environment, because its venv module is missing: on Debian or "
            "Ubuntu run `apt install python3-venv`, then start again."
        )


def make_venv(checkout: Checkout) -> None:
    """Make ``.venv`` anew with the Python that runs this.

    Raises
    ------
    Refusal
        The venv module is missing, or the disk is too full.

    """
    check_venv_module()
    free = shutil.disk_usage(checkout.root).free
    if free < _SPACE_NEEDED:
        raise Refusal(
            f"The disk is too full: the first start needs about {_SPACE_NEEDED / 1e9:.1f} GB in "
            f"{checkout.root}, and {free / 1e9:.2f} GB are free."
        )
    shutil.rmtree(checkout.venv, ignore_errors=True)
    base = (
        getattr(sys, "_base_executable", None) or sys.executable
    )  # not the one inside an active environment
    log = checkout.log("venv")
    made = checkout.run([base, "-m", "venv", str(checkout.venv)], log, checkout.clean_environ())
    if made.status:
        raise explain(made.output, log, "The virtual environment could not be made.")


def install_sections(checkout: Checkout, name: str, sections: tuple[str, ...]) -> None:
    """Install ``sections`` of requirements.lock; ``name`` is what their log is called.

    Raises
    ------
    Refusal
        No network, a full disk, a hash that differs, or whatever else pip says.

    """
    text = "".join(checkout.lock_sections()[section] for section in sections)
    requirements = checkout.state / f"{name}.txt"
    requirements.write_text(text, encoding="utf-8")
    total, seen = len(re.findall(r"^\w", text, re.MULTILINE)), 0

    def on_line(line: str) -> None:
        nonlocal seen
        if line.startswith(("Collecting ", "Processing ", "Ignoring ", "Requirement already")):
            seen += 1
            checkout.progress.count(f"{seen:3d} of {total} packages")
        elif line.startswith("Installing collected packages"):
            checkout.progress.say("everything is here: unpacking")

    pip = [str(checkout.python), "-m", "pip", "install", "--require-hashes", "--no-deps", "--no-compile"]
    options = ["--only-binary", ":all:", "--progress-bar", "off", "--retries", "2", "-r", str(requirements)]
    log = checkout.log(name)
    installed = checkout.run([*pip, *options], log, checkout.clean_environ(), on_line)
    if installed.status:
        if "Installing collected packages" not in installed.output and checkout.finished_key("packages"):
            # pip gave up before it touched anything: what was there still works
            checkout.installing.unlink(missing_ok=True)
        raise explain(installed.output, log, "The packages could not be installed.")


def _is_foreign(checkout: Checkout) -> bool:
    """Say whether a person made the ``.venv`` that is there: then it is not ours to delete."""
    ours = checkout.finished_key("packages") or checkout.installing.exists()
    return checkout.venv.exists() and not ours


def _check_foreign_venv(checkout: Checkout) -> None:
    settings = checkout.venv / "pyvenv.cfg"
    text = settings.read_text(encoding="utf-8") if settings.exists() else ""
    made_for = re.search(r"^version\S* *= *([\d.]+)", text, re.MULTILINE)
    fits = made_for is not None and made_for[1] == platform.python_version() and checkout.python.exists()
    if not fits or not (checkout.site_packages / "pip").exists():
        raise Refusal(
            f"{checkout.venv} was not made by bootstrap.py and does not fit (it needs Python "
            f"{platform.python_version()} and pip): move it away, then start again."
        )


def install_packages(checkout: Checkout) -> None:
    """Install the packages and the demo model; in a new ``.venv`` where the one there does not fit.

    A file marks the installation as unfinished: after an interruption nothing half-installed is trusted.

    Raises
    ------
    Refusal
        It cannot be done, or somebody else's ``.venv`` is in the way.

    """
    key, before = checkout.packages_key(), checkout.finished_key("packages")
    if _is_foreign(checkout):
        _check_foreign_venv(checkout)
        keep = True
    else:
        if checkout.installing.exists():
            checkout.progress.say("the last installation was interrupted: starting it anew")
        keep = checkout.usable() and {**before, "lock": key["lock"]} == key
        checkout.installing.touch()
    if not keep:
        checkout.progress.say(f"making .venv with Python {platform.python_version()}")
        make_venv(checkout)
    checkout.progress.say("installing the packages of requirements.lock (log: .bootstrap/packages.log)")
    install_sections(checkout, "packages", ("packages", "model"))
    checkout.progress.say("compiling their Python files")
    compile_all = [str(checkout.python), "-m", "compileall", "-q", "-j", "0", str(checkout.site_packages)]
    checkout.run(compile_all, checkout.log("compileall"), checkout.clean_environ())
    checkout.write_stamp("packages", key)
    checkout.installing.unlink(missing_ok=True)
