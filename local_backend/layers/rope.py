"""Rotary position embedding (Su et al. 2021), linear scaling, and YaRN (Peng et al. 2023).

Knows heads and positions; not what is rotated, nor where a family keeps its settings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from local_backend.layers.array_types import FloatArray
from local_backend.model.specification import RopeSpecification, RopeStyle

__all__ = ["RotaryTable", "rotary_table", "rotate"]


@dataclass(frozen=True, slots=True)
class RotaryTable:
    """Angle per position of each pair of elements, ``step`` [P] in radians, and the rotation's magnitude."""

    style: RopeStyle
    step: NDArray[np.float64]
    magnitude: float


def rotary_table(specification: RopeSpecification, divisors: FloatArray | None = None) -> RotaryTable:
    """Work out the angles once a layer. ``divisors`` [P]: Llama 3's divisor of each pair's frequency."""
    pairs = specification.dimensions // 2
    exponent = np.arange(pairs, dtype=np.float64) * 2.0 / specification.dimensions
    extrapolated = specification.theta**-exponent  # [P]
    if divisors is not None:
        extrapolated = extrapolated / divisors.astype(np.float64)
    interpolated = extrapolated / specification.scaling_factor
    if specification.yarn_original_context is None or not specification.yarn_extrapolation:
        return RotaryTable(specification.style, interpolated, specification.yarn_attention_factor)

    keep = _yarn_ramp(specification, pairs) * specification.yarn_extrapolation  # [P], 1 = do not stretch
    step = interpolated * (1.0 - keep) + extrapolated * keep
    magnitude = specification.yarn_attention_factor * (1.0 + 0.1 * math.log(specification.scaling_factor))
    return RotaryTable(specification.style, step, magnitude)


def rotate(x: FloatArray, start: int, table: RotaryTable) -> FloatArray:
    """Rotate ``x`` [T, H, D], whose rows stand at positions ``start ..``; elements past the pairs stay."""
    pairs = len(table.step)
    positions = np.arange(start, start + len(x), dtype=np.float64)
    angle = positions[:, None] * table.step[None, :]  # [T, P]
    cosine = (np.cos(angle) * table.magnitude).astype(np.float32)[:, None, :]  # [T, 1, P]
    sine = (np.sin(angle) * table.magnitude).astype(np.float32)[:, None, :]  # [T, 1, P]

    rotated = x.copy()
    if table.style is RopeStyle.NORMAL:
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    else:
        first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    rotated[..., first] = x[..., first] * cosine - x[..., second] * sine  # [T, H, P]
    rotated[..., second] = x[..., first] * sine + x[..., second] * cosine  # [T, H, P]
    return rotated


def _yarn_ramp(specification: RopeSpecification, pairs: int) -> NDArray[np.float64]:
    """Share of each pair that keeps its frequency: 1 for fast pairs, 0 for slow ones, linear between."""
    original = specification.yarn_original_context or 0

    def pair_turning(times: float) -> float:
        """Index of the pair that turns so many times within the original context."""
        wavelengths = original / (times * 2.0 * math.pi)
        return specification.dimensions * math.log(wavelengths) / (2.0 * math.log(specification.theta))

    low = max(0.0, math.floor(pair_turning(specification.yarn_beta_fast)))
    high = min(specification.dimensions - 1.0, math.ceil(pair_turning(specification.yarn_beta_slow)))
    progress = (np.arange(pairs, dtype=np.float64) - low) / max(0.001, high - low)
    return 1.0 - np.clip(progress, 0.0, 1.0)
