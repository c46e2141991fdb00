"""Pieces that the layouts of blocks share: scales, nibbles, bits. Knows no whole block type.

Each function takes blocks as rows of bytes, ``[N, block_bytes]`` uint8, or a part of their columns.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bytes", "Floats", "bits", "crumbs", "half", "nibble_pairs", "nibbles"]

Bytes: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[np.float32]


def half(blocks: Bytes, start: int) -> Floats:
    """Float16 at byte ``start`` of each block → [N, 1]."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


def nibbles(packed: Bytes) -> Bytes:
    """[..., B] bytes → [..., 2B]: all low halves, then all high halves."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def nibble_pairs(packed: Bytes) -> Bytes:
    """[N, B] bytes → [N, 2B]: of each byte its low half, then its high half."""
    return np.stack([packed & 15, packed >> 4], axis=2).reshape(len(packed), -1)


def bits(packed: Bytes) -> Bytes:
    """[N, B] bytes → [N, 8B] bits, lowest first."""
    return np.unpackbits(packed, axis=1, bitorder="little")


def crumbs(packed: Bytes) -> Bytes:
    """2-bit levels: [N, 64] → [N, 256]; each half of 32 bytes gives four planes of 32."""
    halves = packed.reshape(-1, 2, 1, 32)
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8).reshape(1, 1, 4, 1)
    return (halves >> shifts & np.uint8(3)).reshape(-1, 256)
