"""The KV cache of one sequence: float16 rows for every layer, with the tokens they stand for.

A slot keeps its rows when a request ends; the next request reuses the longest common prefix. Knows
tokens and rows; not requests, nor how keys and values are computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from local_backend.model.specification import ModelSpecification

__all__ = ["CacheError", "SequenceCache", "cache_bytes"]


class CacheError(AssertionError):
    """The cache's books do not add up: a fault of ours, never of a request."""


def cache_bytes(specification: ModelSpecification, capacity: int) -> int:
    """Bytes that a cache of ``capacity`` positions takes when all of it is in use."""
    halves = sum(
        layer.attention.kv_heads * (layer.attention.key_dimension + layer.attention.value_dimension)
        for layer in specification.layers
    )
    return halves * capacity * 2


class SequenceCache:
    """Rows 0 .. ``length``-1 of each layer hold the keys and values of ``tokens`` at those positions.

    One owner, one thread. The memory is reserved at once and becomes resident as rows are written.
    """

    def __init__(self, specification: ModelSpecification, capacity: int) -> None:
        if capacity < 1:
            msg = f"a cache needs at least one position, not {capacity}"
            raise ValueError(msg)
        self._capacity = capacity
        self._tokens: list[int] = []
        # np.zeros maps zero pages lazily: an unused context costs address space, not memory.
        self._keys = [
            np.zeros((capacity, a.kv_heads, a.key_dimension), dtype=np.float16)
            for a in (layer.attention for layer in specification.layers)
        ]
        self._values = [
            np.zeros((capacity, a.kv_heads, a.value_dimension), dtype=np.float16)
            for a in (layer.attention for layer in specification.layers)
        ]

    @property
    def capacity(self) -> int:
        """Positions there is room for."""
        return self._capacity

    @property
    def length(self) -> int:
        """Positions in use."""
        return len(self._tokens)

    @property
    def tokens(self) -> tuple[int, ...]:
        """What the rows stand for, by position."""
        return tuple(self._tokens)

    def keys(self, layer: int) -> NDArray[np.float16]:
        """One layer's keys [S, G, D], all rows, writable."""
        return self._keys[layer]

    def values(self, layer: int) -> NDArray[np.float16]:
        """One layer's values [S, G, Dv], all rows, writable."""
        return self._values[layer]

    def reusable(self, prompt: Sequence[int]) -> int:
        """Count the positions of ``prompt`` whose rows are here already.

        At least one token of the prompt is left out, since only a computed token yields logits.
        """
        limit = min(len(self._tokens), len(prompt) - 1)
        for position in range(limit):
            if self._tokens[position] != prompt[position]:
                return position
        return max(0, limit)

    def truncate(self, length: int) -> None:
        """Forget every position from ``length`` on; the rows stay where they are and are overwritten."""
        if not 0 <= length <= len(self._tokens):
            msg = f"cannot truncate a cache of {len(self._tokens)} positions to {length}"
            raise CacheError(msg)
        del self._tokens[length:]

    def can_append(self, count: int) -> bool:
        """Whether ``count`` more positions fit."""
        return len(self._tokens) + count <= self._capacity

    def append(self, tokens: Sequence[int]) -> None:
        """Record that the rows after the present ones were written for ``tokens``."""
        if not self.can_append(len(tokens)):
            msg = f"{len(tokens)} positions do not fit: {len(self._tokens)} of {self._capacity} are in use"
            raise CacheError(msg)
        self._tokens.extend(int(token) for token in tokens)

    def check_integrity(self, *, rows: bool = True) -> None:
        """Raise :class:`CacheError` unless lengths agree and, with ``rows``, every row in use is finite."""
        if len(self._tokens) > self._capacity:
            msg = f"{len(self._tokens)} tokens in a cache of {self._capacity} positions"
            raise CacheError(msg)
        if any(token < 0 for token in self._tokens):
            msg = "a negative token id stands in the cache"
            raise CacheError(msg)
        for index, (keys, values) in enumerate(zip(self._keys, self._values, strict=True)):
            if len(keys) != self._capacity or len(values) != self._capacity:
                msg = f"layer {index} has rows for another capacity than {self._capacity}"
                raise CacheError(msg)
            used = slice(0, len(self._tokens))
            if rows and not (np.isfinite(keys[used]).all() and np.isfinite(values[used]).all()):
                msg = f"layer {index} holds a row that is not finite"
                raise CacheError(msg)
