"""Runs a program with its output in a log.

Knows processes and files; not what the program is for.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["Finished", "Runner", "run_logged"]


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended: its exit status, and everything it printed."""

    status: int
    output: str


class Runner(Protocol):
    """Runs programs; tests hand in one that plays them."""

    def __call__(
        self,
        command: Sequence[str],
        log: Path,
        environ: Mapping[str, str],
        on_line: Callable[[str], None] | None = None,
    ) -> Finished:
        """Run ``command`` to its end; ``on_line`` gets each line of its output as it comes."""


def run_logged(
    command: Sequence[str],
    log: Path,
    environ: Mapping[str, str],
    on_line: Callable[[str], None] | None = None,
) -> Finished:
    """Run ``command`` with its output, standard error included, in the file ``log``."""
    lines = []
    with (
        log.open("w", buffering=1, encoding="utf-8", errors="replace") as file,  # whole lines, to be followed
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environ,
            encoding="utf-8",
            errors="replace",
            close_fds=False,  # what was made inheritable, such as a held lock, is meant to be inherited
        ) as process,
    ):
        for line in process.stdout or ():
            file.write(line)
            lines.append(line)
            if on_line:
                on_line(line)
    return Finished(process.returncode, "".join(lines))
