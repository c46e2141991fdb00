# The compiled module's surface. It checks shapes, types and contiguity, releases the GIL, raises ValueError.

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

class Matrix:
    # A weight matrix ``(rows, columns)``, or a stack of experts', over bytes it keeps alive.

    def __init__(self, kind: int, experts: int, rows: int, columns: int, data: NDArray[np.uint8]) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def columns(self) -> int: ...
    @property
    def experts(self) -> int: ...

class Runtime:
    # Kernels of one instruction set ("" for the best), worker threads (0: automatic), scratch memory;
    # inputs of quantised matrices are rounded to 8 or 16 bits.

    def __init__(self, isa: str, threads: int, activation_bits: int) -> None: ...
    @property
    def isa(self) -> str: ...
    @property
    def workers(self) -> int: ...
    def embed(self, matrix: Matrix, tokens: NDArray[np.int32], out: NDArray[np.float32]) -> None: ...
    def multiply(self, matrix: Matrix, inputs: NDArray[np.float32], out: NDArray[np.float32]) -> None: ...
    def head(
        self,
        matrix: Matrix,
        inputs: NDArray[np.float32],
        norm: NDArray[np.float32],
        epsilon: float,
        out: NDArray[np.float32],
    ) -> None: ...
    def read(self, data: NDArray[np.uint8]) -> int: ...
    def stop(self) -> None: ...

class LayerSettings:
    # Sizes and switches of one layer; zero means absent (window, experts, shared_width).

    hidden: int
    norm_epsilon: float
    heads: int
    kv_heads: int
    key_dimension: int
    value_dimension: int
    scale: float
    window: int
    rope_halves: bool
    rope_frequencies: list[float]
    rope_magnitude: float
    activation: int
    width: int
    experts: int
    used: int
    gating: int
    normalise_weights: bool
    weights_scale: float
    shared_width: int

    def __init__(self) -> None: ...

class Layer:
    # One decoder layer; ``matrices`` and ``vectors`` are keyed by tensor role.

    def __init__(
        self,
        runtime: Runtime,
        settings: LayerSettings,
        matrices: Mapping[str, Matrix],
        vectors: Mapping[str, Sequence[float]],
    ) -> None: ...
    def forward(
        self,
        hidden: NDArray[np.float32],
        start: int,
        keys: NDArray[np.uint16],
        values: NDArray[np.uint16],
    ) -> None: ...

def supports(kind: int) -> bool: ...
def available_sets() -> list[str]: ...
def topology() -> tuple[int, int, int]: ...
