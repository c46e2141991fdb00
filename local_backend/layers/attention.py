"""Causal grouped-query attention (Ainslie et al. 2023) with sliding window and attention sinks.

Knows queries and a cache's rows; not projections, rotation or who owns the cache.
"""

from __future__ import annotations

import numpy as np

from local_backend.layers.array_types import FloatArray, HalfArray

__all__ = ["attend"]


def attend(
    queries: FloatArray,
    keys: HalfArray,
    values: HalfArray,
    *,
    start: int,
    scale: float,
    sliding_window: int | None = None,
    sinks: FloatArray | None = None,
) -> FloatArray:
    """Attend from T tokens at positions ``start ..`` to the cache's rows up to each of them.

    ``queries`` [T, H, D], ``keys`` [S, G, D], ``values`` [S, G, Dv], S ≥ start + T; H is a multiple of
    G. A token sees the last ``sliding_window`` positions, itself included. ``sinks`` [H] are logits
    that take part in the softmax and carry no value. Returns [T, H * Dv].
    """
    tokens, heads, _ = queries.shape
    kv_heads, value_dimension = values.shape[1:]
    share = heads // kv_heads
    end = start + tokens
    begin = 0 if sliding_window is None else max(0, start - sliding_window + 1)

    query_position = np.arange(start, end)[:, None]  # [T, 1]
    key_position = np.arange(begin, end)[None, :]  # [1, P]
    hidden = key_position > query_position  # [T, P]
    if sliding_window is not None:
        hidden |= query_position - key_position >= sliding_window

    output = np.empty((tokens, heads, value_dimension), dtype=np.float32)  # [T, H, Dv]
    for group in range(kv_heads):
        key = keys[begin:end, group].astype(np.float32)  # [P, D]
        value = values[begin:end, group].astype(np.float32)  # [P, Dv]
        for head in range(group * share, (group + 1) * share):
            logits = (queries[:, head] @ key.T) * np.float32(scale)  # [T, P]
            logits[hidden] = -np.inf
            sink = None if sinks is None else float(sinks[head])
            output[:, head] = _softmax(logits, sink) @ value  # [T, Dv]
    return output.reshape(tokens, heads * value_dimension)


def _softmax(logits: FloatArray, sink: float | None) -> FloatArray:
    """Softmax of the rows of [T, P]; with ``sink`` one more term in the denominator only."""
    highest = logits.max(axis=-1, keepdims=True)  # [T, 1]
    if sink is not None:
        highest = np.maximum(highest, np.float32(sink))
    weights = np.exp(logits - highest)  # [T, P]
    total = weights.sum(axis=-1, keepdims=True)  # [T, 1]
    if sink is not None:
        total = total + np.exp(np.float32(sink) - highest)
    shares: FloatArray = (weights / total).astype(np.float32)
    return shares
