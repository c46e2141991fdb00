"""Measured rates, smoothed. Knows durations handed in; reads no clock."""

from __future__ import annotations

from local_backend.engine.scheduler import Speed

__all__ = ["SpeedMeter"]

_SMOOTHING = 0.2


class SpeedMeter:
    """Exponentially weighted prefill and decode rates, with totals for the metrics page."""

    def __init__(self) -> None:
        self._prefill = 0.0
        self._decode = 0.0
        self.prefill_tokens = 0
        self.prefill_seconds = 0.0
        self.decode_tokens = 0
        self.decode_seconds = 0.0

    @property
    def speed(self) -> Speed:
        """The present rates."""
        return Speed(self._prefill, self._decode)

    def prefilled(self, tokens: int, seconds: float) -> None:
        """Take one chunk. Small chunks tell of overhead, not of the rate, and weigh less."""
        self.prefill_tokens += tokens
        self.prefill_seconds += seconds
        weight = _SMOOTHING * min(1.0, tokens / 64)
        self._prefill = _blend(self._prefill, tokens, seconds, weight)

    def decoded(self, seconds: float) -> None:
        """Take one token."""
        self.decode_tokens += 1
        self.decode_seconds += seconds
        self._decode = _blend(self._decode, 1, seconds, _SMOOTHING)


def _blend(rate: float, tokens: int, seconds: float, weight: float) -> float:
    measured = tokens / max(seconds, 1e-9)
    if not rate:
        return measured
    # Seconds per token are blended, not the rate: it is time that adds up.
    return 1.0 / ((1.0 - weight) / rate + weight / measured)
