"""What a request may ask of sampling, and what comes out of it. Knows no logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = ["Choice", "SamplingParameters", "TokenLogprob"]


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How to choose the next token.

    ``temperature`` 0 is greedy: the highest logit after bias and penalties, the lowest id on ties.
    ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 are off. ``repetition_penalty`` (Keskar et al. 2019) counts
    prompt and answer, ``presence_penalty`` and ``frequency_penalty`` (OpenAI) the answer only.
    ``seed`` ``None`` takes the system's randomness. ``top_logprobs`` ``None`` reports none, 0 only the
    chosen token's.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    seed: int | None = None
    top_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token with its natural log-probability before bias, penalties and temperature."""

    token: int
    logprob: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen token; ``logprob`` and ``top`` (best first) are there when they were asked for."""

    token: int
    logprob: float | None = None
    top: tuple[TokenLogprob, ...] = ()
