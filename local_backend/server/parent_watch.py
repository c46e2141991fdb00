"""Ends this process with the one that started it, so that no orphan holds memory. Knows nothing else."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading

__all__ = ["end_with_stdin"]

_log = logging.getLogger(__name__)

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1


def end_with_stdin(grace_s: float, descriptor: int = 0) -> None:
    """Ask this process to stop when standard input ends, and end it hard ``grace_s`` later.

    The parent holds the other end of the pipe; the system closes it however the parent dies. On Linux
    the kernel is asked to say the same by a signal, for a parent whose pipe leaked into a sibling.
    """
    _ask_kernel()
    threading.Thread(target=_watch, args=(descriptor, grace_s), name="parent-watch", daemon=True).start()


def _watch(descriptor: int, grace_s: float) -> None:
    try:
        # The bare descriptor: a thread inside sys.stdin holds a lock that the interpreter's exit wants.
        while os.read(descriptor, 4096):
            pass
    except OSError:
        _log.debug("standard input is gone")
    timer = threading.Timer(grace_s, os._exit, args=(0,))
    timer.daemon = True
    timer.start()
    signal.raise_signal(signal.SIGTERM)


def _ask_kernel() -> None:
    if sys.platform != "linux":
        return
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    except (OSError, AttributeError):
        _log.debug("the kernel cannot signal the parent's death here")
