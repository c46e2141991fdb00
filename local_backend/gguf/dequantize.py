"""Every block type to float32, slowly and obviously: the oracle of the fast paths, never one of them.

Each function takes blocks as rows of bytes, ``[N, block_bytes]`` uint8, and returns ``[N, block_elements]``
float32. Source: ggml's public block layouts. Knows no file, no tensor names and no model.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from local_backend.errors import UnsupportedModel
from local_backend.gguf import codebook_blocks
from local_backend.gguf.block_fields import Bytes, Floats, bits, crumbs, half, nibble_pairs, nibbles
from local_backend.gguf.format import GGMLType

__all__ = ["SUPPORTED_TYPES", "dequantize"]

# Levels of the non-linear 4-bit types and of e2m1 (OCP Microscaling specification), the latter doubled.
_IQ4_LEVELS = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.float32
)
_E2M1_LEVELS_DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=np.float32)


def dequantize(kind: GGMLType, data: Bytes, shape: tuple[int, ...]) -> Floats:
    """Turn a tensor's bytes (one-dimensional) into float32 of ``shape``, whose last axis runs along rows.

    Raises ``UnsupportedModel`` for a block type outside :data:`SUPPORTED_TYPES`.
    """
    function = _FUNCTIONS.get(kind)
    if function is None:
        names = tuple(sorted(known.name for known in SUPPORTED_TYPES))
        raise UnsupportedModel("tensor data", f"block type {kind.name}", names)
    blocks = data.reshape(-1, kind.block_bytes)
    return function(blocks).reshape(shape)


def _f32(blocks: Bytes) -> Floats:
    return np.ascontiguousarray(blocks).view("<f4").astype(np.float32)


def _f16(blocks: Bytes) -> Floats:
    return np.ascontiguousarray(blocks).view("<f2").astype(np.float32)


def _bf16(blocks: Bytes) -> Floats:
    """Keep what is the upper half of a float32."""
    return (np.ascontiguousarray(blocks).view("<u2").astype(np.uint32) << 16).view(np.float32)


def _q8_0(blocks: Bytes) -> Floats:
    """Scale; 32 int8."""
    return half(blocks, 0) * np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32)


def _q4_0(blocks: Bytes) -> Floats:
    """Scale; 32 nibbles around 8."""
    return half(blocks, 0) * (nibbles(blocks[:, 2:]).astype(np.float32) - 8)


def _q4_1(blocks: Bytes) -> Floats:
    """Scale, minimum; 32 nibbles."""
    return half(blocks, 0) * nibbles(blocks[:, 4:]).astype(np.float32) + half(blocks, 2)


def _q5_0(blocks: Bytes) -> Floats:
    """Scale; 32 fifth bits; 32 nibbles; around 16."""
    levels = nibbles(blocks[:, 6:]) | bits(blocks[:, 2:6]) << 4
    return half(blocks, 0) * (levels.astype(np.float32) - 16)


def _q5_1(blocks: Bytes) -> Floats:
    """Scale, minimum; 32 fifth bits; 32 nibbles."""
    levels = nibbles(blocks[:, 8:]) | bits(blocks[:, 4:8]) << 4
    return half(blocks, 0) * levels.astype(np.float32) + half(blocks, 2)


def _q2_k(blocks: Bytes) -> Floats:
    """16 bytes of 4-bit scale and 4-bit minimum; 64 bytes of 2-bit levels; scale of scales, of minima."""
    count = len(blocks)
    scales = half(blocks, 80) * (blocks[:, :16] & 15)  # [N, 16]
    minima = half(blocks, 82) * (blocks[:, :16] >> 4)  # [N, 16]
    levels = crumbs(blocks[:, 16:80]).reshape(count, 16, 16)
    return (scales[:, :, None] * levels - minima[:, :, None]).astype(np.float32)


def _q3_k(blocks: Bytes) -> Floats:
    """32 bytes of third bits; 64 bytes of 2-bit levels; 16 six-bit scales around 32; scale of scales."""
    count = len(blocks)
    third = blocks[:, None, :32] >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1) & 1  # [N, 8, 32]
    levels = crumbs(blocks[:, 32:96]).astype(np.int16) - 4 * (1 - third.reshape(count, 256).astype(np.int16))
    low = nibbles(blocks[:, 96:104])  # [N, 16]
    high = (blocks[:, None, 104:108] >> np.array([0, 2, 4, 6], dtype=np.uint8).reshape(1, 4, 1) & 3).reshape(
        count, 16
    )
    scales = half(blocks, 108) * ((low | high << 4).astype(np.float32) - 32)  # [N, 16]
    return (scales[:, :, None] * levels.reshape(count, 16, 16)).astype(np.float32)


def _scales_and_minima(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Eight six-bit scales and minima in 12 bytes (Q4_K, Q5_K): [N, 12] → [N, 8], [N, 8]."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=1)
    minima = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)
    return scales, minima


def _with_minima(blocks: Bytes, levels: Bytes) -> Floats:
    """Apply scale, minimum and six-bit factors of Q4_K and Q5_K to levels [N, 8, 32]."""
    scales, minima = _scales_and_minima(blocks[:, 4:16])
    values: Floats = (half(blocks, 0) * scales)[:, :, None] * levels - (half(blocks, 2) * minima)[:, :, None]
    return values.astype(np.float32)


def _q4_k(blocks: Bytes) -> Floats:
    """Scale, scale of minima; 12 bytes of six-bit factors; per 64 elements 32 bytes of nibbles."""
    return _with_minima(blocks, nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32))


def _q5_k(blocks: Bytes) -> Floats:
    """As Q4_K, with 32 bytes of fifth bits, one plane of bits per 32 elements."""
    fifth = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1) & np.uint8(
        1
    )  # [N, 8, 32]
    levels = nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32) | fifth << np.uint8(4)
    return _with_minima(blocks, levels)


def _q6_k(blocks: Bytes) -> Floats:
    """128 bytes of low nibbles; 64 of upper bit pairs; 16 int8 scales; scale of scales; around 32."""
    count = len(blocks)
    low = nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(count, 256)
    levels = (low | crumbs(blocks[:, 128:192]) << 4).astype(np.float32) - 32
    scales = half(blocks, 208) * np.ascontiguousarray(blocks[:, 192:208]).view(np.int8)  # [N, 16]
    return (scales[:, :, None] * levels.reshape(count, 16, 16)).astype(np.float32)


def _iq4_nl(blocks: Bytes) -> Floats:
    """Scale; 32 nibbles that index unevenly spaced levels."""
    return half(blocks, 0) * _IQ4_LEVELS[nibbles(blocks[:, 2:])]


def _iq4_xs(blocks: Bytes) -> Floats:
    """Scale; 8 six-bit factors around 32 (upper bit pairs, then nibbles); 8 times 16 bytes of nibbles."""
    upper = np.ascontiguousarray(blocks[:, 2:4]).view("<u2")  # [N, 1]
    high = upper >> np.arange(0, 16, 2, dtype=np.uint16) & 3  # [N, 8]
    low = nibble_pairs(blocks[:, 4:8])  # [N, 8]
    scales = half(blocks, 0) * ((low | high << 4).astype(np.float32) - 32)  # [N, 8]
    levels = _IQ4_LEVELS[nibbles(blocks[:, 8:].reshape(-1, 8, 16))]  # [N, 8, 32]
    values: Floats = scales[:, :, None] * levels
    return values


def _mxfp4(blocks: Bytes) -> Floats:
    """Power of two (E8M0, bias 127); 32 nibbles of e2m1."""
    # Levels are doubled, so the power is halved. E8M0's 255 is NaN in the format; ggml reads it as 2^128.
    scale = np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128)
    return scale * _E2M1_LEVELS_DOUBLED[nibbles(blocks[:, 1:])]


_FUNCTIONS: dict[GGMLType, Callable[[Bytes], Floats]] = {
    GGMLType.F32: _f32,
    GGMLType.F16: _f16,
    GGMLType.BF16: _bf16,
    GGMLType.Q8_0: _q8_0,
    GGMLType.Q4_0: _q4_0,
    GGMLType.Q4_1: _q4_1,
    GGMLType.Q5_0: _q5_0,
    GGMLType.Q5_1: _q5_1,
    GGMLType.Q2_K: _q2_k,
    GGMLType.Q3_K: _q3_k,
    GGMLType.Q4_K: _q4_k,
    GGMLType.Q5_K: _q5_k,
    GGMLType.Q6_K: _q6_k,
    GGMLType.IQ2_XXS: codebook_blocks.iq2_xxs,
    GGMLType.IQ2_XS: codebook_blocks.iq2_xs,
    GGMLType.IQ2_S: codebook_blocks.iq2_s,
    GGMLType.IQ3_XXS: codebook_blocks.iq3_xxs,
    GGMLType.IQ3_S: codebook_blocks.iq3_s,
    GGMLType.IQ4_NL: _iq4_nl,
    GGMLType.IQ4_XS: _iq4_xs,
    GGMLType.MXFP4: _mxfp4,
}
SUPPORTED_TYPES = frozenset(_FUNCTIONS)
"""Block types that can be turned into float32."""
