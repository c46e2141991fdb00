"""Runs a command that must not outlive whoever started it: ``python engine_guard.py -- COMMAND ...``.

For engines that are not ours and so do not watch their standard input. The end of this program's standard
input ends the command, softly first; on Linux the kernel is asked besides to kill the command if this
program is killed. A program of its own: it imports nothing of the gateway. Knows nothing of what it runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from types import FrameType
from typing import Final

__all__ = ["main"]

_GRACE_S: Final = 0.5
_PR_SET_PDEATHSIG: Final = 1  # <linux/prctl.h>


def main(arguments: list[str]) -> int:
    """Run the command after ``--`` and return its exit status."""
    command = arguments[arguments.index("--") + 1 :] if "--" in arguments else arguments
    if not command:
        sys.stderr.write("engine_guard: no command\n")
        return 2
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            # This program has one thread at this point, so nothing can hold a lock across the fork.
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
        )
    except OSError as error:
        sys.stderr.write(f"engine_guard: cannot start {command[0]}: {error.strerror or error}\n")
        return 127

    def stop(_number: int, _frame: FrameType | None) -> None:
        child.terminate()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    threading.Thread(target=_end_with_stdin, args=(child,), daemon=True).start()
    return child.wait()


def _end_with_stdin(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        # The bare descriptor: a thread inside sys.stdin holds a lock that the interpreter's exit wants.
        while os.read(0, 4096):
            pass
    child.terminate()
    try:
        child.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()


def _die_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
