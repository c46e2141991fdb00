"""Time under a test's control: a clock that is set by hand, and an event loop whose sleeps take no time.

``VirtualTimeLoop`` is for code that uses ``asyncio.sleep`` and ``asyncio.timeout``: whenever nothing is
left to do but wait, its time jumps to the next timer. A test module asks for it with::

    @pytest.fixture
    def anyio_backend():
        return ("asyncio", {"loop_factory": VirtualTimeLoop})
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

__all__ = ["FakeClock", "LoopClock", "VirtualTimeLoop"]

WALL_START = 1_800_000_000.0


class FakeClock:
    """A :class:`router.clock.Clock` that moves only when told to."""

    def __init__(self, *, monotonic: float = 100.0, wall: float = WALL_START) -> None:
        self._monotonic = monotonic
        self._wall = wall

    def monotonic(self) -> float:
        return self._monotonic

    def wall(self) -> float:
        return self._wall

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("time does not run backwards")
        self._monotonic += seconds
        self._wall += seconds


class LoopClock:
    """A :class:`router.clock.Clock` that shows the running event loop's time, so also a virtual one."""

    def __init__(self, *, wall: float = WALL_START) -> None:
        self._wall_start = wall

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return self._wall_start + asyncio.get_running_loop().time()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop that jumps over every wait; starts at 0 s. Not for real sockets or threads."""

    def __init__(self) -> None:
        self._virtual_time = 0.0
        super().__init__(_JumpingSelector(self))
        # The default of a nanosecond is lost in a time of years, and then a timer that is due never runs.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._virtual_time

    def jump(self, seconds: float) -> None:
        self._virtual_time += seconds


class _JumpingSelector(selectors.SelectSelector):
    """Reports what is ready now; where nothing is, the wait is added to the loop's time instead of passed."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            # No timer at all: only something outside (a thread, a signal) can go on.
            return super().select(1.0)
        self._loop.jump(timeout)
        return []
