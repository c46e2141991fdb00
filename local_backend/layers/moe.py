"""Mixture of experts: tokens grouped by expert, each expert run once, outputs summed by weight.

Knows chosen ids and a way to get an expert's matrices; not how they were chosen or where they live.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from local_backend.layers.array_types import FloatArray, IntArray
from local_backend.layers.mlp import FeedForwardMatrices, feed_forward
from local_backend.model.specification import Activation

__all__ = ["mix_experts"]


def mix_experts(
    x: FloatArray,
    expert_ids: IntArray,
    expert_weights: FloatArray,
    matrices_of: Callable[[int], FeedForwardMatrices],
    activation: Activation,
) -> FloatArray:
    """Sum the chosen experts' outputs: x [T, E], ids and weights [T, K] → [T, E].

    ``matrices_of`` is asked once for every expert that some token chose, in ascending order, so that a
    batch of tokens reads each expert's bytes once.
    """
    output = np.zeros_like(x)  # [T, E]
    for expert in np.unique(expert_ids):
        rows, rank = np.nonzero(expert_ids == expert)  # [n], [n]
        result = feed_forward(x[rows], matrices_of(int(expert)), activation)  # [n, E]
        # A token chooses an expert at most once, so the rows are distinct and += is safe.
        output[rows] += result * expert_weights[rows, rank][:, None]
    return output
