"""From logits to a token. Pure: the generator is an argument. Knows no sequences and no text.

Order: bias, penalties, temperature, top-k, top-p (Holtzman et al. 2020), min-p (Nguyen et al. 2024).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import NDArray

from local_backend.engine.sampling import Choice, SamplingParameters, TokenLogprob
from local_backend.errors import EngineError

__all__ = ["choose", "distribution"]

# Ranking this many candidates nearly always covers top-p; the whole vocabulary is sorted otherwise.
_FIRST_RANKED = 1024


def choose(
    logits: NDArray[np.float32],
    parameters: SamplingParameters,
    prompt: AbstractSet[int],
    generated: Mapping[int, int],
    rng: np.random.Generator,
) -> Choice:
    """Choose the next token from logits [V].

    ``prompt`` holds the prompt's token ids, ``generated`` how often each id came out so far. Raises
    :class:`~local_backend.errors.EngineError` when the logits are not finite. ``logits`` is not changed.
    """
    if not np.isfinite(logits).all():
        raise EngineError("the model's logits are not finite; its weights or its cache are damaged")
    adjusted = _adjust(logits, parameters, prompt, generated)
    if parameters.temperature <= 0.0:
        token = int(np.argmax(adjusted))  # the first, so the lowest id, on ties
    else:
        ids, probabilities = distribution(adjusted, parameters)
        cumulative = np.cumsum(probabilities)
        drawn = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
        token = int(ids[min(int(drawn), len(ids) - 1)])
    return _with_logprobs(logits, token, parameters.top_logprobs)


def distribution(
    logits: NDArray[np.float32], parameters: SamplingParameters
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the ids that may be drawn and their probabilities (sum 1) under temperature and filters.

    ``temperature`` must be above 0. At least the best token always remains.
    """
    scaled = (logits.astype(np.float64) - float(logits.max())) / parameters.temperature  # [V], best is 0
    weights = np.exp(scaled)
    unfiltered = not parameters.top_k and parameters.top_p >= 1.0 and parameters.min_p <= 0.0
    if unfiltered:
        return np.arange(len(weights), dtype=np.int64), weights / weights.sum()

    ids = _ranked(weights, parameters)  # best first
    kept = weights[ids]
    if parameters.top_k:
        ids, kept = ids[: parameters.top_k], kept[: parameters.top_k]
    total = kept.sum() if parameters.top_k else weights.sum()
    if parameters.top_p < 1.0:
        # A token stays while the mass before it has not reached top_p, so the one that crosses stays.
        before = np.cumsum(kept) - kept
        ids, kept = _keep(ids, kept, before < parameters.top_p * total)
    if parameters.min_p > 0.0:
        ids, kept = _keep(ids, kept, kept >= parameters.min_p * kept[0])
    return ids, kept / kept.sum()


def _ranked(weights: NDArray[np.float64], parameters: SamplingParameters) -> NDArray[np.int64]:
    """Ids by falling weight, lower ids first on ties; as many as the filters can need."""
    size = len(weights)
    enough = parameters.top_k or _FIRST_RANKED
    if enough < size:
        # Everything at or above the weight at that rank, so that ties are not cut arbitrarily.
        threshold = np.partition(weights, size - enough)[size - enough]
        best = np.flatnonzero(weights >= threshold)
        covers = weights[best].sum() >= parameters.top_p * weights.sum()
        if parameters.top_k or covers or threshold < parameters.min_p:
            return best[np.argsort(-weights[best], kind="stable")]
    return np.argsort(-weights, kind="stable")


def _keep(
    ids: NDArray[np.int64], weights: NDArray[np.float64], wanted: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    wanted[0] = True
    return ids[wanted], weights[wanted]


def _adjust(
    logits: NDArray[np.float32],
    parameters: SamplingParameters,
    prompt: AbstractSet[int],
    generated: Mapping[int, int],
) -> NDArray[np.float32]:
    adjusted = logits.copy()
    for token, bias in parameters.logit_bias.items():
        adjusted[token] += bias
    if parameters.repetition_penalty != 1.0:
        seen = np.fromiter(prompt | generated.keys(), dtype=np.int64)
        values = adjusted[seen]
        penalty = np.float32(parameters.repetition_penalty)
        adjusted[seen] = np.where(values > 0, values / penalty, values * penalty)
    if generated and (parameters.presence_penalty or parameters.frequency_penalty):
        ids = np.fromiter(generated.keys(), dtype=np.int64)
        counts = np.fromiter(generated.values(), dtype=np.float32)
        penalties = parameters.presence_penalty + parameters.frequency_penalty * counts
        adjusted[ids] -= penalties.astype(np.float32)
    return adjusted


def _with_logprobs(logits: NDArray[np.float32], token: int, top: int | None) -> Choice:
    if top is None:
        return Choice(token)
    shifted = logits.astype(np.float64) - float(logits.max())
    logprobs = shifted - np.log(np.exp(shifted).sum())  # [V]
    best: tuple[TokenLogprob, ...] = ()
    if top:
        count = min(top, len(logits))
        threshold = np.partition(logprobs, len(logprobs) - count)[len(logprobs) - count]
        ids = np.flatnonzero(logprobs >= threshold)
        ids = ids[np.argsort(-logprobs[ids], kind="stable")][:count]
        best = tuple(TokenLogprob(int(i), float(logprobs[i])) for i in ids)
    return Choice(token, float(logprobs[token]), best)
