from __future__ import annotations

import math

import numpy as np
import pytest

from local_backend.layers.gating import select_experts
from local_backend.layers.mlp import FeedForwardMatrices, activate, feed_forward
from local_backend.layers.moe import mix_experts
from local_backend.layers.rms_norm import rms_norm
from local_backend.model.specification import Activation, GatingFunction


def floats(*values: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.array([values], dtype=np.float32)


def random_matrices(seed: int, width: int = 6, hidden: int = 4) -> FeedForwardMatrices:
    rng = np.random.default_rng(seed)
    return FeedForwardMatrices(
        gate_proj=rng.normal(size=(width, hidden)).astype(np.float32),
        up_proj=rng.normal(size=(width, hidden)).astype(np.float32),
        down_proj=rng.normal(size=(hidden, width)).astype(np.float32),
    )


def test_rms_norm_by_hand() -> None:
    got = rms_norm(floats(3.0, 4.0), np.array([2.0, 10.0], dtype=np.float32), 0.0)

    root = math.sqrt(12.5)
    np.testing.assert_allclose(got, floats(6.0 / root, 40.0 / root), rtol=1e-6)


def test_rms_norm_of_zeros_is_zero() -> None:
    np.testing.assert_array_equal(
        rms_norm(floats(0.0, 0.0), np.ones(2, dtype=np.float32), 1e-6), floats(0, 0)
    )


@pytest.mark.parametrize("x", [-20.0, -1.5, 0.0, 0.5, 4.0, 200.0])
def test_activations_equal_their_formulae(x: float) -> None:
    sigmoid = 1 / (1 + math.exp(-x)) if x > -700 else 0.0
    gelu = 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    clamped = min(x, 7.0)
    oai = clamped / (1 + math.exp(-1.702 * clamped)) * (7.0 + 1.0)

    assert activate(floats(x), floats(3.0), Activation.SILU)[0, 0] == pytest.approx(
        3 * x * sigmoid, rel=1e-5, abs=1e-5
    )
    assert activate(floats(x), floats(3.0), Activation.GELU)[0, 0] == pytest.approx(
        3 * gelu, rel=1e-5, abs=1e-5
    )
    assert activate(floats(x), floats(9.0), Activation.SWIGLU_OAI)[0, 0] == pytest.approx(
        oai, rel=1e-5, abs=1e-5
    )


def test_feed_forward_adds_its_biases() -> None:
    matrices = FeedForwardMatrices(
        gate_proj=np.zeros((1, 2), dtype=np.float32),
        up_proj=np.zeros((1, 2), dtype=np.float32),
        down_proj=np.array([[1.0], [2.0]], dtype=np.float32),
        gate_bias=np.array([2.0], dtype=np.float32),
        up_bias=np.array([3.0], dtype=np.float32),
        down_bias=np.array([0.5, 0.25], dtype=np.float32),
    )
    inner = 2.0 / (1 + math.exp(-2.0)) * 3.0

    np.testing.assert_allclose(
        feed_forward(floats(1.0, 1.0), matrices, Activation.SILU),
        floats(inner + 0.5, 2 * inner + 0.25),
        rtol=1e-6,
    )


def test_softmax_gating_normalises_over_the_chosen() -> None:
    ids, weights = select_experts(
        np.log(floats(0.1, 0.4, 0.2, 0.3)), 2, GatingFunction.SOFTMAX, normalise=True
    )

    np.testing.assert_array_equal(ids, [[1, 3]])
    np.testing.assert_allclose(weights, floats(4 / 7, 3 / 7), rtol=1e-6)


def test_softmax_gating_without_normalising_keeps_the_shares_of_all() -> None:
    _, weights = select_experts(
        np.log(floats(0.1, 0.4, 0.2, 0.3)), 2, GatingFunction.SOFTMAX, normalise=False, scale=2.0
    )

    np.testing.assert_allclose(weights, floats(0.8, 0.6), rtol=1e-6)


def test_softmax_of_chosen_equals_normalised_softmax() -> None:
    logits = np.random.default_rng(3).normal(size=(7, 12)).astype(np.float32)
    chosen = select_experts(logits, 4, GatingFunction.SOFTMAX_OF_CHOSEN)
    normalised = select_experts(logits, 4, GatingFunction.SOFTMAX)

    np.testing.assert_array_equal(chosen[0], normalised[0])
    np.testing.assert_allclose(chosen[1], normalised[1], rtol=1e-5)


def test_sigmoid_gating_chooses_by_bias_but_weighs_without_it() -> None:
    bias = np.array([0.0, 0.0, 5.0], dtype=np.float32)
    ids, weights = select_experts(
        floats(2.0, 0.0, -1.0), 2, GatingFunction.SIGMOID, normalise=False, selection_bias=bias
    )

    np.testing.assert_array_equal(ids, [[2, 0]])
    np.testing.assert_allclose(weights, floats(1 / (1 + math.e), 1 / (1 + math.exp(-2))), rtol=1e-6)


def test_equal_scores_choose_the_lower_ids() -> None:
    ids, _ = select_experts(np.zeros((2, 9), dtype=np.float32), 3, GatingFunction.SOFTMAX)

    np.testing.assert_array_equal(ids, [[0, 1, 2], [0, 1, 2]])


def test_mixture_is_the_weighted_sum_token_by_token() -> None:
    rng = np.random.default_rng(4)
    experts = [random_matrices(seed) for seed in range(5)]
    x = rng.normal(size=(6, 4)).astype(np.float32)
    ids, weights = select_experts(rng.normal(size=(6, 5)).astype(np.float32), 2, GatingFunction.SOFTMAX)
    asked: list[int] = []

    def matrices_of(expert: int) -> FeedForwardMatrices:
        asked.append(expert)
        return experts[expert]

    got = mix_experts(x, ids, weights, matrices_of, Activation.SILU)

    expected = np.stack(
        [
            sum(
                w * feed_forward(x[t : t + 1], experts[e], Activation.SILU)[0]
                for e, w in zip(ids[t], weights[t], strict=True)
            )
            for t in range(6)
        ]
    )
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert asked == sorted(set(ids.flatten().tolist()))
