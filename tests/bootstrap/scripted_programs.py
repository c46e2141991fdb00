"""A checkout in a temporary folder, and programs that are played instead of run."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from router.installation.checkout import Checkout
from router.installation.programs import Finished
from router.installation.progress import Progress

__all__ = ["LOCK", "ScriptedPrograms", "make_checkout"]

LOCK = """# head

# --- packages ---
one==1.0 \\
    --hash=sha256:11
two==2.0 ; sys_platform == 'win32' \\
    --hash=sha256:22

# --- model: weights ---
weights==3.0 \\
    --hash=sha256:33

# --- compiler: only where there is none ---
ziglang==4.0 \\
    --hash=sha256:44
"""
GCC = "c++ (Debian 12.2.0-14) 12.2.0\n"


class ScriptedPrograms:
    """Plays programs: makes what they would make, and remembers how they were called.

    ``endings`` maps a part of a command line to how it ends; the first that matches counts.
    Everything else succeeds.
    """

    def __init__(self, endings: Mapping[str, Finished] | None = None) -> None:
        self.endings = dict(endings or {})
        self.commands: list[str] = []
        self.environs: list[Mapping[str, str]] = []
        self.during: Callable[[str], None] = lambda line: None

    def __call__(
        self,
        command: Sequence[str],
        log: Path,
        environ: Mapping[str, str],
        on_line: Callable[[str], None] | None = None,
    ) -> Finished:
        line = " ".join(command)
        self.commands.append(line)
        self.environs.append(environ)
        self.during(line)
        ending = next((end for part, end in self.endings.items() if f" {part}" in f" {line}"), None)
        if ending is None:
            ending = Finished(0, GCC if "--version" in line else "Installing collected packages: one\n")
        if ending.status == 0 and "-m venv" in line:
            python = Path(command[-1]) / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.touch()
            next((Path(command[-1]) / "lib").glob("*/site-packages"), self._site_packages(command[-1])).mkdir(
                parents=True, exist_ok=True
            )
        log.write_text(ending.output)
        for output_line in ending.output.splitlines(keepends=True):
            if on_line:
                on_line(output_line)
        return ending

    def calls(self, part: str) -> int:
        """Return how many commands contained ``part``."""
        return sum(part in line for line in self.commands)

    @staticmethod
    def _site_packages(venv: str) -> Path:
        return Checkout(Path(venv).parent, {}).site_packages


def make_checkout(root: Path, run: ScriptedPrograms, **environ: str) -> Checkout:
    """Write the few files of a checkout that its preparation reads."""
    (root / "local_backend" / "native").mkdir(parents=True, exist_ok=True)
    (root / "local_backend" / "native" / "a.cpp").write_text("int a;\n")
    (root / "pyproject.toml").write_text("[project]\n")
    (root / "requirements.lock").write_text(LOCK)
    return Checkout(root, {"PATH": "/usr/bin", **environ}, run, Progress(io.StringIO()))
