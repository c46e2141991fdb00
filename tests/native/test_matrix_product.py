from __future__ import annotations

import numpy as np
import pytest

from local_backend.gguf.format import GGMLType
from local_backend.kernels.native import InstructionSet
from local_backend.kernels.precision import ActivationBits
from tests.native.conftest import MakeKernels
from tests.native.random_weights import COMPUTED_TYPES, as_floats, float_weight, random_weight, rounded

SETS: tuple[InstructionSet, ...] = ("scalar", "avx2", "avx512")
PRECISIONS: tuple[ActivationBits, ...] = (8, 16)
FLOAT_TYPES = {GGMLType.F32, GGMLType.F16, GGMLType.BF16}

# Largest error allowed as a share of sum |weight * input|. Against inputs rounded like the kernels' own, only
# float32 sums differ; types with an offset or a minimum lose a little more to cancellation.
TOLERANCE = dict.fromkeys(COMPUTED_TYPES, 1e-6) | {
    GGMLType.Q4_1: 2e-6,
    GGMLType.Q5_1: 2e-6,
    GGMLType.Q4_K: 2e-6,
    GGMLType.Q5_K: 2e-6,
}


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("kind", COMPUTED_TYPES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("bits", PRECISIONS)
@pytest.mark.parametrize("blocks", [1, 3, 18])
def test_products_of_every_type_and_set_agree_with_numpy(
    make_kernels: MakeKernels, isa: InstructionSet, kind: GGMLType, blocks: int, bits: ActivationBits
) -> None:
    kernels = make_kernels(isa, bits=bits)
    columns = blocks * max(kind.block_elements, 32)
    rng = np.random.default_rng(blocks)
    for rows, tokens in ((70, 1), (1, 2), (32, 3), (33, 7), (31, 33), (47, 130)):
        weight = random_weight(kind, (rows, columns), seed=rows)
        inputs = rng.normal(0.0, 1.0, (tokens, columns)).astype(np.float32)

        got = kernels.multiply(weight, inputs)

        matrix = as_floats(weight).astype(np.float64)
        exact = inputs.astype(np.float64) if kind in FLOAT_TYPES else rounded(inputs, bits)
        bound = TOLERANCE[kind] * (np.abs(exact) @ np.abs(matrix).T) + 1e-12
        assert np.all(np.abs(got - exact @ matrix.T) <= bound), (rows, tokens)


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("kind", sorted(set(COMPUTED_TYPES) - FLOAT_TYPES), ids=lambda kind: kind.name)
def test_sixteen_bits_are_a_hundred_times_nearer_to_exact_than_eight(
    make_kernels: MakeKernels, isa: InstructionSet, kind: GGMLType
) -> None:
    weight = random_weight(kind, (64, 768), seed=12)
    inputs = np.random.default_rng(13).normal(0.0, 1.0, (8, 768)).astype(np.float32)
    exact = inputs.astype(np.float64) @ as_floats(weight).astype(np.float64).T

    for tokens in (1, 8):
        error = {
            bits: np.sqrt(
                (
                    (make_kernels(isa, bits=bits).multiply(weight, inputs[:tokens]) - exact[:tokens]) ** 2
                ).mean()
            )
            for bits in PRECISIONS
        }
        assert error[16] < error[8] / 100


@pytest.mark.parametrize("bits", PRECISIONS)
@pytest.mark.parametrize("isa", SETS)
def test_extreme_quants_do_not_overflow(
    make_kernels: MakeKernels, isa: InstructionSet, bits: ActivationBits
) -> None:
    kernels = make_kernels(isa, bits=bits)
    inputs = np.ones((5, 256), dtype=np.float32)
    inputs[:, ::2] = -1.0
    for kind, byte in (
        (GGMLType.Q8_0, 0x80),
        (GGMLType.Q8_0, 0x7F),
        (GGMLType.Q6_K, 0xFF),
        (GGMLType.Q4_0, 0),
    ):
        weight = random_weight(kind, (32, 256), seed=1)
        blocks = weight.data.reshape(-1, kind.block_bytes)
        if kind is GGMLType.Q6_K:
            blocks[:, :192] = byte
        else:
            blocks[:, 2:] = byte
        for signs in (inputs, np.abs(inputs)):
            for tokens in (1, 5):
                got = kernels.multiply(weight, signs[:tokens])

                matrix = as_floats(weight).astype(np.float64)
                exact = signs[:tokens].astype(np.float64)
                bound = 1e-6 * (np.abs(exact) @ np.abs(matrix).T) + 1e-9
                assert np.all(np.abs(got - exact @ matrix.T) <= bound)


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("columns", [1, 5, 40, 100])
def test_float_matrices_may_have_any_width(
    make_kernels: MakeKernels, isa: InstructionSet, columns: int
) -> None:
    kernels = make_kernels(isa)
    rng = np.random.default_rng(columns)
    for kind in sorted(FLOAT_TYPES):
        weight = random_weight(kind, (9, columns), seed=3)
        inputs = rng.normal(size=(4, columns)).astype(np.float32)

        got = kernels.multiply(weight, inputs)

        np.testing.assert_allclose(got, inputs @ as_floats(weight).T, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("kind", COMPUTED_TYPES, ids=lambda kind: kind.name)
def test_embedding_rows_are_exactly_the_dequantised_ones(
    make_kernels: MakeKernels, isa: InstructionSet, kind: GGMLType
) -> None:
    kernels = make_kernels(isa)
    weight = random_weight(kind, (11, 768), seed=5)
    tokens = np.array([10, 0, 3, 3], dtype=np.int32)

    got = kernels.embed(weight, tokens)

    want = as_floats(weight)[tokens]
    # Where a set fuses d * q + m, one rounding fewer happens.
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-7 * float(np.abs(want).max()))


def test_zero_inputs_give_zero(make_kernels: MakeKernels) -> None:
    kernels = make_kernels()
    weight = random_weight(GGMLType.Q4_1, (40, 64), seed=6)
    for tokens in (1, 9):
        assert not kernels.multiply(weight, np.zeros((tokens, 64), dtype=np.float32)).any()


def test_logits_are_the_head_times_the_normalised_hidden(make_kernels: MakeKernels) -> None:
    kernels = make_kernels()
    rng = np.random.default_rng(7)
    hidden = rng.normal(size=(3, 96)).astype(np.float32)
    norm = rng.normal(size=96).astype(np.float32)
    head = rng.normal(size=(51, 96)).astype(np.float32)

    got = kernels.logits(hidden, float_weight(norm), float_weight(head), 1e-5)

    root = np.sqrt((hidden.astype(np.float64) ** 2).mean(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(got, (hidden / root * norm) @ head.T, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("bits", PRECISIONS)
@pytest.mark.parametrize("kind", COMPUTED_TYPES, ids=lambda kind: kind.name)
def test_the_number_of_threads_changes_no_bit(
    make_kernels: MakeKernels, kind: GGMLType, bits: ActivationBits
) -> None:
    weight = random_weight(kind, (530, 512), seed=8)
    inputs = np.random.default_rng(9).normal(size=(70, 512)).astype(np.float32)
    alone = make_kernels(threads=1, bits=bits)
    wanted = {tokens: alone.multiply(weight, inputs[:tokens]).tobytes() for tokens in (1, 70)}

    for threads in (2, 3, 8):
        kernels = make_kernels(threads=threads, bits=bits)
        for tokens, bytes_alone in wanted.items():
            assert kernels.multiply(weight, inputs[:tokens]).tobytes() == bytes_alone
