"""The gated feed-forward (Shazeer 2020): down(activation(gate_proj(x)) * up(x)).

Knows three matrices; not whether they are a layer's only ones or one expert's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from local_backend.layers.array_types import FloatArray
from local_backend.layers.projection import project
from local_backend.model.specification import Activation

__all__ = ["FeedForwardMatrices", "activate", "feed_forward"]

# The constants of gpt-oss' clamped SwiGLU, from its published reference implementation.
_OAI_ALPHA = np.float32(1.702)
_OAI_LIMIT = np.float32(7.0)


@dataclass(frozen=True, slots=True)
class FeedForwardMatrices:
    """Projections of width F over hidden size E: gate_proj and up_proj [F, E], down_proj [E, F]; biases."""

    gate_proj: FloatArray
    up_proj: FloatArray
    down_proj: FloatArray
    gate_bias: FloatArray | None = None
    up_bias: FloatArray | None = None
    down_bias: FloatArray | None = None


def feed_forward(x: FloatArray, matrices: FeedForwardMatrices, activation: Activation) -> FloatArray:
    """Run x [T, E] through one gated feed-forward → [T, E]."""
    gated = project(x, matrices.gate_proj, matrices.gate_bias)  # [T, F]
    linear = project(x, matrices.up_proj, matrices.up_bias)  # [T, F]
    inner = activate(gated, linear, activation)  # [T, F]
    return project(inner, matrices.down_proj, matrices.down_bias)  # [T, E]


def activate(gated: FloatArray, linear: FloatArray, activation: Activation) -> FloatArray:
    """Join both halves [T, F] by the activation; GELU is the tanh approximation, as GGUF models mean it."""
    if activation is Activation.SWIGLU_OAI:
        clamped = np.minimum(gated, _OAI_LIMIT)
        widened = np.clip(linear, -_OAI_LIMIT, _OAI_LIMIT)
        return clamped * _sigmoid(_OAI_ALPHA * clamped) * (widened + np.float32(1.0))
    if activation is Activation.GELU:
        cubic = 0.7978845608 * gated * (1.0 + 0.044715 * gated * gated)  # [T, F]
        half = 0.5 * gated * (1.0 + np.tanh(cubic))  # [T, F]
        return (half * linear).astype(np.float32, copy=False)
    return gated * _sigmoid(gated) * linear


def _sigmoid(x: FloatArray) -> FloatArray:
    # tanh saturates where exp would overflow.
    squashed: FloatArray = np.float32(0.5) * (np.float32(1.0) + np.tanh(np.float32(0.5) * x))
    return squashed
