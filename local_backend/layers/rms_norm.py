"""Root-mean-square normalisation (Zhang and Sennrich 2019). Knows no model."""

from __future__ import annotations

import numpy as np

from local_backend.layers.array_types import FloatArray

__all__ = ["rms_norm"]


def rms_norm(x: FloatArray, weight: FloatArray, epsilon: float) -> FloatArray:
    """Scale each row of ``x`` [..., N] to a root mean square of one, then by ``weight`` [N]."""
    # The sum runs in double: with thousands of columns float32 loses the last digits that parity needs.
    mean_square = np.mean(np.square(x, dtype=np.float64), axis=-1, keepdims=True)  # [..., 1]
    scale = (1.0 / np.sqrt(mean_square + epsilon)).astype(np.float32)  # [..., 1]
    normalised: FloatArray = x * scale * weight  # [..., N]
    return normalised
