"""Matrices of the reference kernels as float32, kept within a bound. Knows no layer and no family."""

from __future__ import annotations

import numpy as np

from local_backend.gguf.dequantize import dequantize
from local_backend.kernels.base import FloatArray, IntArray
from local_backend.model.weights import Weight

__all__ = ["DequantisedMatrices"]


class DequantisedMatrices:
    """Turns blocks into float32; keeps results until ``bound_bytes`` are used, first come first kept.

    Nothing is ever evicted: a model whose matrices fit is fast from the second token on, and in a larger
    one the rest is worked out anew at every use. One owner, one thread.
    """

    def __init__(self, bound_bytes: int) -> None:
        self._bound_bytes = bound_bytes
        self._kept: dict[str, FloatArray] = {}
        self._kept_bytes = 0

    @property
    def kept_bytes(self) -> int:
        """Bytes of float32 kept at present."""
        return self._kept_bytes

    def matrix(self, weight: Weight) -> FloatArray:
        """Return the whole tensor in its shape, e.g. [rows, columns]; do not write to it."""
        kept = self._kept.get(weight.name)
        if kept is not None:
            return kept
        array = dequantize(weight.type, weight.data, weight.shape)
        if self._kept_bytes + array.nbytes <= self._bound_bytes:
            self._kept[weight.name] = array
            self._kept_bytes += array.nbytes
        return array

    def rows(self, weight: Weight, indices: IntArray) -> FloatArray:
        """Return chosen rows of a matrix: indices [T] → [T, columns], without touching the others."""
        blocks = weight.data.reshape(weight.rows, weight.row_bytes)[indices]  # [T, row_bytes]
        shape = (len(indices), weight.columns)
        return dequantize(weight.type, np.ascontiguousarray(blocks).reshape(-1), shape)
