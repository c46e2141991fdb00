"""The layer loop: embed, layers, norm, head. Knows one sequence's cache; not scheduling or sampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from local_backend.errors import Cancelled
from local_backend.kernels.base import FloatArray, Kernels, LayerCache, LayerRunner
from local_backend.kv_cache.sequence_cache import SequenceCache
from local_backend.model.specification import ModelSpecification
from local_backend.model.weights import ModelWeights, TensorRole, Weight

__all__ = ["ForwardContext", "all_logits", "compute", "last_logits", "prepare"]


@dataclass(frozen=True, slots=True)
class ForwardContext:
    """Everything a forward pass needs besides the tokens and the cache."""

    specification: ModelSpecification
    kernels: Kernels
    layers: tuple[LayerRunner, ...]
    embedding: Weight
    norm: Weight
    head: Weight


def prepare(
    specification: ModelSpecification,
    weights: ModelWeights,
    kernels: Kernels,
    on_layer: Callable[[int], None],
) -> ForwardContext:
    """Build the runner of every layer; ``on_layer`` hears each index when it is ready."""
    runners: list[LayerRunner] = []
    for index, (layer, roles) in enumerate(zip(specification.layers, weights.layers, strict=True)):
        runners.append(kernels.layer(layer, roles, weights.shared))
        on_layer(index)
    embedding = weights.shared[TensorRole.TOKEN_EMBEDDING]
    return ForwardContext(
        specification=specification,
        kernels=kernels,
        layers=tuple(runners),
        embedding=embedding,
        norm=weights.shared[TensorRole.OUTPUT_NORM],
        head=embedding if specification.tied_head else weights.shared[TensorRole.OUTPUT_HEAD],
    )


def compute(
    context: ForwardContext,
    tokens: Sequence[int],
    cache: SequenceCache,
    interrupted: Callable[[], bool],
) -> FloatArray:
    """Run T tokens after those in the cache and return their hidden states [T, E].

    ``interrupted`` is asked before every layer: a yes raises :class:`~local_backend.errors.Cancelled`
    and leaves the cache as it was.
    """
    start = cache.length
    ids = np.asarray(tokens, dtype=np.int32)  # [T]
    hidden = context.kernels.embed(context.embedding, ids)  # [T, E]
    if context.specification.embedding_scale != 1.0:
        hidden = hidden * np.float32(context.specification.embedding_scale)
    hidden = np.ascontiguousarray(hidden)
    for index, layer in enumerate(context.layers):
        if interrupted():
            raise Cancelled("interrupted between layers")
        layer.forward(hidden, start, LayerCache(cache.keys(index), cache.values(index)))
    cache.append(tokens)
    return hidden


def last_logits(context: ForwardContext, hidden: FloatArray) -> FloatArray:
    """Logits [V] after the last token of hidden states [T, E]."""
    logits: FloatArray = all_logits(context, np.ascontiguousarray(hidden[-1:]))[0]
    return logits


def all_logits(context: ForwardContext, hidden: FloatArray) -> FloatArray:
    """Logits [T, V] after every token of hidden states [T, E]."""
    epsilon = context.specification.norm_epsilon
    logits = context.kernels.logits(hidden, context.norm, context.head, epsilon)  # [T, V]
    cap = context.specification.final_logit_cap
    if cap is not None:
        capped: FloatArray = np.float32(cap) * np.tanh(logits / np.float32(cap))
        return capped
    return logits
