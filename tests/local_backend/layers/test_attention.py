from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from local_backend.layers.attention import attend


def slow_attention(
    queries: NDArray[np.float32],
    keys: NDArray[np.float16],
    values: NDArray[np.float16],
    start: int,
    scale: float,
    window: int | None,
    sinks: NDArray[np.float32] | None,
) -> NDArray[np.float64]:
    """One token, one head, one position at a time, in double."""
    tokens, heads, _ = queries.shape
    kv_heads = keys.shape[1]
    output = np.zeros((tokens, heads, values.shape[2]))
    for t in range(tokens):
        for h in range(heads):
            g = h * kv_heads // heads
            seen = [p for p in range(start + t + 1) if window is None or start + t - p < window]
            weights = [
                np.exp(scale * np.dot(queries[t, h].astype(float), keys[p, g].astype(float))) for p in seen
            ]
            total = sum(weights) + (np.exp(float(sinks[h])) if sinks is not None else 0.0)
            for p, weight in zip(seen, weights, strict=True):
                output[t, h] += weight / total * values[p, g].astype(float)
    return output.reshape(tokens, -1)


@pytest.mark.parametrize("window", [None, 1, 3, 100])
@pytest.mark.parametrize("with_sinks", [False, True])
@pytest.mark.parametrize("start", [0, 4])
def test_attention_equals_the_formula(window: int | None, with_sinks: bool, start: int) -> None:
    rng = np.random.default_rng(5)
    queries = rng.normal(size=(3, 6, 8)).astype(np.float32)
    keys = rng.normal(size=(10, 2, 8)).astype(np.float16)
    values = rng.normal(size=(10, 2, 5)).astype(np.float16)
    sinks = rng.normal(size=6).astype(np.float32) if with_sinks else None

    got = attend(queries, keys, values, start=start, scale=0.3, sliding_window=window, sinks=sinks)

    np.testing.assert_allclose(
        got, slow_attention(queries, keys, values, start, 0.3, window, sinks), atol=1e-5
    )


def test_rows_after_a_token_do_not_matter() -> None:
    rng = np.random.default_rng(6)
    queries = rng.normal(size=(2, 2, 4)).astype(np.float32)
    keys = rng.normal(size=(6, 1, 4)).astype(np.float16)
    values = rng.normal(size=(6, 1, 4)).astype(np.float16)
    before = attend(queries, keys, values, start=1, scale=1.0)
    keys[3:], values[3:] = 9, 9

    np.testing.assert_array_equal(attend(queries, keys, values, start=1, scale=1.0), before)


def test_large_scores_do_not_overflow() -> None:
    queries = np.full((1, 1, 4), 3e3, dtype=np.float32)
    keys = np.full((2, 1, 4), 1e3, dtype=np.float16)
    values = np.array([[[1.0]], [[3.0]]], dtype=np.float16)

    assert attend(queries, keys, values, start=1, scale=1.0) == pytest.approx(2.0)
