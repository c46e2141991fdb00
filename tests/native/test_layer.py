from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from local_backend.gguf.format import GGMLType
from local_backend.kernels.base import Kernels, LayerCache
from local_backend.kernels.native import InstructionSet
from local_backend.kernels.precision import ActivationBits
from local_backend.kernels.reference import ReferenceKernels
from local_backend.model.specification import (
    Activation,
    AttentionSpecification,
    DenseFeedForward,
    GatingFunction,
    LayerSpecification,
    MixtureOfExperts,
    RopeSpecification,
    RopeStyle,
)
from local_backend.model.weights import TensorRole, Weight
from tests.native.conftest import MakeKernels
from tests.native.random_weights import float_weight, random_weight

HIDDEN = 64
PLAIN = LayerSpecification(
    attention=AttentionSpecification(
        heads=6,
        kv_heads=2,
        key_dimension=24,
        value_dimension=16,
        scale=0.2,
        rope=RopeSpecification(RopeStyle.NEOX, 24, 10_000.0),
    ),
    feed_forward=DenseFeedForward(width=96),
    norm_epsilon=1e-5,
)
EXPERTS = MixtureOfExperts(experts=5, used=2, width=32)
YARN = RopeSpecification(
    RopeStyle.NORMAL, 16, 10_000.0, scaling_factor=8.0, yarn_original_context=64, yarn_attention_factor=1.1
)


def with_attention(**changes: object) -> LayerSpecification:
    return replace(PLAIN, attention=replace(PLAIN.attention, **changes))  # type: ignore[arg-type] # free fields


def with_experts(**changes: object) -> LayerSpecification:
    return replace(PLAIN, feed_forward=replace(EXPERTS, **changes))  # type: ignore[arg-type] # free fields


VARIANTS = {
    "plain": PLAIN,
    "neighbours rotate": with_attention(rope=RopeSpecification(RopeStyle.NORMAL, 24, 500.0)),
    "part of a head rotates": with_attention(rope=RopeSpecification(RopeStyle.NEOX, 8, 1e4, 4.0)),
    "yarn": with_attention(rope=YARN),
    "heads normalised": with_attention(qk_norm=True),
    "biases": with_attention(bias=True, output_bias=True),
    "window": with_attention(sliding_window=5),
    "sinks": with_attention(sinks=True),
    "window and sinks": with_attention(sliding_window=3, sinks=True),
    "gelu": replace(PLAIN, feed_forward=DenseFeedForward(96, Activation.GELU)),
    "post norms": replace(PLAIN, post_norms=True),
    "experts": with_experts(),
    "experts, not normalised": with_experts(normalise_weights=False, weights_scale=2.5),
    "experts, sigmoid": with_experts(gating=GatingFunction.SIGMOID),
    "experts, softmax of chosen": with_experts(
        gating=GatingFunction.SOFTMAX_OF_CHOSEN, bias=True, activation=Activation.SWIGLU_OAI
    ),
    "shared expert": with_experts(shared_width=40),
    "experts, post norms": replace(with_experts(shared_width=40), post_norms=True),
}
SETS: tuple[InstructionSet, ...] = ("scalar", "avx2", "avx512")


def shapes_of(specification: LayerSpecification) -> dict[TensorRole, tuple[int, ...]]:
    a = specification.attention
    query, key, value = (
        a.heads * a.key_dimension,
        a.kv_heads * a.key_dimension,
        a.kv_heads * a.value_dimension,
    )
    shapes: dict[TensorRole, tuple[int, ...]] = {
        TensorRole.ATTENTION_NORM: (HIDDEN,),
        TensorRole.FEED_FORWARD_NORM: (HIDDEN,),
        TensorRole.QUERY: (query, HIDDEN),
        TensorRole.KEY: (key, HIDDEN),
        TensorRole.VALUE: (value, HIDDEN),
        TensorRole.ATTENTION_OUTPUT: (HIDDEN, a.heads * a.value_dimension),
    }
    if a.qk_norm:
        shapes |= {TensorRole.QUERY_NORM: (a.key_dimension,), TensorRole.KEY_NORM: (a.key_dimension,)}
    if a.bias:
        shapes |= {
            TensorRole.QUERY_BIAS: (query,),
            TensorRole.KEY_BIAS: (key,),
            TensorRole.VALUE_BIAS: (value,),
        }
    if a.output_bias:
        shapes[TensorRole.ATTENTION_OUTPUT_BIAS] = (HIDDEN,)
    if a.sinks:
        shapes[TensorRole.ATTENTION_SINKS] = (a.heads,)
    if specification.post_norms:
        shapes |= {
            TensorRole.ATTENTION_POST_NORM: (HIDDEN,),
            TensorRole.FEED_FORWARD_POST_NORM: (HIDDEN,),
        }
    return shapes | feed_forward_shapes(specification)


def feed_forward_shapes(specification: LayerSpecification) -> dict[TensorRole, tuple[int, ...]]:
    wanted = specification.feed_forward
    if isinstance(wanted, DenseFeedForward):
        return {
            TensorRole.GATE_PROJ: (wanted.width, HIDDEN),
            TensorRole.UP_PROJ: (wanted.width, HIDDEN),
            TensorRole.DOWN_PROJ: (HIDDEN, wanted.width),
        }
    n, width = wanted.experts, wanted.width
    shapes: dict[TensorRole, tuple[int, ...]] = {
        TensorRole.GATING: (n, HIDDEN),
        TensorRole.EXPERT_GATE_PROJ: (n, width, HIDDEN),
        TensorRole.EXPERT_UP_PROJ: (n, width, HIDDEN),
        TensorRole.EXPERT_DOWN_PROJ: (n, HIDDEN, width),
    }
    if wanted.gating is not GatingFunction.SOFTMAX:
        shapes[TensorRole.GATING_BIAS] = (n,)
    if wanted.bias:
        shapes |= {
            TensorRole.EXPERT_GATE_BIAS: (n, width),
            TensorRole.EXPERT_UP_BIAS: (n, width),
            TensorRole.EXPERT_DOWN_BIAS: (n, HIDDEN),
        }
    if wanted.shared_width:
        shapes |= {
            TensorRole.SHARED_GATING: (HIDDEN,),
            TensorRole.SHARED_GATE_PROJ: (wanted.shared_width, HIDDEN),
            TensorRole.SHARED_UP_PROJ: (wanted.shared_width, HIDDEN),
            TensorRole.SHARED_DOWN_PROJ: (HIDDEN, wanted.shared_width),
        }
    return shapes


def float_weights(specification: LayerSpecification, seed: int = 0) -> dict[TensorRole, Weight]:
    rng = np.random.default_rng(seed)
    return {
        role: float_weight(
            rng.normal(float(len(shape) == 1), 0.3, shape).astype(np.float32)
            * (1 if len(shape) == 1 else 0.6),
            name=str(role),
        )
        for role, shape in shapes_of(specification).items()
    }


def run_steps(
    kernels: Kernels,
    specification: LayerSpecification,
    weights: dict[TensorRole, Weight],
    hidden: np.ndarray[tuple[int, int], np.dtype[np.float32]],
    steps: tuple[int, ...],
    shared: dict[TensorRole, Weight] | None = None,
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Feed the tokens in steps of the given sizes, one cache throughout."""
    a = specification.attention
    cache = LayerCache(
        np.zeros((len(hidden), a.kv_heads, a.key_dimension), np.float16),
        np.zeros((len(hidden), a.kv_heads, a.value_dimension), np.float16),
    )
    layer = kernels.layer(specification, weights, shared or {})
    out, start = hidden.copy(), 0
    for step in steps:
        part = out[start : start + step].copy()
        layer.forward(part, start, cache)
        out[start : start + step] = part
        start += step
    assert start == len(hidden)
    return out


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_agrees_with_the_reference(
    make_kernels: MakeKernels, isa: InstructionSet, variant: str
) -> None:
    specification = VARIANTS[variant]
    weights = float_weights(specification)
    hidden = np.random.default_rng(1).normal(size=(21, HIDDEN)).astype(np.float32)
    wanted = run_steps(ReferenceKernels(), specification, weights, hidden, (21,))

    for steps in ((21,), (1,) * 21, (2, 7, 1, 3, 8)):
        got = run_steps(make_kernels(isa), specification, weights, hidden, steps)

        # Keys and values are float16 in both; a last bit that falls the other way moves a result by 1e-3.
        np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=2e-3)
        assert np.abs(got - wanted).mean() < 2e-4


def test_frequency_divisors_are_applied(make_kernels: MakeKernels) -> None:
    weights = float_weights(PLAIN)
    divisors = np.linspace(1.0, 8.0, 12).astype(np.float32)
    shared = {TensorRole.ROPE_FREQUENCIES: float_weight(divisors)}
    hidden = np.random.default_rng(2).normal(size=(9, HIDDEN)).astype(np.float32)
    wanted = run_steps(ReferenceKernels(), PLAIN, weights, hidden, (9,), shared)

    got = run_steps(make_kernels(), PLAIN, weights, hidden, (9,), shared)

    np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=2e-3)
    assert not np.allclose(got, run_steps(make_kernels(), PLAIN, weights, hidden, (9,)), atol=1e-2)


@pytest.mark.parametrize("isa", SETS)
def test_long_contexts_are_cut_and_merged_exactly(make_kernels: MakeKernels, isa: InstructionSet) -> None:
    specification = with_attention(sinks=True)
    weights = float_weights(specification)
    hidden = np.random.default_rng(3).normal(size=(1300, HIDDEN)).astype(np.float32)
    wanted = run_steps(ReferenceKernels(), specification, weights, hidden, (1290, 10))

    got = run_steps(make_kernels(isa), specification, weights, hidden, (1290, 1, 7, 1, 1))

    np.testing.assert_allclose(got, wanted, rtol=3e-3, atol=3e-3)


@pytest.mark.parametrize("kind", [GGMLType.Q8_0, GGMLType.Q4_1, GGMLType.Q4_0], ids=lambda kind: kind.name)
@pytest.mark.parametrize("feed_forward", [DenseFeedForward(96), replace(EXPERTS, experts=9, used=4)])
@pytest.mark.parametrize(("bits", "share"), [(8, 0.02), (16, 2e-4)])
def test_quantised_layers_agree_within_the_rounding_of_their_inputs(
    make_kernels: MakeKernels,
    kind: GGMLType,
    feed_forward: DenseFeedForward | MixtureOfExperts,
    bits: ActivationBits,
    share: float,
) -> None:
    specification = replace(PLAIN, feed_forward=feed_forward)
    weights = float_weights(specification)
    for seed, (role, shape) in enumerate(shapes_of(specification).items()):
        if len(shape) > 1 and role is not TensorRole.GATING:
            scale = 0.002 if kind is GGMLType.Q8_0 else 0.02
            weights[role] = replace(random_weight(kind, shape, seed, scale), name=str(role))
    hidden = np.random.default_rng(4).normal(size=(33, HIDDEN)).astype(np.float32)
    wanted = run_steps(ReferenceKernels(), specification, weights, hidden, (33,))

    for steps in ((33,), (1,) * 33):
        got = run_steps(make_kernels(bits=bits), specification, weights, hidden, steps)

        change = np.sqrt(((wanted - hidden) ** 2).mean())
        assert np.sqrt(((got - wanted) ** 2).mean()) < share * change


@pytest.mark.parametrize("variant", ["plain", "shared expert", "window and sinks"])
def test_the_number_of_threads_changes_no_bit(make_kernels: MakeKernels, variant: str) -> None:
    specification = VARIANTS[variant]
    weights = float_weights(specification)
    hidden = np.random.default_rng(5).normal(size=(70, HIDDEN)).astype(np.float32)
    steps = (40, 1, 1, 5, 23)
    wanted = run_steps(make_kernels(threads=1), specification, weights, hidden, steps).tobytes()

    for threads in (2, 3, 8):
        got = run_steps(make_kernels(threads=threads), specification, weights, hidden, steps)

        assert got.tobytes() == wanted


def test_an_expert_may_get_no_token_and_all_may_be_used(make_kernels: MakeKernels) -> None:
    for used in (1, 5):
        specification = with_experts(used=used)
        weights = float_weights(specification)
        hidden = np.random.default_rng(6).normal(size=(2, HIDDEN)).astype(np.float32)
        wanted = run_steps(ReferenceKernels(), specification, weights, hidden, (2,))

        got = run_steps(make_kernels(), specification, weights, hidden, (2,))

        np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=2e-3)
