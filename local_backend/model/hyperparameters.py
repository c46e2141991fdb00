"""From a file's metadata to a :class:`~local_backend.model.specification.ModelSpecification`.

A key that is missing, of the wrong type or senseless is a ``BadModelFile`` that names it; a sound file of
an unknown family is an ``UnsupportedModel``. Knows keys; not tensors' shapes or bytes.

Source: the GGUF specification's keys, llama.cpp's defaults where a key may be absent.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import replace
from pathlib import Path

from local_backend.errors import UnsupportedModel
from local_backend.gguf.metadata import Metadata
from local_backend.model.families import FAMILIES, ExpertUse, Family
from local_backend.model.specification import (
    AttentionSpecification,
    DenseFeedForward,
    FeedForward,
    GatingFunction,
    LayerSpecification,
    MixtureOfExperts,
    ModelSpecification,
    RopeSpecification,
)
from local_backend.model.tensor_names import tensor_name
from local_backend.model.weights import TensorRole

__all__ = ["family_of", "read_specification"]

_ARCHITECTURE_KEY = "general.architecture"
_MOST_LAYERS = 1024
_MOST_EXPERTS = 4096
_MOST_WIDTH = 1 << 24
_MOST_HEADS = 1 << 14
_MOST_HEAD_DIMENSION = 1 << 13
_MOST_WINDOW = (1 << 31) - 1
_DEFAULT_THETA = 10_000.0
_GATING_FUNCTIONS = {
    1: GatingFunction.SOFTMAX,
    2: GatingFunction.SIGMOID,
    3: GatingFunction.SOFTMAX_OF_CHOSEN,
}


def family_of(metadata: Metadata) -> Family:
    """Return the row of the file's architecture. Raises ``UnsupportedModel`` where there is none."""
    architecture = metadata.text(_ARCHITECTURE_KEY)
    family = FAMILIES.get(architecture)
    if family is None:
        raise UnsupportedModel(metadata.path, f"architecture {architecture!r}", tuple(FAMILIES))
    return family


def read_specification(
    metadata: Metadata, tensors: Container[str], vocabulary_size: int
) -> ModelSpecification:
    """Read everything but bytes. ``tensors`` are the names in the file: some traits show only there."""
    return _Reader(metadata, tensors).model(vocabulary_size)


class _Reader:
    """Reads keys below the architecture's prefix."""

    def __init__(self, metadata: Metadata, tensors: Container[str]) -> None:
        self._metadata = metadata
        self._tensors = tensors
        self._family = family_of(metadata)

    def model(self, vocabulary_size: int) -> ModelSpecification:
        metadata = self._metadata
        hidden_size = metadata.integer(self._key("embedding_length"), least=1, most=_MOST_WIDTH)
        layers = metadata.integer(self._key("block_count"), least=1, most=_MOST_LAYERS)
        epsilon = metadata.number(self._key("attention.layer_norm_rms_epsilon"), least=0.0)
        context_tokens = metadata.integer(self._key("context_length"), least=1, most=1 << 31)
        attentions = self._attentions(hidden_size, layers, context_tokens)
        feed_forwards = self._feed_forwards(layers)
        return ModelSpecification(
            architecture=self._family.architecture,
            name=metadata.optional_text("general.name") or Path(metadata.path).stem,
            hidden_size=hidden_size,
            vocabulary_size=vocabulary_size,
            context_tokens=context_tokens,
            norm_epsilon=epsilon,
            layers=tuple(
                LayerSpecification(attention, feed_forward, epsilon, self._family.post_norms)
                for attention, feed_forward in zip(attentions, feed_forwards, strict=True)
            ),
            tied_head=not self._has(TensorRole.OUTPUT_HEAD),
            embedding_scale=math.sqrt(hidden_size) if self._family.scales_embedding else 1.0,
            # Zero stands for no cap.
            final_logit_cap=metadata.optional_number(self._key("final_logit_softcapping"), least=0.0) or None,
        )

    def _key(self, name: str) -> str:
        return f"{self._family.architecture}.{name}"

    def _has(self, role: TensorRole, layer: int | None = None) -> bool:
        return tensor_name(role, layer) in self._tensors

    def _attentions(self, hidden_size: int, layers: int, context: int) -> list[AttentionSpecification]:
        metadata = self._metadata
        heads_key, kv_key = self._key("attention.head_count"), self._key("attention.head_count_kv")
        heads = metadata.per_layer(heads_key, layers, least=1, most=_MOST_HEADS)
        kv_heads = (
            metadata.per_layer(kv_key, layers, least=1, most=_MOST_HEADS) if kv_key in metadata else heads
        )
        key_dimension = self._head_dimension("attention.key_length", hidden_size, heads[0])
        value_dimension = self._head_dimension("attention.value_length", hidden_size, heads[0])
        scale = metadata.optional_number(self._key("attention.scale"), least=0.0)
        scaled_by = hidden_size // heads[0] if layers == self._family.width_scaled_layers else key_dimension
        rope = self._rope(key_dimension, context)
        windows = self._windows(layers)
        attentions = []
        for layer in range(layers):
            if heads[layer] % kv_heads[layer]:
                metadata.fail(kv_key, f"is {kv_heads[layer]}, which does not divide {heads[layer]} heads")
            attentions.append(
                AttentionSpecification(
                    heads=heads[layer],
                    kv_heads=kv_heads[layer],
                    key_dimension=key_dimension,
                    value_dimension=value_dimension,
                    scale=scale or 1.0 / math.sqrt(scaled_by),
                    rope=rope if windows[layer] is None else self._window_rope(rope),
                    qk_norm=self._family.qk_norm,
                    bias=self._has(TensorRole.QUERY_BIAS, layer),
                    output_bias=self._family.biases or self._has(TensorRole.ATTENTION_OUTPUT_BIAS, layer),
                    sliding_window=windows[layer],
                    sinks=self._family.sinks,
                )
            )
        return attentions

    def _windows(self, layers: int) -> list[int | None]:
        """Sliding window of each layer, ``None`` where a layer attends to everything."""
        metadata, pattern = self._metadata, self._family.window
        window_key = self._key("attention.sliding_window")
        if pattern is None:
            return [None] * layers
        window = metadata.optional_integer(window_key, most=_MOST_WINDOW) or None
        if window is None:
            if pattern.is_required:
                metadata.fail(window_key, f"is missing or zero; {self._family.architecture} has a window")
            return [None] * layers
        pattern_key = self._key("attention.sliding_window_pattern")
        flags = metadata.raw(pattern_key)
        if not isinstance(flags, tuple):
            period = metadata.optional_integer(pattern_key, most=_MOST_LAYERS)
            period = pattern.period if period is None else period
            # A period of zero stands for windows everywhere.
            flags = tuple(not period or layer % period < period - 1 for layer in range(layers))
        if len(flags) < layers or not all(isinstance(flag, bool) for flag in flags):
            metadata.fail(
                pattern_key, f"has {len(flags)} entries; expected a boolean for each of {layers} layers"
            )
        return [window if flag else None for flag in flags[:layers]]

    def _window_rope(self, rope: RopeSpecification) -> RopeSpecification:
        """Rotation of the layers with a window, whose base may be another."""
        own = None if self._family.window is None else self._family.window.theta
        theta = self._metadata.optional_number(self._key("rope.freq_base_swa"), above=0.0)
        if own is None:
            return rope if theta is None else replace(rope, theta=theta)
        return replace(rope, theta=own if theta is None else theta, scaling_factor=1.0)

    def _head_dimension(self, name: str, hidden_size: int, heads: int) -> int:
        given = self._metadata.optional_integer(self._key(name), least=1, most=_MOST_HEAD_DIMENSION)
        if given is not None:
            return given
        if hidden_size % heads:
            self._metadata.fail(
                self._key("attention.head_count"),
                f"is {heads}, which does not divide the embedding length {hidden_size}",
            )
        return hidden_size // heads

    def _rope(self, key_dimension: int, context: int) -> RopeSpecification:
        metadata = self._metadata
        dimensions_key = self._key("rope.dimension_count")
        dimensions = metadata.optional_integer(dimensions_key, least=2, most=key_dimension) or key_dimension
        if dimensions % 2:
            metadata.fail(dimensions_key, f"is {dimensions}; expected an even number")
        scaling = metadata.optional_text(self._key("rope.scaling.type")) or "linear"
        if scaling not in {"none", "linear", "yarn"}:
            raise UnsupportedModel(metadata.path, f"rope scaling {scaling!r}", ("none", "linear", "yarn"))
        factor = (
            metadata.optional_number(self._key("rope.scaling.factor"), least=0.0)
            or metadata.optional_number(self._key("rope.scale_linear"), least=0.0)
            or 1.0
        )
        original = metadata.optional_integer(self._key("rope.scaling.original_context_length"), least=1)
        theta = metadata.optional_number(self._key("rope.freq_base"), above=0.0)
        attention_factor = metadata.optional_number(self._key("rope.scaling.attn_factor"), above=0.0)
        return RopeSpecification(
            style=self._family.rope_style,
            dimensions=dimensions,
            theta=_DEFAULT_THETA if theta is None else theta,
            scaling_factor=1.0 if scaling == "none" else factor,
            yarn_original_context=(original or context) if scaling == "yarn" else None,
            yarn_attention_factor=1.0 if attention_factor is None else attention_factor,
            yarn_beta_fast=self._yarn("yarn_beta_fast", 32.0),
            yarn_beta_slow=self._yarn("yarn_beta_slow", 1.0),
            yarn_extrapolation=self._yarn("yarn_ext_factor", 1.0),
        )

    def _yarn(self, name: str, default: float) -> float:
        value = self._metadata.optional_number(self._key(f"rope.scaling.{name}"), least=0.0)
        return default if value is None else value

    def _feed_forwards(self, layers: int) -> list[FeedForward]:
        metadata = self._metadata
        experts_key = self._key("expert_count")
        experts = metadata.optional_integer(experts_key, most=_MOST_EXPERTS) or 0
        if self._family.experts is ExpertUse.NEVER and experts:
            metadata.fail(experts_key, f"is {experts}, but {self._family.architecture} has no experts")
        if self._family.experts is ExpertUse.ALWAYS and not experts:
            metadata.fail(experts_key, f"is missing or zero; {self._family.architecture} has experts")
        if experts:
            return [self._mixture(experts, layers)] * layers
        return [DenseFeedForward(width, self._family.activation) for width in self._widths(layers)]

    def _mixture(self, experts: int, layers: int) -> MixtureOfExperts:
        metadata = self._metadata
        used = metadata.integer(self._key("expert_used_count"), least=1, most=experts)
        width = metadata.optional_integer(self._key("expert_feed_forward_length"), least=1, most=_MOST_WIDTH)
        if width is None:
            width = self._widths(layers)[0]
            if self._family.shared_expert:
                # As llama.cpp has it: where only the shared expert's width is known, the chosen share it.
                width = max(1, width // used)
        scale = metadata.optional_number(self._key("expert_weights_scale"), least=0.0)
        return MixtureOfExperts(
            experts=experts,
            used=used,
            width=width,
            gating=self._gating(),
            normalise_weights=self._family.normalise_weights,
            weights_scale=scale or 1.0,
            activation=self._family.activation,
            bias=self._family.biases,
            shared_width=self._shared_width(layers),
        )

    def _widths(self, layers: int) -> tuple[int, ...]:
        key = self._key("feed_forward_length")
        return self._metadata.per_layer(key, layers, least=1, most=_MOST_WIDTH)

    def _shared_width(self, layers: int) -> int:
        key = self._key("expert_shared_feed_forward_length")
        width = self._metadata.optional_integer(key, most=_MOST_WIDTH) or 0
        if self._family.shared_expert:
            return width or self._widths(layers)[0]
        if width:
            raise UnsupportedModel(
                self._metadata.path,
                f"a shared expert in {self._family.architecture}",
                tuple(family.architecture for family in FAMILIES.values() if family.shared_expert),
            )
        return 0

    def _gating(self) -> GatingFunction:
        number = self._metadata.optional_integer(self._key("expert_gating_func"))
        if not number:
            return self._family.gating
        function = _GATING_FUNCTIONS.get(number)
        if function is None:
            names = tuple(f"{known} ({name})" for known, name in _GATING_FUNCTIONS.items())
            raise UnsupportedModel(self._metadata.path, f"expert gating function {number}", names)
        return function
