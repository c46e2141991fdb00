"""Names for the arrays that operations pass around. Knows no operation."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["FloatArray", "HalfArray", "IntArray"]

FloatArray: TypeAlias = NDArray[np.float32]
HalfArray: TypeAlias = NDArray[np.float16]
IntArray: TypeAlias = NDArray[np.int32]
