"""Weights addressed by their role, over the bytes of the file. Not where those bytes live later.

The names in the file are :mod:`local_backend.model.tensor_names`' business alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from local_backend.gguf.format import GGMLType

__all__ = ["ExpertKey", "ModelWeights", "TensorRole", "Weight"]


class TensorRole(StrEnum):
    """What a tensor does. GATING chooses experts; EXPERT_GATE_PROJ is the gated half of a SwiGLU."""

    TOKEN_EMBEDDING = "token_embedding"  # noqa: S105 - a role, not a secret
    OUTPUT_NORM = "output_norm"
    OUTPUT_HEAD = "output_head"
    ROPE_FREQUENCIES = "rope_frequencies"
    ATTENTION_NORM = "attention_norm"
    ATTENTION_POST_NORM = "attention_post_norm"
    QUERY = "query"
    KEY = "key"
    VALUE = "value"
    ATTENTION_OUTPUT = "attention_output"
    QUERY_BIAS = "query_bias"
    KEY_BIAS = "key_bias"
    VALUE_BIAS = "value_bias"
    ATTENTION_OUTPUT_BIAS = "attention_output_bias"
    QUERY_NORM = "query_norm"
    KEY_NORM = "key_norm"
    ATTENTION_SINKS = "attention_sinks"
    FEED_FORWARD_NORM = "feed_forward_norm"
    FEED_FORWARD_POST_NORM = "feed_forward_post_norm"
    GATE_PROJ = "gate_proj"
    UP_PROJ = "up_proj"
    DOWN_PROJ = "down_proj"
    GATING = "gating"
    GATING_BIAS = "gating_bias"
    EXPERT_GATE_PROJ = "expert_gate_proj"
    EXPERT_UP_PROJ = "expert_up_proj"
    EXPERT_DOWN_PROJ = "expert_down_proj"
    EXPERT_GATE_BIAS = "expert_gate_bias"
    EXPERT_UP_BIAS = "expert_up_bias"
    EXPERT_DOWN_BIAS = "expert_down_bias"
    SHARED_GATING = "shared_gating"
    SHARED_GATE_PROJ = "shared_gate_proj"
    SHARED_UP_PROJ = "shared_up_proj"
    SHARED_DOWN_PROJ = "shared_down_proj"


@dataclass(frozen=True, slots=True)
class Weight:
    """One tensor's blocks.

    ``shape`` is row-major, slowest first: ``(rows, columns)``, ``(experts, rows, columns)`` or
    ``(columns,)``; quantisation blocks run along the columns. ``data`` holds the raw bytes as a
    one-dimensional ``uint8`` array, usually a view of the mapped file.
    """

    name: str
    type: GGMLType
    shape: tuple[int, ...]
    data: NDArray[np.uint8]

    @property
    def columns(self) -> int:
        """Elements in a row: the size of the input of a matrix."""
        return self.shape[-1]

    @property
    def rows(self) -> int:
        """Rows of one matrix: the size of its output (1 for a vector)."""
        return self.shape[-2] if len(self.shape) > 1 else 1

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.columns // self.type.block_elements * self.type.block_bytes

    def expert(self, index: int) -> Weight:
        """Return one expert's matrix of a stacked ``(experts, rows, columns)`` tensor; no copy."""
        size = self.rows * self.row_bytes
        return Weight(
            name=f"{self.name}[{index}]",
            type=self.type,
            shape=self.shape[1:],
            data=self.data[index * size : (index + 1) * size],
        )


@dataclass(frozen=True, slots=True, order=True)
class ExpertKey:
    """Names one expert of one layer."""

    layer: int
    expert: int


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """Every tensor of a model by role: those of the whole model, and those of each layer."""

    shared: Mapping[TensorRole, Weight]
    layers: tuple[Mapping[TensorRole, Weight], ...]
