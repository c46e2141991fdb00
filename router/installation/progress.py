"""Tells a person how far a long preparation is.

Knows a stream and a clock; not what is being done.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import TextIO

__all__ = ["Progress"]


class Progress:
    """Lines with the seconds since the start, on standard error: standard output belongs to the command."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._start = clock()

    def say(self, text: str, end: str = "\n") -> None:
        """Write one line; a closed stream does not end the work."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(f"[{self._clock() - self._start:6.1f} s] {text}{end}")
            self._stream.flush()

    def count(self, text: str) -> None:
        """Rewrite one line of a terminal; write nothing where there is none."""
        if self._stream.isatty():
            self.say(f"{text:<60.60}", end="\r")
