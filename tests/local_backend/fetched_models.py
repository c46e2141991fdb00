"""Models that tests read and nobody is given: fetched by ``.ci/models``, absent on most machines."""

from __future__ import annotations

from pathlib import Path

from tests.availability import need

__all__ = ["gemma3"]

FOLDER = Path(__file__).parents[2] / ".bootstrap" / "models"


def gemma3() -> Path:
    """Return Gemma 3 270M, Q4_K_M; skips, or fails where everything is required, without it."""
    path = FOLDER / "gemma-3-270m-q4_k_m.gguf"
    need("the Gemma 3 weights", path.exists(), ".ci/models fetches them")
    return path
