"""The choice of experts for each token. Knows logits; not experts' weights, nor where they live."""

from __future__ import annotations

import numpy as np

from local_backend.layers.array_types import FloatArray, IntArray
from local_backend.model.specification import GatingFunction

__all__ = ["select_experts"]

# The smallest normal float16: the floor under the sum that weights are normalised by.
_SMALLEST_SUM = np.float32(6.103515625e-5)


def select_experts(
    logits: FloatArray,
    used: int,
    function: GatingFunction,
    *,
    normalise: bool = True,
    scale: float = 1.0,
    selection_bias: FloatArray | None = None,
) -> tuple[IntArray, FloatArray]:
    """Choose ``used`` of N experts per token: logits [T, N] → ids [T, K], weights [T, K], best first.

    ``selection_bias`` [N] moves the choice but not the weights (DeepSeek-V3, section 2.1.2). On equal
    scores the lower id wins. SOFTMAX_OF_CHOSEN weights are normalised by construction (gpt-oss).
    """
    scores = _scores(logits, function)  # [T, N]
    ranked = scores if selection_bias is None else scores + selection_bias
    # A stable sort of the negated scores: descending, and ties stay in id order.
    ids = np.argsort(-ranked, axis=-1, kind="stable")[:, :used].astype(np.int32)  # [T, K]
    weights = np.take_along_axis(scores, ids, axis=-1)  # [T, K]
    if function is GatingFunction.SOFTMAX_OF_CHOSEN:
        weights = _softmax(weights)
    elif normalise:
        weights = weights / np.maximum(weights.sum(axis=-1, keepdims=True), _SMALLEST_SUM)
    return ids, (weights * np.float32(scale)).astype(np.float32)


def _scores(logits: FloatArray, function: GatingFunction) -> FloatArray:
    if function is GatingFunction.SOFTMAX:
        return _softmax(logits)
    if function is GatingFunction.SIGMOID:
        squashed: FloatArray = np.float32(0.5) * (np.float32(1.0) + np.tanh(np.float32(0.5) * logits))
        return squashed
    return logits


def _softmax(x: FloatArray) -> FloatArray:
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    normalised: FloatArray = weights / weights.sum(axis=-1, keepdims=True)
    return normalised
