"""One checkout: its places, what its installation depends on, and what is finished.

Knows paths, hashes and stamps; runs nothing itself.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import platform
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from router.installation.programs import Runner, run_logged
from router.installation.progress import Progress
from router.installation.refusal import Refusal

__all__ = ["Checkout", "Stage"]

Stage = Literal["packages", "native"]

_MISLEADING = ("PYTHONHOME", "PYTHONPATH", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON")
_BUILD_VARIABLES = ("CXX", "CXXFLAGS", "ROUNDHOUSE_COMPILER", "ROUNDHOUSE_SKIP_NATIVE")
_WINDOWS = sys.platform == "win32"


class Checkout:
    """Where everything of one checkout lies, with the environment and the runner its programs get."""

    def __init__(
        self,
        root: Path,
        environ: Mapping[str, str],
        run: Runner = run_logged,
        progress: Progress | None = None,
    ) -> None:
        self.root = root.resolve()
        self.environ = environ
        self.run = run
        self.progress = progress or Progress()
        self.venv = self.root / ".venv"
        self.state = self.root / ".bootstrap"
        self.requirements = self.root / "requirements.lock"
        self.installing = self.state / "installing"  # exists while an installation is unfinished
        self.scripts = self.venv / ("Scripts" if _WINDOWS else "bin")
        self.python = self.scripts / ("python.exe" if _WINDOWS else "python")
        library = "Lib" if _WINDOWS else "lib/python{}.{}".format(*sys.version_info[:2])
        self.site_packages = self.venv / library / "site-packages"

    def log(self, name: str) -> Path:
        """Return the path of the log called ``name``."""
        return self.state / f"{name}.log"

    def clean_environ(self) -> dict[str, str]:
        """Return the environment for pip and builds: ``.venv`` first, nothing that leads them elsewhere."""
        clean = {name: value for name, value in self.environ.items() if name not in _MISLEADING}
        clean |= {"PIP_USER": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        clean["PATH"] = os.pathsep.join((str(self.scripts), clean.get("PATH", os.defpath)))
        return clean

    def lock_sections(self) -> dict[str, str]:
        """Return the sections of requirements.lock by the first word of their headings."""
        text = self.requirements.read_text(encoding="utf-8")
        parts = re.split(r"^# --- (\w+).*---$", text, flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2], strict=True))

    def packages_key(self) -> dict[str, str]:
        """Return what an installation of the packages depends on."""
        python = (platform.python_implementation(), platform.python_version(), sysconfig.get_platform())
        lock = hashlib.sha256(self.requirements.read_bytes()).hexdigest()
        return {"lock": lock, "python": " ".join(python), "root": str(self.root)}

    def native_key(self) -> dict[str, str]:
        """Return what a build depends on: the packages, the sources, and what the environment asks for."""
        sources = [path for path in (self.root / "local_backend" / "native").rglob("*") if path.is_file()]
        digest = hashlib.sha256()
        for path in (self.root / "pyproject.toml", *sorted(sources)):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(self.root).as_posix()} {len(content)}\n".encode() + content)
        asked = {name: self.environ.get(name, "") for name in _BUILD_VARIABLES}
        return {**self.packages_key(), **asked, "sources": digest.hexdigest()}

    def key(self, stage: Stage) -> dict[str, str]:
        """Return what ``stage`` depends on, as it is now."""
        return self.packages_key() if stage == "packages" else self.native_key()

    def finished_key(self, stage: Stage) -> dict[str, str]:
        """Return what ``stage`` was last finished with; empty where it never was."""
        try:
            stamp = json.loads(self._stamp(stage).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return stamp if isinstance(stamp, dict) else {}

    def write_stamp(self, stage: Stage, key: dict[str, str]) -> None:
        """Record that ``stage`` is finished; the rename makes the record whole or absent."""
        unfinished = self._stamp(stage).with_suffix(".new")
        unfinished.write_text(json.dumps(key, indent=1), encoding="utf-8")
        unfinished.replace(self._stamp(stage))

    def is_ready(self, stage: Stage) -> bool:
        """Say whether ``stage`` needs nothing done; writes nothing and runs nothing."""
        return self.usable() and self.finished_key(stage) == self.key(stage)

    def usable(self) -> bool:
        """Say whether there is a ``.venv`` with its Python, and no installation in it was interrupted."""
        return self.python.exists() and not self.installing.exists()

    @contextlib.contextmanager
    def only_one_start(self) -> Iterator[None]:
        """Hold the checkout's lock; a second start waits for the first.

        Programs run meanwhile inherit it: where this process is killed, the next start waits for them too.

        Raises
        ------
        Refusal
            The checkout cannot be written.

        """
        try:
            self.state.mkdir(exist_ok=True)
            file = (self.state / "lock").open("a")
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            raise Refusal(
                f"{self.root} cannot be written ({error.strerror}): start this as its owner, or from a "
                "checkout that can be written."
            ) from None
        with file:
            if sys.platform != "win32":  # there, two first starts at once are not kept apart
                import fcntl

                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self.progress.say("another start prepares this checkout: waiting for it")
                    fcntl.flock(file, fcntl.LOCK_EX)
                os.set_inheritable(file.fileno(), True)
            yield

    def _stamp(self, stage: Stage) -> Path:
        return self.venv / f"roundhouse-{stage}.json"
