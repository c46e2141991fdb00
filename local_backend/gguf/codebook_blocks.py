"""Block types whose levels come in groups from a codebook (IQ2_XXS to IQ3_S) to float32.

A group is an index into the codebook (4 or 8 magnitudes) and a sign for each element. Source: ggml's public
block layouts; ``codebooks.npz`` holds its codebooks. Knows no file but that one, no tensors and no model.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from local_backend.gguf.block_fields import Bytes, Floats, bits, half, nibble_pairs

__all__ = ["codebook", "even_signs", "iq2_s", "iq2_xs", "iq2_xxs", "iq3_s", "iq3_xxs"]

# Seven signs are stored; the eighth makes the number of minus signs even.
_EVEN_SIGNS = np.array([index | (index.bit_count() & 1) << 7 for index in range(128)], dtype=np.uint8)
_SIGN_SHIFTS = np.array([0, 7, 14, 21], dtype=np.uint32)


@cache
def codebook(name: str) -> Floats:
    """Magnitudes of a type's groups, by its name in small letters: [entries, 4 or 8]."""
    with files("local_backend.gguf").joinpath("codebooks.npz").open("rb") as file, np.load(file) as books:
        book: Floats = books[name].astype(np.float32)
    book.flags.writeable = False
    return book


def even_signs(index: NDArray[np.integer]) -> Bytes:
    """Seven stored signs, lowest first, to the eight they stand for."""
    signs: Bytes = _EVEN_SIGNS[index]
    return signs


def iq2_xxs(blocks: Bytes) -> Floats:
    """Scale; for 32 elements 4 indices of 8 bits, 4 times 7 signs, a factor of 4 bits: [N, 66] → [N, 256]."""
    parts = np.ascontiguousarray(blocks[:, 2:]).reshape(-1, 8, 8)
    words = parts[:, :, 4:].copy().view("<u4")  # [N, 8, 1]
    factors = half(blocks, 0) * (np.float32(0.5) + (words[:, :, 0] >> 28)) * np.float32(0.25)  # [N, 8]
    return _joined("iq2_xxs", parts[:, :, :4], even_signs(words >> _SIGN_SHIFTS & 127), factors)


def iq2_xs(blocks: Bytes) -> Floats:
    """Scale; 32 times an index of 9 bits and 7 signs; 16 factors of 4 bits: [N, 74] → [N, 256]."""
    words = np.ascontiguousarray(blocks[:, 2:66]).view("<u2")  # [N, 32]
    factors = half(blocks, 0) * (np.float32(0.5) + nibble_pairs(blocks[:, 66:])) * np.float32(0.25)  # [N, 16]
    return _joined("iq2_xs", words & 511, even_signs(words >> 9), factors)


def iq2_s(blocks: Bytes) -> Floats:
    """Scale; 32 low bytes of an index; 32 bytes of signs; 32 times 2 upper bits; 16 factors: [N, 82]."""
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8)
    upper = (blocks[:, 66:74, None] >> shifts & 3).reshape(-1, 32).astype(np.uint16)
    factors = half(blocks, 0) * (np.float32(0.5) + nibble_pairs(blocks[:, 74:])) * np.float32(0.25)  # [N, 16]
    return _joined("iq2_s", blocks[:, 2:34] | upper << 8, blocks[:, 34:66], factors)


def iq3_xxs(blocks: Bytes) -> Floats:
    """Scale; 64 indices of 8 bits; for 32 elements 4 times 7 signs and a factor of 4 bits: [N, 98]."""
    words = np.ascontiguousarray(blocks[:, 66:]).view("<u4")[:, :, None]  # [N, 8, 1]
    factors = half(blocks, 0) * (np.float32(0.5) + (words[:, :, 0] >> 28)) * np.float32(0.5)  # [N, 8]
    return _joined("iq3_xxs", blocks[:, 2:66], even_signs(words >> _SIGN_SHIFTS & 127), factors)


def iq3_s(blocks: Bytes) -> Floats:
    """Scale; 64 low bytes of an index; 64 ninth bits; 32 bytes of signs; 8 factors of 4 bits: [N, 110]."""
    upper = bits(blocks[:, 66:74]).astype(np.uint16)  # [N, 64]
    factors = half(blocks, 0) * (np.float32(1) + 2 * nibble_pairs(blocks[:, 106:]))  # [N, 8]
    return _joined("iq3_s", blocks[:, 2:66] | upper << 8, blocks[:, 74:106], factors)


def _joined(name: str, index: NDArray[np.integer], signs: Bytes, factors: Floats) -> Floats:
    """Look groups up and apply signs (a byte for 8 elements) and factors (in order): → [N, 256]."""
    count, parts = factors.shape
    magnitudes = codebook(name)[index].reshape(count, parts, -1)  # [N, parts, 256 / parts]
    minus = bits(signs.reshape(count, 32)).reshape(count, parts, -1)
    values: Floats = factors[:, :, None].astype(np.float32) * magnitudes
    return np.where(minus, -values, values).reshape(count, 256)
