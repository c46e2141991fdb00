"""The slow dequantiser against the ``gguf`` package's, an implementation of other authors."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf import quants

from local_backend.errors import UnsupportedModel
from local_backend.gguf.codebook_blocks import codebook, even_signs
from local_backend.gguf.dequantize import SUPPORTED_TYPES, dequantize
from local_backend.gguf.format import GGMLType
from tests.local_backend.gguf.record_codebooks import codebooks


def random_blocks(kind: GGMLType, count: int, seed: int) -> np.ndarray:
    """Random bytes; the half-precision scales among them are sometimes NaN, which must stay NaN."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, kind.block_bytes), dtype=np.uint8)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # random scales are sometimes infinite
@pytest.mark.parametrize("kind", sorted(SUPPORTED_TYPES), ids=lambda kind: kind.name)
def test_every_type_equals_the_other_implementation(kind: GGMLType) -> None:
    blocks = random_blocks(kind, 512, seed=kind.value)
    if kind is GGMLType.MXFP4:
        blocks[:, 0] %= 255  # 255 is NaN in the format
    expected = quants.dequantize(blocks, gguf.GGMLQuantizationType(kind.value)).reshape(-1)

    found = dequantize(kind, blocks.reshape(-1), (512, kind.block_elements)).reshape(-1)

    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=2e-7, atol=0)


def test_a_type_without_a_dequantiser_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModel, match="IQ1_S"):
        dequantize(GGMLType.IQ1_S, np.zeros(50, dtype=np.uint8), (1, 256))


def test_the_shape_is_that_of_the_tensor() -> None:
    blocks = random_blocks(GGMLType.Q8_0, 12, seed=1)

    assert dequantize(GGMLType.Q8_0, blocks.reshape(-1), (2, 3, 64)).shape == (2, 3, 64)


def test_the_codebooks_are_those_of_the_other_implementation() -> None:
    for name, book in codebooks().items():
        np.testing.assert_array_equal(codebook(name), book)


def test_the_eighth_sign_makes_their_number_even() -> None:
    assert even_signs(np.arange(128)).tobytes() == quants.IQ2_XXS.ksigns
