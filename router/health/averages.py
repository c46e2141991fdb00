"""What one deployment's past says of its speed: time to first token by prompt size, tokens per second.

Pure; knows no deployment by name. Only successes are measured: a failure feeds the penalty, never a
latency, so that a fast refusal cannot look like a fast answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from router.health.ewma import DecayingPenalty, HealthEwma, PeakEwma

__all__ = ["PROMPT_SIZE_BOUNDS", "Averages", "SavedAverages", "prompt_size_bucket"]

# Tokens. A bucket holds prompts up to its bound; the last one is open.
PROMPT_SIZE_BOUNDS = (1_000, 4_000, 16_000, 64_000)

# A tokenizer yields between about a token per character (scripts it knows badly) and a token per 20.
_LEAST_RATIO, _GREATEST_RATIO = 0.05, 2.0
_RATIO_BLEND = 0.1
_LEAST_CHARACTERS = 200

Saved = tuple[float, float]


def prompt_size_bucket(prompt_tokens: int) -> int:
    """Return which bucket of :data:`PROMPT_SIZE_BOUNDS` a prompt falls into."""
    return bisect_left(PROMPT_SIZE_BOUNDS, prompt_tokens)


@dataclass(frozen=True, slots=True)
class SavedAverages:
    """Averages as they are saved: name to (value, wall-clock time of the last sample)."""

    values: Mapping[str, Saved]


def _ttft_series() -> tuple[PeakEwma, ...]:
    return tuple(PeakEwma(worse_is_higher=True) for _ in range(len(PROMPT_SIZE_BOUNDS) + 1))


@dataclass(slots=True)
class Averages:
    """The averages of one deployment."""

    health: HealthEwma = field(default_factory=HealthEwma)
    ttft: tuple[PeakEwma, ...] = field(default_factory=_ttft_series)
    speed: PeakEwma = field(default_factory=lambda: PeakEwma(worse_is_higher=False))
    penalty: DecayingPenalty = field(default_factory=DecayingPenalty)
    tokens_per_character: float | None = None

    def observe_ttft(self, ttft_s: float, prompt_tokens: int, now: float) -> None:
        """Take in a success's time to first token."""
        self.ttft[prompt_size_bucket(prompt_tokens)].observe(ttft_s, now)

    def observe_speed(self, tokens_per_s: float, now: float) -> None:
        """Take in a success's decode speed."""
        self.speed.observe(tokens_per_s, now)

    def observe_ratio(self, prompt_characters: int, prompt_tokens: int) -> None:
        """Learn tokens per character from an upstream's own count; short prompts are mostly template."""
        if prompt_characters < _LEAST_CHARACTERS or prompt_tokens <= 0:
            return
        ratio = min(_GREATEST_RATIO, max(_LEAST_RATIO, prompt_tokens / prompt_characters))
        known = self.tokens_per_character
        self.tokens_per_character = ratio if known is None else known + (ratio - known) * _RATIO_BLEND

    def export(self) -> SavedAverages:
        """Return what is worth keeping over a restart; the penalty is not, it lives for seconds."""
        values: dict[str, Saved] = {}
        for name, ewma in self._series().items():
            saved = ewma.export()
            if saved is not None:
                values[name] = saved
        if self.tokens_per_character is not None:
            values["tokens_per_character"] = (self.tokens_per_character, 0.0)
        return SavedAverages(values)

    def restore(self, saved: SavedAverages, now: float) -> None:
        """Take up saved averages; a time that lies ahead of ``now`` counts as ``now``."""
        series = self._series()
        for name, (value, at) in saved.values.items():
            if name == "tokens_per_character":
                self.tokens_per_character = min(_GREATEST_RATIO, max(_LEAST_RATIO, value))
            elif name in series:
                series[name].restore(value, min(at, now))

    def _series(self) -> dict[str, HealthEwma | PeakEwma]:
        series: dict[str, HealthEwma | PeakEwma] = {"health": self.health, "speed": self.speed}
        series.update({f"ttft_{bucket}": ewma for bucket, ewma in enumerate(self.ttft)})
        return series
