"""What the engine asks of arithmetic: one interface, two implementations.

``reference`` is NumPy, slow and obvious, the oracle; ``native`` is C++. Both are built from a
:class:`~local_backend.model.specification.LayerSpecification` and weights by role, and run one whole
layer a call, so that decode costs one native call a layer. Knows no sequences, no sampling, no files.

Shapes: T tokens of this call, E hidden size, V vocabulary, S cache positions, G kv heads, D head size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from local_backend.model.specification import LayerSpecification
from local_backend.model.weights import TensorRole, Weight

__all__ = ["FloatArray", "IntArray", "Kernels", "LayerCache", "LayerRunner"]

FloatArray: TypeAlias = NDArray[np.float32]
IntArray: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer's KV cache of one sequence: float16, ``keys`` [S, G, D_key], ``values`` [S, G, D_value].

    Row p holds position p. Its owner decides how many rows are valid; a runner writes the rows of the
    positions it is given and reads the rows up to them.
    """

    keys: NDArray[np.float16]
    values: NDArray[np.float16]


class LayerRunner(Protocol):
    """One transformer layer, ready to run."""

    def forward(self, hidden: FloatArray, start: int, cache: LayerCache) -> None:
        """Run T consecutive tokens at positions ``start .. start+T-1``; causal.

        ``hidden`` [T, E], C-contiguous, is read and replaced by the layer's output. Keys and values of
        the T tokens are written to ``cache`` rows ``start .. start+T-1``; rows before are attended to.
        """


class Kernels(Protocol):
    """A family of implementations, chosen once by the engine."""

    @property
    def name(self) -> str:
        """``reference`` or ``native``."""

    @property
    def description(self) -> str:
        """Instruction set, workers and why, in one sentence for the log."""

    def supports(self, weight: Weight) -> bool:
        """Whether matrices of this weight's block type can be computed with."""

    def embed(self, weight: Weight, tokens: IntArray) -> FloatArray:
        """Rows of the embedding: tokens [T] → [T, E]."""

    def layer(
        self,
        specification: LayerSpecification,
        weights: Mapping[TensorRole, Weight],
        shared: Mapping[TensorRole, Weight],
    ) -> LayerRunner:
        """Prepare one layer; keeps views of the weights' bytes, copies none of the matrices."""

    def logits(self, hidden: FloatArray, norm: Weight, head: Weight, epsilon: float) -> FloatArray:
        """Apply the final RMSNorm and the output head: hidden [T, E] → logits [T, V]."""

    def close(self) -> None:
        """Stop worker threads."""
