"""Prefill and decode times of an engine, and the rates that they allow one to state.

A rate from a short run is mostly overhead: it is refused, and the raw seconds are told instead. Knows
the engine's steps; not files, arguments or printing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from local_backend.engine.engine import Engine
from local_backend.engine.events import Failed, Written
from local_backend.engine.sampling import SamplingParameters
from local_backend.engine.sequence import GenerationRequest

__all__ = [
    "LEAST_DECODE_TOKENS",
    "LEAST_PREFILL_TOKENS",
    "Measurement",
    "Rate",
    "decode_rate",
    "measure",
    "prefill_rate",
]

LEAST_PREFILL_TOKENS = 1000
LEAST_DECODE_TOKENS = 128


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds of each run, in order: the whole prompt, and the tokens after the first."""

    prompt_tokens: int
    decoded_tokens: int
    prefill_s: tuple[float, ...]
    decode_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens per second by the median run, or the reason why no rate is stated."""

    tok_s: float | None
    refused: str | None = None


def measure(
    engine: Engine,
    *,
    vocabulary_size: int,
    prompt_tokens: int,
    decoded_tokens: int,
    runs: int,
    clock: Callable[[], float],
) -> Measurement:
    """Run ``runs`` prompts of random tokens from a fixed seed, nothing of them in the cache.

    ``decoded_tokens`` are computed one by one after the token that prefill yields. Raises the engine's
    error when a run fails.
    """
    rng = np.random.default_rng(0)
    prefill: list[float] = []
    decode: list[float] = []
    for run in range(runs):
        engine.forget()
        prompt = tuple(int(token) for token in rng.integers(0, vocabulary_size, prompt_tokens))
        request = GenerationRequest(
            request_id=f"bench-{run}",
            prompt=prompt,
            max_tokens=decoded_tokens + 1,
            sampling=SamplingParameters(temperature=0.0),
            ignore_end=True,
        )
        started = clock()
        engine.submit(request)
        first: float | None = None
        while not engine.idle:
            for event in engine.step():
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, Written) and first is None:
                    first = clock()
        ended = clock()
        prefill.append((first or ended) - started)
        decode.append(ended - (first or ended))
    return Measurement(prompt_tokens, decoded_tokens, tuple(prefill), tuple(decode))


def prefill_rate(measurement: Measurement) -> Rate:
    """Return prompt tokens per second."""
    return _rate(measurement.prompt_tokens, measurement.prefill_s, LEAST_PREFILL_TOKENS, "prompt")


def decode_rate(measurement: Measurement) -> Rate:
    """Return generated tokens per second."""
    return _rate(measurement.decoded_tokens, measurement.decode_s, LEAST_DECODE_TOKENS, "decoded")


def _rate(tokens: int, seconds: tuple[float, ...], least: int, what: str) -> Rate:
    if tokens < least:
        return Rate(
            None, f"{tokens} {what} tokens are too few for a rate (at least {least}): overhead would dominate"
        )
    return Rate(tokens / statistics.median(seconds))
