"""Whole tiny models of every family through the reference kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from local_backend.config import KernelPreference
from local_backend.engine.forward import ForwardContext, all_logits, compute, prepare
from local_backend.errors import NativeUnavailable, UnsupportedModel
from local_backend.gguf.format import GGMLType
from local_backend.kernels import select
from local_backend.kernels.base import Kernels
from local_backend.kernels.dequantised import DequantisedMatrices
from local_backend.kernels.reference import ReferenceKernels
from local_backend.kv_cache.sequence_cache import SequenceCache
from local_backend.model.loader import ModelFile, open_model
from local_backend.model.weights import TensorRole, Weight
from tests.availability import need
from tests.local_backend.tiny_gguf import ARCHITECTURES, write_tiny_model

TOKENS = [int(token) for token in np.random.default_rng(0).integers(3, 200, 24)]


def opened(
    tmp_path: Path, architecture: str, block_type: GGMLType = GGMLType.F32, *, tied: bool = True
) -> ModelFile:
    path = tmp_path / f"{architecture}.gguf"
    write_tiny_model(path, architecture, block_type, tied=tied)
    return open_model(path)


def context_of(file: ModelFile, kernels: Kernels | None = None) -> ForwardContext:
    return prepare(file.specification, file.weights, kernels or ReferenceKernels(), lambda _: None)


def logits_of(context: ForwardContext, chunks: list[list[int]]) -> NDArray[np.float32]:
    cache = SequenceCache(context.specification, 64)
    logits = [all_logits(context, compute(context, chunk, cache, lambda: False)) for chunk in chunks]
    cache.check_integrity()
    return np.concatenate(logits)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("tied", [False, True])
def test_chunks_and_single_tokens_give_what_the_whole_prompt_gives(
    tmp_path: Path, architecture: str, tied: bool
) -> None:
    with opened(tmp_path, architecture, tied=tied) as file:
        context = context_of(file)
        whole = logits_of(context, [TOKENS])
        chunked = logits_of(context, [TOKENS[:5], TOKENS[5:16], TOKENS[16:]])
        single = logits_of(context, [[token] for token in TOKENS])

    assert whole.std() > 0.01
    np.testing.assert_allclose(chunked, whole, atol=2e-3)
    np.testing.assert_allclose(single, whole, atol=2e-3)
    np.testing.assert_array_equal(single.argmax(axis=1), whole.argmax(axis=1))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_later_token_changes_no_earlier_logits(tmp_path: Path, architecture: str) -> None:
    with opened(tmp_path, architecture) as file:
        context = context_of(file)
        before = logits_of(context, [TOKENS])
        after = logits_of(context, [[*TOKENS[:-1], TOKENS[0]]])

    np.testing.assert_allclose(after[:-1], before[:-1], atol=1e-5)
    assert not np.allclose(after[-1], before[-1], atol=1e-3)


@pytest.mark.parametrize("architecture", ["llama", "qwen3moe"])
def test_what_is_kept_between_tokens_changes_nothing(tmp_path: Path, architecture: str) -> None:
    with opened(tmp_path, architecture, GGMLType.Q8_0) as file:
        kept = logits_of(context_of(file, ReferenceKernels()), [TOKENS, TOKENS[:3]])
        anew = logits_of(context_of(file, ReferenceKernels(bound_bytes=0)), [TOKENS, TOKENS[:3]])

    np.testing.assert_array_equal(kept, anew)


def test_the_bound_on_kept_matrices_holds() -> None:
    matrices = DequantisedMatrices(bound_bytes=100)
    small = Weight("small", GGMLType.F32, (2, 8), np.zeros(64, dtype=np.uint8))
    large = Weight("large", GGMLType.F32, (2, 8), np.zeros(64, dtype=np.uint8))

    assert matrices.matrix(small) is matrices.matrix(small)
    assert matrices.matrix(large) is not matrices.matrix(large)
    assert matrices.kept_bytes == 64


def test_rows_of_the_embedding_are_those_of_the_matrix(tmp_path: Path) -> None:
    with opened(tmp_path, "llama", GGMLType.Q4_1) as file:
        embedding = file.weights.shared[TensorRole.TOKEN_EMBEDDING]
        matrices = DequantisedMatrices(1 << 20)
        rows = matrices.rows(embedding, np.array([5, 0, 5], dtype=np.int32))
        whole = matrices.matrix(embedding)

    np.testing.assert_array_equal(rows, whole[[5, 0, 5]])


def test_auto_falls_back_to_the_reference_and_says_why() -> None:
    odd = Weight("odd", GGMLType.F64, (1, 1), np.zeros(8, dtype=np.uint8))
    plain = Weight("plain", GGMLType.F32, (1, 1), np.zeros(4, dtype=np.uint8))

    assert select(KernelPreference.REFERENCE, [plain], None).kernels.name == "reference"
    with pytest.raises(UnsupportedModel, match=r"odd.*F64"):
        select(KernelPreference.REFERENCE, [odd], None)
    with pytest.raises((NativeUnavailable, UnsupportedModel)):
        select(KernelPreference.NATIVE, [odd], None)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("block_type", [GGMLType.F32, GGMLType.F16, GGMLType.Q8_0, GGMLType.Q4_1])
def test_native_kernels_agree_with_the_reference(
    tmp_path: Path, architecture: str, block_type: GGMLType
) -> None:
    with opened(tmp_path, architecture, block_type) as file:
        tensors = [weight for layer in file.weights.layers for weight in layer.values()]
        try:
            native = select(KernelPreference.NATIVE, tensors, 2).kernels
        except NativeUnavailable:
            need("the native module", False, "python3 bootstrap.py test builds it")
            return
        except UnsupportedModel as error:
            pytest.fail(f"every type here must be computed natively: {error}")
        try:
            got = logits_of(context_of(file, native), [TOKENS[:20], *([token] for token in TOKENS[20:])])
        finally:
            native.close()
        expected = logits_of(context_of(file), [TOKENS])

    # Native kernels round activations to eight bits in quantised products. Where two experts are nearly as
    # good as each other, that may change the choice of a token; so most tokens are looked at, not all.
    errors = np.sqrt(np.mean((got - expected) ** 2, axis=1)) / expected.std()
    assert np.quantile(errors, 0.9) < (0.05 if block_type in {GGMLType.Q8_0, GGMLType.Q4_1} else 0.01)
