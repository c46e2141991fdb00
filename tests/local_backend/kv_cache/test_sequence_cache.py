from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_backend.kv_cache.sequence_cache import CacheError, SequenceCache, cache_bytes
from local_backend.model.specification import (
    AttentionSpecification,
    DenseFeedForward,
    LayerSpecification,
    ModelSpecification,
    RopeSpecification,
    RopeStyle,
)


def specification(layers: int = 2) -> ModelSpecification:
    attention = AttentionSpecification(
        heads=4,
        kv_heads=2,
        key_dimension=6,
        value_dimension=4,
        scale=1.0,
        rope=RopeSpecification(RopeStyle.NORMAL, 6, 10000.0),
    )
    layer = LayerSpecification(attention, DenseFeedForward(8), 1e-5)
    return ModelSpecification("llama", "tiny", 8, 32, 16, 1e-5, (layer,) * layers, tied_head=True)


def test_shapes_and_bytes_follow_the_specification() -> None:
    cache = SequenceCache(specification(), 16)

    assert cache.keys(0).shape == (16, 2, 6)
    assert cache.values(1).shape == (16, 2, 4)
    total = sum(cache.keys(i).nbytes + cache.values(i).nbytes for i in range(2))
    assert cache_bytes(specification(), 16) == total


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), max_size=10), st.lists(st.integers(0, 2), min_size=1, max_size=10))
def test_the_common_prefix_is_reused_but_one_token_is_left_to_compute(
    kept: list[int], prompt: list[int]
) -> None:
    cache = SequenceCache(specification(), 16)
    cache.append(kept)
    reused = cache.reusable(prompt)

    assert reused <= len(prompt) - 1
    assert kept[:reused] == prompt[:reused]
    if reused < min(len(kept), len(prompt) - 1):
        assert kept[reused] != prompt[reused]


def test_capacity_is_never_passed() -> None:
    cache = SequenceCache(specification(), 3)
    cache.append([1, 2])

    assert cache.can_append(1)
    assert not cache.can_append(2)
    with pytest.raises(CacheError, match="do not fit"):
        cache.append([3, 4])
    assert cache.tokens == (1, 2)


def test_truncating_forgets_the_end() -> None:
    cache = SequenceCache(specification(), 4)
    cache.append([1, 2, 3])
    cache.truncate(1)

    assert cache.tokens == (1,)
    with pytest.raises(CacheError, match="truncate"):
        cache.truncate(2)


def test_integrity_names_the_layer_of_a_row_that_is_not_finite() -> None:
    cache = SequenceCache(specification(), 4)
    cache.append([1, 2])
    cache.check_integrity()
    cache.values(1)[3] = np.nan
    cache.check_integrity()
    cache.values(1)[1] = np.nan

    with pytest.raises(CacheError, match="layer 1"):
        cache.check_integrity()
    cache.check_integrity(rows=False)


def test_a_cache_without_positions_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        SequenceCache(specification(), 0)
