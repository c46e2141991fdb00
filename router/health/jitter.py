"""Where randomness comes from: a value handed in, so that every run can be repeated.

Knows no source of randomness itself; :class:`random.Random` fits.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["Randomness"]


class Randomness(Protocol):
    """The one draw that jitter and tie-breaks need."""

    def random(self) -> float:
        """Return a number in [0, 1)."""
