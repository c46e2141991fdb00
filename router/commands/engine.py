"""``roundhouse engine …``: hand over to the engine's own command line, in a process of its own.

The gateway never imports the engine; the two meet over HTTP, and here over ``python -m``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

__all__ = ["run"]


def run(words: Sequence[str]) -> int:
    """Run ``python -m local_backend`` with ``words``; its exit code is ours."""
    command = [sys.executable, "-m", "local_backend", *words]
    if os.name == "posix":
        # Replacing this process keeps signals, terminal and exit code exactly as the engine's own.
        sys.stdout.flush()
        os.execv(sys.executable, command)  # noqa: S606 - no shell is the point
    return subprocess.run(command, check=False).returncode
