"""Weights of random blocks: every bit pattern of the quants, scales of a sensible size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from local_backend.gguf.dequantize import dequantize
from local_backend.gguf.format import GGMLType
from local_backend.kernels.precision import ActivationBits
from local_backend.model.weights import Weight

__all__ = ["COMPUTED_TYPES", "as_floats", "float_weight", "random_weight", "rounded"]

COMPUTED_TYPES = (
    GGMLType.F32,
    GGMLType.F16,
    GGMLType.BF16,
    GGMLType.Q8_0,
    GGMLType.Q4_0,
    GGMLType.Q4_1,
    GGMLType.Q5_0,
    GGMLType.Q5_1,
    GGMLType.Q4_K,
    GGMLType.Q5_K,
    GGMLType.Q6_K,
)

# Where float16 scales and minima lie in a block.
_HALVES = {
    GGMLType.Q8_0: (0,),
    GGMLType.Q4_0: (0,),
    GGMLType.Q4_1: (0, 2),
    GGMLType.Q5_0: (0,),
    GGMLType.Q5_1: (0, 2),
    GGMLType.Q4_K: (0, 2),
    GGMLType.Q5_K: (0, 2),
    GGMLType.Q6_K: (208,),
}


def random_weight(kind: GGMLType, shape: tuple[int, ...], seed: int, scale: float = 0.02) -> Weight:
    """Random blocks of a type; elements are of the order of ``scale`` times their quants."""
    rng = np.random.default_rng(seed)
    if kind in {GGMLType.F32, GGMLType.F16, GGMLType.BF16}:
        values = rng.normal(0.0, 1.0, shape).astype(np.float32)
        return _of_floats(kind, values)
    blocks = int(np.prod(shape)) // kind.block_elements
    data = rng.integers(0, 256, (blocks, kind.block_bytes), dtype=np.uint8)
    for place in _HALVES[kind]:
        halves = rng.normal(0.0, scale, blocks).astype("<f2")
        data[:, place : place + 2] = halves.view(np.uint8).reshape(blocks, 2)
    return Weight(name=f"random {kind.name}", type=kind, shape=shape, data=data.reshape(-1))


def float_weight(values: NDArray[np.float32], name: str = "floats") -> Weight:
    """Wrap an array as an F32 weight."""
    data = np.ascontiguousarray(values, dtype="<f4").view(np.uint8).reshape(-1)
    return Weight(name=name, type=GGMLType.F32, shape=values.shape, data=data)


def as_floats(weight: Weight) -> NDArray[np.float32]:
    """Dequantise by the NumPy oracle."""
    return dequantize(weight.type, weight.data, weight.shape)


def rounded(inputs: NDArray[np.float32], bits: ActivationBits = 8) -> NDArray[np.float64]:
    """Round inputs [T, E] to so many bits per 32 elements, as the kernels for quantised types do."""
    largest = np.float32({8: 127, 16: 127 * 255 + 127}[bits])
    blocks = inputs.reshape(len(inputs), -1, 32)
    peak = np.abs(blocks).max(axis=-1, keepdims=True)
    inverse = np.divide(largest, peak, out=np.zeros_like(peak), where=peak > 0)
    quants = np.rint(blocks * inverse)
    scales = (peak / largest).astype(np.float64)
    values: NDArray[np.float64] = (quants * scales).reshape(inputs.shape)
    return values


def _of_floats(kind: GGMLType, values: NDArray[np.float32]) -> Weight:
    if kind is GGMLType.F32:
        return float_weight(values)
    if kind is GGMLType.F16:
        raw = values.astype("<f2").view(np.uint8)
    else:
        raw = (values.view(np.uint32) >> 16).astype("<u2").view(np.uint8)
    return Weight(name=f"random {kind.name}", type=kind, shape=values.shape, data=raw.reshape(-1))
