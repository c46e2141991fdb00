"""A model as a list of layer descriptions: the only thing that kernels need to know of a family.

Built from a file's metadata by :mod:`local_backend.model.hyperparameters`. Adding a family means
filling these fields differently, not writing another forward pass. Knows no bytes and no arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

__all__ = [
    "Activation",
    "AttentionSpecification",
    "DenseFeedForward",
    "FeedForward",
    "GatingFunction",
    "LayerSpecification",
    "MixtureOfExperts",
    "ModelSpecification",
    "RopeSpecification",
    "RopeStyle",
]


class RopeStyle(StrEnum):
    """Which elements of a head rotate together: neighbours (NORMAL) or halves (NEOX)."""

    NORMAL = "normal"
    NEOX = "neox"


class Activation(StrEnum):
    """The non-linearity between a feed-forward's projections."""

    SILU = "silu"
    GELU = "gelu"
    SWIGLU_OAI = "swiglu_oai"


class GatingFunction(StrEnum):
    """How gating turns logits into expert weights (``expert_gating_func`` 1, 2, 3 in GGUF)."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"
    SOFTMAX_OF_CHOSEN = "softmax_of_chosen"


@dataclass(frozen=True, slots=True)
class RopeSpecification:
    """Rotary position embedding (Su et al. 2021), with YaRN scaling (Peng et al. 2023) where asked for.

    ``dimensions`` of each head rotate; ``theta`` is the base. ``scaling_factor`` stretches positions
    linearly where ``yarn_original_context`` is ``None``, by YaRN otherwise. ``frequency_divisors``
    holds Llama-3's per-pair divisors (tensor ``rope_freqs.weight``) by a weight's role, not here.
    """

    style: RopeStyle
    dimensions: int
    theta: float
    scaling_factor: float = 1.0
    yarn_original_context: int | None = None
    yarn_attention_factor: float = 1.0
    yarn_beta_fast: float = 32.0
    yarn_beta_slow: float = 1.0
    yarn_extrapolation: float = 1.0


@dataclass(frozen=True, slots=True)
class AttentionSpecification:
    """Grouped-query attention of one layer: ``heads`` query heads share ``kv_heads`` key/value heads."""

    heads: int
    kv_heads: int
    key_dimension: int
    value_dimension: int
    scale: float
    rope: RopeSpecification
    qk_norm: bool = False
    bias: bool = False
    output_bias: bool = False
    sliding_window: int | None = None
    sinks: bool = False


@dataclass(frozen=True, slots=True)
class DenseFeedForward:
    """down(activation(gate(x)) * up(x)); ``width`` is the inner size."""

    width: int
    activation: Activation = Activation.SILU


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """``used`` of ``experts`` feed-forwards of ``width``, summed by their gating weights."""

    experts: int
    used: int
    width: int
    gating: GatingFunction = GatingFunction.SOFTMAX
    normalise_weights: bool = True
    weights_scale: float = 1.0
    activation: Activation = Activation.SILU
    bias: bool = False
    shared_width: int = 0


FeedForward: TypeAlias = DenseFeedForward | MixtureOfExperts


@dataclass(frozen=True, slots=True)
class LayerSpecification:
    """One transformer layer: norm, attention, residual, norm, feed-forward, residual.

    With ``post_norms`` the outputs of attention and feed-forward are normalised before their residual
    (gemma). ``norm_epsilon`` is that of every RMSNorm in the layer.
    """

    attention: AttentionSpecification
    feed_forward: FeedForward
    norm_epsilon: float
    post_norms: bool = False


@dataclass(frozen=True, slots=True)
class ModelSpecification:
    """The whole model. Sizes in elements; ``context_tokens`` is what it was trained for.

    ``tied_head``: the output head is the embedding. ``embedding_scale`` multiplies embeddings (gemma).
    """

    architecture: str
    name: str
    hidden_size: int
    vocabulary_size: int
    context_tokens: int
    norm_epsilon: float
    layers: tuple[LayerSpecification, ...]
    tied_head: bool
    embedding_scale: float = 1.0
    final_logit_cap: float | None = None
