"""Whole layers from the NumPy operations of :mod:`local_backend.layers`: slow, obvious, the oracle.

Matrices are dequantised to float32, and those of a small model are kept so (within a bound); the
products run on NumPy's BLAS with its own threads. Knows layers; not sequences, files or sampling.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from local_backend.gguf.dequantize import SUPPORTED_TYPES
from local_backend.kernels.base import FloatArray, IntArray, LayerCache, LayerRunner
from local_backend.kernels.dequantised import DequantisedMatrices
from local_backend.layers.attention import attend
from local_backend.layers.gating import select_experts
from local_backend.layers.mlp import FeedForwardMatrices, feed_forward
from local_backend.layers.moe import mix_experts
from local_backend.layers.projection import project
from local_backend.layers.rms_norm import rms_norm
from local_backend.layers.rope import rotary_table, rotate
from local_backend.model.specification import (
    DenseFeedForward,
    GatingFunction,
    LayerSpecification,
    MixtureOfExperts,
)
from local_backend.model.weights import TensorRole, Weight

__all__ = ["ReferenceKernels", "ReferenceLayer"]

_DEFAULT_BOUND_BYTES = 1 << 30


class ReferenceKernels:
    """The oracle: :class:`~local_backend.kernels.base.Kernels` on NumPy."""

    def __init__(self, *, bound_bytes: int = _DEFAULT_BOUND_BYTES) -> None:
        self._bound_bytes = bound_bytes
        self._matrices = DequantisedMatrices(bound_bytes)

    @property
    def name(self) -> str:
        """The family's name."""
        return "reference"

    @property
    def description(self) -> str:
        """What runs, and what it keeps."""
        return (
            f"NumPy {np.__version__} on its BLAS threads, matrices as float32, "
            f"up to {self._bound_bytes >> 20} MiB of them kept between tokens"
        )

    def supports(self, weight: Weight) -> bool:
        """Whether the block type can be dequantised."""
        return weight.type in SUPPORTED_TYPES

    def embed(self, weight: Weight, tokens: IntArray) -> FloatArray:
        """Rows of the embedding: tokens [T] → [T, E]."""
        return self._matrices.rows(weight, tokens)

    def layer(
        self,
        specification: LayerSpecification,
        weights: Mapping[TensorRole, Weight],
        shared: Mapping[TensorRole, Weight],
    ) -> LayerRunner:
        """Prepare one layer; nothing is dequantised before the first token."""
        return ReferenceLayer(specification, weights, shared, self._matrices)

    def logits(self, hidden: FloatArray, norm: Weight, head: Weight, epsilon: float) -> FloatArray:
        """Apply the final RMSNorm and the output head: hidden [T, E] → logits [T, V]."""
        normalised = rms_norm(hidden, self._matrices.matrix(norm), epsilon)  # [T, E]
        return project(normalised, self._matrices.matrix(head))  # [T, V]

    def close(self) -> None:
        """Forget the kept matrices."""
        self._matrices = DequantisedMatrices(0)


class ReferenceLayer:
    """One transformer layer: norm, attention, residual, norm, feed-forward, residual."""

    def __init__(
        self,
        specification: LayerSpecification,
        weights: Mapping[TensorRole, Weight],
        shared: Mapping[TensorRole, Weight],
        matrices: DequantisedMatrices,
    ) -> None:
        self._specification = specification
        self._weights = weights
        self._matrices = matrices
        frequencies = shared.get(TensorRole.ROPE_FREQUENCIES)
        divisors = None if frequencies is None else matrices.matrix(frequencies)
        self._rotary = rotary_table(specification.attention.rope, divisors)

    def forward(self, hidden: FloatArray, start: int, cache: LayerCache) -> None:
        """Run T tokens at positions ``start ..``; ``hidden`` [T, E] is replaced by the output."""
        attended = self._attention(self._norm(hidden, TensorRole.ATTENTION_NORM), start, cache)  # [T, E]
        if self._specification.post_norms:
            attended = self._norm(attended, TensorRole.ATTENTION_POST_NORM)
        hidden += attended

        fed = self._feed_forward(self._norm(hidden, TensorRole.FEED_FORWARD_NORM))  # [T, E]
        if self._specification.post_norms:
            fed = self._norm(fed, TensorRole.FEED_FORWARD_POST_NORM)
        hidden += fed

    def _attention(self, x: FloatArray, start: int, cache: LayerCache) -> FloatArray:
        a = self._specification.attention
        tokens = len(x)
        queries = self._project(x, TensorRole.QUERY, TensorRole.QUERY_BIAS)  # [T, H * D]
        keys = self._project(x, TensorRole.KEY, TensorRole.KEY_BIAS)  # [T, G * D]
        values = self._project(x, TensorRole.VALUE, TensorRole.VALUE_BIAS)  # [T, G * Dv]
        queries = queries.reshape(tokens, a.heads, a.key_dimension)  # [T, H, D]
        keys = keys.reshape(tokens, a.kv_heads, a.key_dimension)  # [T, G, D]
        if a.qk_norm:
            queries = self._norm(queries, TensorRole.QUERY_NORM)
            keys = self._norm(keys, TensorRole.KEY_NORM)

        end = start + tokens
        cache.keys[start:end] = rotate(keys, start, self._rotary)
        cache.values[start:end] = values.reshape(tokens, a.kv_heads, a.value_dimension)
        mixed = attend(
            rotate(queries, start, self._rotary),
            cache.keys,
            cache.values,
            start=start,
            scale=a.scale,
            sliding_window=a.sliding_window,
            sinks=self._optional(TensorRole.ATTENTION_SINKS) if a.sinks else None,
        )  # [T, H * Dv]
        return self._project(mixed, TensorRole.ATTENTION_OUTPUT, TensorRole.ATTENTION_OUTPUT_BIAS)  # [T, E]

    def _feed_forward(self, x: FloatArray) -> FloatArray:
        wanted = self._specification.feed_forward
        if isinstance(wanted, DenseFeedForward):
            return feed_forward(
                x,
                FeedForwardMatrices(
                    gate_proj=self._matrix(TensorRole.GATE_PROJ),
                    up_proj=self._matrix(TensorRole.UP_PROJ),
                    down_proj=self._matrix(TensorRole.DOWN_PROJ),
                ),
                wanted.activation,
            )  # [T, E]
        return self._experts(x, wanted)

    def _experts(self, x: FloatArray, wanted: MixtureOfExperts) -> FloatArray:
        logits = project(x, self._matrix(TensorRole.GATING))  # [T, N]
        bias = self._optional(TensorRole.GATING_BIAS)  # [N]
        # Sigmoid gating carries a bias that only moves the choice; elsewhere it belongs to the logits.
        moves_choice_only = wanted.gating is GatingFunction.SIGMOID
        if bias is not None and not moves_choice_only:
            logits = logits + bias
        ids, shares = select_experts(
            logits,
            wanted.used,
            wanted.gating,
            normalise=wanted.normalise_weights,
            scale=wanted.weights_scale,
            selection_bias=bias if moves_choice_only else None,
        )  # [T, K], [T, K]
        mixed = mix_experts(x, ids, shares, self._expert, wanted.activation)  # [T, E]
        return mixed + self._shared_expert(x, wanted) if wanted.shared_width else mixed

    def _expert(self, expert: int) -> FeedForwardMatrices:
        def bias(role: TensorRole) -> FloatArray | None:
            stacked = self._optional(role)  # [N, rows]
            return None if stacked is None else stacked[expert]

        return FeedForwardMatrices(
            gate_proj=self._matrices.matrix(self._weights[TensorRole.EXPERT_GATE_PROJ].expert(expert)),
            up_proj=self._matrices.matrix(self._weights[TensorRole.EXPERT_UP_PROJ].expert(expert)),
            down_proj=self._matrices.matrix(self._weights[TensorRole.EXPERT_DOWN_PROJ].expert(expert)),
            gate_bias=bias(TensorRole.EXPERT_GATE_BIAS),
            up_bias=bias(TensorRole.EXPERT_UP_BIAS),
            down_bias=bias(TensorRole.EXPERT_DOWN_BIAS),
        )

    def _shared_expert(self, x: FloatArray, wanted: MixtureOfExperts) -> FloatArray:
        matrices = FeedForwardMatrices(
            gate_proj=self._matrix(TensorRole.SHARED_GATE_PROJ),
            up_proj=self._matrix(TensorRole.SHARED_UP_PROJ),
            down_proj=self._matrix(TensorRole.SHARED_DOWN_PROJ),
        )
        output = feed_forward(x, matrices, wanted.activation)  # [T, E]
        gating = self._optional(TensorRole.SHARED_GATING)  # [E]
        if gating is None:
            return output
        logits: FloatArray = x @ gating.reshape(-1, 1)  # [T, 1]
        share = (0.5 * (1.0 + np.tanh(0.5 * logits))).astype(np.float32)  # [T, 1]
        weighted: FloatArray = output * share  # [T, E]
        return weighted

    def _project(self, x: FloatArray, role: TensorRole, bias_role: TensorRole) -> FloatArray:
        return project(x, self._matrix(role), self._optional(bias_role))

    def _norm(self, x: FloatArray, role: TensorRole) -> FloatArray:
        return rms_norm(x, self._matrix(role), self._specification.norm_epsilon)

    def _matrix(self, role: TensorRole) -> FloatArray:
        return self._matrices.matrix(self._weights[role])

    def _optional(self, role: TensorRole) -> FloatArray | None:
        weight = self._weights.get(role)
        return None if weight is None else self._matrices.matrix(weight)
