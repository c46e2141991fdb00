"""Which tensors a specification asks for, and their shapes. Knows no file and no bytes.

Shapes are row-major, slowest first: ``(rows, columns)``, ``(experts, rows, columns)``, ``(columns,)``.
"""

from __future__ import annotations

from typing import TypeAlias

from local_backend.model.specification import (
    AttentionSpecification,
    FeedForward,
    LayerSpecification,
    MixtureOfExperts,
    ModelSpecification,
)
from local_backend.model.weights import TensorRole

__all__ = ["OPTIONAL_SHARED", "Shapes", "layer_shapes", "shared_shapes"]

Shapes: TypeAlias = dict[TensorRole, tuple[int, ...]]

OPTIONAL_SHARED = frozenset({TensorRole.ROPE_FREQUENCIES})
"""Tensors of the whole model that a file may lack."""


def shared_shapes(specification: ModelSpecification) -> Shapes:
    """Tensors of the whole model."""
    table = (specification.vocabulary_size, specification.hidden_size)
    shapes: Shapes = {
        TensorRole.TOKEN_EMBEDDING: table,
        TensorRole.OUTPUT_NORM: (specification.hidden_size,),
        TensorRole.ROPE_FREQUENCIES: (specification.layers[0].attention.rope.dimensions // 2,),
    }
    if not specification.tied_head:
        shapes[TensorRole.OUTPUT_HEAD] = table
    return shapes


def layer_shapes(layer: LayerSpecification, hidden_size: int) -> Shapes:
    """Tensors of one layer."""
    shapes: Shapes = {TensorRole.ATTENTION_NORM: (hidden_size,), TensorRole.FEED_FORWARD_NORM: (hidden_size,)}
    if layer.post_norms:
        shapes[TensorRole.ATTENTION_POST_NORM] = (hidden_size,)
        shapes[TensorRole.FEED_FORWARD_POST_NORM] = (hidden_size,)
    return shapes | _attention(layer.attention, hidden_size) | _feed_forward(layer.feed_forward, hidden_size)


def _attention(attention: AttentionSpecification, hidden_size: int) -> Shapes:
    queries = attention.heads * attention.key_dimension
    keys = attention.kv_heads * attention.key_dimension
    values = attention.kv_heads * attention.value_dimension
    shapes: Shapes = {
        TensorRole.QUERY: (queries, hidden_size),
        TensorRole.KEY: (keys, hidden_size),
        TensorRole.VALUE: (values, hidden_size),
        TensorRole.ATTENTION_OUTPUT: (hidden_size, attention.heads * attention.value_dimension),
    }
    if attention.bias:
        shapes |= {
            TensorRole.QUERY_BIAS: (queries,),
            TensorRole.KEY_BIAS: (keys,),
            TensorRole.VALUE_BIAS: (values,),
        }
    if attention.output_bias:
        shapes[TensorRole.ATTENTION_OUTPUT_BIAS] = (hidden_size,)
    if attention.qk_norm:
        shapes[TensorRole.QUERY_NORM] = shapes[TensorRole.KEY_NORM] = (attention.key_dimension,)
    if attention.sinks:
        shapes[TensorRole.ATTENTION_SINKS] = (attention.heads,)
    return shapes


def _feed_forward(feed_forward: FeedForward, hidden_size: int) -> Shapes:
    width = feed_forward.width
    if not isinstance(feed_forward, MixtureOfExperts):
        return {
            TensorRole.GATE_PROJ: (width, hidden_size),
            TensorRole.UP_PROJ: (width, hidden_size),
            TensorRole.DOWN_PROJ: (hidden_size, width),
        }
    experts, shared = feed_forward.experts, feed_forward.shared_width
    shapes: Shapes = {
        TensorRole.GATING: (experts, hidden_size),
        TensorRole.EXPERT_GATE_PROJ: (experts, width, hidden_size),
        TensorRole.EXPERT_UP_PROJ: (experts, width, hidden_size),
        TensorRole.EXPERT_DOWN_PROJ: (experts, hidden_size, width),
    }
    if feed_forward.bias:
        shapes |= {
            TensorRole.GATING_BIAS: (experts,),
            TensorRole.EXPERT_GATE_BIAS: (experts, width),
            TensorRole.EXPERT_UP_BIAS: (experts, width),
            TensorRole.EXPERT_DOWN_BIAS: (experts, hidden_size),
        }
    if shared:
        shapes |= {
            TensorRole.SHARED_GATING: (hidden_size,),
            TensorRole.SHARED_GATE_PROJ: (shared, hidden_size),
            TensorRole.SHARED_UP_PROJ: (shared, hidden_size),
            TensorRole.SHARED_DOWN_PROJ: (hidden_size, shared),
        }
    return shapes
