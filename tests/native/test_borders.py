from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from local_backend.errors import UnsupportedModel
from local_backend.gguf.format import GGMLType
from local_backend.kernels.base import LayerCache
from local_backend.kernels.native import NativeKernels
from local_backend.model.weights import TensorRole, Weight
from tests.native.conftest import MakeKernels
from tests.native.random_weights import COMPUTED_TYPES, float_weight, random_weight
from tests.native.test_layer import HIDDEN, PLAIN, float_weights, with_attention


def cache_of(rows: int) -> LayerCache:
    a = PLAIN.attention
    return LayerCache(
        np.zeros((rows, a.kv_heads, a.key_dimension), np.float16),
        np.zeros((rows, a.kv_heads, a.value_dimension), np.float16),
    )


def test_supported_types_are_told(make_kernels: MakeKernels) -> None:
    kernels = make_kernels()
    for kind in GGMLType:
        weight = Weight("w", kind, (1, kind.block_elements), np.zeros(kind.block_bytes, np.uint8))
        assert kernels.supports(weight) == (kind in COMPUTED_TYPES)


def test_an_unsupported_type_is_refused_by_name(make_kernels: MakeKernels) -> None:
    weight = Weight("blk.0.ffn_up.weight", GGMLType.IQ2_XS, (4, 256), np.zeros(4 * 74, np.uint8))
    with pytest.raises(UnsupportedModel, match=r"blk\.0\.ffn_up\.weight.*IQ2_XS.*Q4_K"):
        make_kernels().embed(weight, np.zeros(1, np.int32))


def test_bytes_that_do_not_fill_the_matrix_are_refused(make_kernels: MakeKernels) -> None:
    whole = random_weight(GGMLType.Q8_0, (4, 64), seed=0)
    for data in (whole.data[:-1], np.concatenate([whole.data, whole.data[:1]]), whole.data[:0]):
        with pytest.raises(ValueError, match=r"random Q8_0: .* bytes given"):
            make_kernels().multiply(replace(whole, data=data), np.zeros((1, 64), np.float32))


def test_weights_off_their_alignment_are_refused(make_kernels: MakeKernels) -> None:
    whole = random_weight(GGMLType.Q8_0, (4, 64), seed=0)
    moved = np.concatenate([np.zeros(1, np.uint8), whole.data])[1:]
    with pytest.raises(ValueError, match="multiple of 4"):
        make_kernels().multiply(replace(whole, data=moved), np.zeros((1, 64), np.float32))


def test_inputs_of_the_wrong_width_are_refused(make_kernels: MakeKernels) -> None:
    weight = random_weight(GGMLType.Q8_0, (4, 64), seed=0)
    with pytest.raises(ValueError, match="inputs are \\[2, 32\\], the matrix has 64 columns"):
        make_kernels().multiply(weight, np.zeros((2, 32), np.float32))


@pytest.mark.parametrize("token", [-1, 4, 2**31 - 1])
def test_a_token_outside_the_vocabulary_is_refused(make_kernels: MakeKernels, token: int) -> None:
    weight = random_weight(GGMLType.Q8_0, (4, 64), seed=0)
    with pytest.raises(ValueError, match=f"token {token} at index 1"):
        make_kernels().embed(weight, np.array([0, token], np.int32))


def test_a_norm_of_the_wrong_size_is_refused(make_kernels: MakeKernels) -> None:
    head = random_weight(GGMLType.Q8_0, (4, 64), seed=0)
    with pytest.raises(ValueError, match="norm has 32 weights for 64"):
        make_kernels().logits(
            np.zeros((1, 64), np.float32), float_weight(np.ones(32, np.float32)), head, 1e-5
        )


def test_an_unknown_or_missing_set_is_refused(make_kernels: MakeKernels) -> None:
    make_kernels()
    with pytest.raises(ValueError, match="'sse9' is unknown"):
        NativeKernels("sse9")  # type: ignore[arg-type] # on purpose


@pytest.mark.parametrize("threads", [-1, 5000])
def test_absurd_thread_counts_are_refused(make_kernels: MakeKernels, threads: int) -> None:
    make_kernels()
    with pytest.raises(ValueError, match="threads"):
        NativeKernels("", threads)


@pytest.mark.parametrize(
    ("start", "tokens", "rows"), [(0, 5, 4), (4, 1, 4), (3, 2, 4), (2**62, 1, 4), (-1, 1, 4)]
)
def test_positions_past_the_cache_are_refused(
    make_kernels: MakeKernels, start: int, tokens: int, rows: int
) -> None:
    layer = make_kernels().layer(PLAIN, float_weights(PLAIN), {})
    with pytest.raises(ValueError, match=r"do not fit|positions start at 0"):
        layer.forward(np.zeros((tokens, HIDDEN), np.float32), start, cache_of(rows))


def test_arrays_of_other_shapes_or_types_are_refused(make_kernels: MakeKernels) -> None:
    layer = make_kernels().layer(PLAIN, float_weights(PLAIN), {})
    good = cache_of(4)
    with pytest.raises(ValueError, match="hidden is \\[2, 32\\]"):
        layer.forward(np.zeros((2, 32), np.float32), 0, good)
    with pytest.raises(ValueError, match="cache of values"):
        layer.forward(np.zeros((2, HIDDEN), np.float32), 0, LayerCache(good.keys, good.keys))
    with pytest.raises(TypeError):
        layer.forward(np.zeros((2, HIDDEN), np.float64), 0, good)
    with pytest.raises(TypeError):
        layer.forward(np.zeros((2, 2 * HIDDEN), np.float32)[:, ::2], 0, good)


def test_no_tokens_is_no_work(make_kernels: MakeKernels) -> None:
    layer = make_kernels().layer(PLAIN, float_weights(PLAIN), {})
    layer.forward(np.zeros((0, HIDDEN), np.float32), 0, cache_of(1))


def test_a_missing_or_misshapen_weight_is_named(make_kernels: MakeKernels) -> None:
    weights = float_weights(PLAIN)
    for role in weights:
        if role is not TensorRole.QUERY:
            with pytest.raises(ValueError, match=f"'{role}'"):
                make_kernels().layer(PLAIN, {r: w for r, w in weights.items() if r is not role}, {})
    odd = weights | {TensorRole.UP_PROJ: float_weight(np.zeros((95, HIDDEN), np.float32))}
    with pytest.raises(ValueError, match="up_proj is 1 x \\[95, 64\\], needed 1 x \\[96, 64\\]"):
        make_kernels().layer(PLAIN, odd, {})


def test_a_weight_that_would_be_ignored_is_refused(make_kernels: MakeKernels) -> None:
    weights = float_weights(PLAIN) | {TensorRole.GATING_BIAS: float_weight(np.zeros(5, np.float32))}
    with pytest.raises(ValueError, match="no use for"):
        make_kernels().layer(PLAIN, weights, {})


def test_what_the_specification_promises_must_be_there(make_kernels: MakeKernels) -> None:
    for specification in (
        with_attention(sinks=True),
        with_attention(qk_norm=True),
        replace(PLAIN, post_norms=True),
    ):
        with pytest.raises(ValueError, match="the layer needs a vector"):
            make_kernels().layer(specification, float_weights(PLAIN), {})


def test_the_description_names_the_set_the_precision_and_the_workers(make_kernels: MakeKernels) -> None:
    assert make_kernels("scalar", 3).description.startswith("scalar, 8-bit activations, 3 workers on ")
    assert "16-bit activations, 1 worker" in make_kernels(threads=1, bits=16).description


def test_other_precisions_are_refused(make_kernels: MakeKernels) -> None:
    with pytest.raises(ValueError, match="8 or 16 bits, not 12"):
        make_kernels(bits=12)


def test_closed_kernels_still_compute(make_kernels: MakeKernels) -> None:
    kernels = make_kernels(threads=3)
    weight = random_weight(GGMLType.Q4_1, (70, 64), seed=2)
    inputs = np.ones((1, 64), np.float32)
    before = kernels.multiply(weight, inputs)

    kernels.close()
    kernels.close()

    assert kernels.multiply(weight, inputs).tobytes() == before.tobytes()
