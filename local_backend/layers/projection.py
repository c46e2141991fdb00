"""Linear projection: x times a matrix's transpose, plus a bias. Knows no roles."""

from __future__ import annotations

from local_backend.layers.array_types import FloatArray

__all__ = ["project"]


def project(x: FloatArray, matrix: FloatArray, bias: FloatArray | None = None) -> FloatArray:
    """Map x [T, columns] by ``matrix`` [rows, columns] → [T, rows]; ``bias`` is [rows]."""
    if len(x) == 1:
        # BLAS runs a matrix-vector product at the memory's speed; as a product of two matrices with
        # one row it is about a hundred times slower.
        product: FloatArray = (matrix @ x[0])[None, :]  # [1, rows]
    else:
        product = x @ matrix.T  # [T, rows]
    return product if bias is None else product + bias
