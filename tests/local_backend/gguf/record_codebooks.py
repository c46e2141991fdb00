"""Take the codebooks of the IQ types from the ``gguf`` package into ``local_backend/gguf/codebooks.npz``.

    python -m tests.local_backend.gguf.record_codebooks

The codebooks are ggml's (MIT licence); the package is needed for development only.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import quants
from numpy.typing import NDArray

TARGET = Path(__file__).parents[3] / "local_backend" / "gguf" / "codebooks.npz"
TYPES = (quants.IQ2_XXS, quants.IQ2_XS, quants.IQ2_S, quants.IQ3_XXS, quants.IQ3_S)


def codebooks() -> dict[str, NDArray[np.uint8]]:
    """Return each type's magnitudes by its name in small letters."""
    books = {}
    for kind in TYPES:
        kind.init_grid()
        assert kind.grid is not None
        books[kind.__name__.lower()] = kind.grid.reshape(kind.grid_shape).astype(np.uint8)
    return books


if __name__ == "__main__":
    np.savez_compressed(TARGET, allow_pickle=False, **codebooks())
