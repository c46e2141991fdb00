"""How finely the native kernels round a matrix's inputs, and why. Pure; knows sizes, computes nothing.

Decided in docs/decisions/0004-sixteen-bit-activations-for-small-models.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from local_backend.config import ActivationPreference
from local_backend.model.quantities import count_text
from local_backend.model.specification import LayerSpecification, MixtureOfExperts, ModelSpecification
from local_backend.model.weights import ModelWeights, TensorRole, Weight

__all__ = [
    "EIGHT_BITS",
    "FINE_BELOW",
    "ActivationBits",
    "Precision",
    "active_parameters",
    "choose_precision",
]

ActivationBits: TypeAlias = Literal[8, 16]

FINE_BELOW = 1_000_000_000
"""Models that multiply each token with fewer parameters than this get 16 bits."""

_EXPERT_ROLES = frozenset(
    {TensorRole.EXPERT_GATE_PROJ, TensorRole.EXPERT_UP_PROJ, TensorRole.EXPERT_DOWN_PROJ}
)


@dataclass(frozen=True, slots=True)
class Precision:
    """Bits per activation, in blocks of 32 with one scale; ``reason`` is for people."""

    bits: ActivationBits
    reason: str | None = None

    def __str__(self) -> str:
        why = "" if self.reason is None else f" ({self.reason})"
        return f"{self.bits}-bit activations{why}"


EIGHT_BITS = Precision(8)


def choose_precision(
    preference: ActivationPreference, specification: ModelSpecification, weights: ModelWeights
) -> Precision:
    """Return what was asked for; with AUTO 16 bits for small models, 8 for the others."""
    if preference is not ActivationPreference.AUTO:
        return Precision(16 if preference is ActivationPreference.SIXTEEN else 8, "asked for")
    active = active_parameters(specification, weights)
    size, limit = f"{count_text(active)} parameters a token", f"{FINE_BELOW // 10**9} billion"
    if active < FINE_BELOW:
        return Precision(16, f"{size}, fewer than {limit}")
    return Precision(8, f"{size}, not fewer than {limit}")


def active_parameters(specification: ModelSpecification, weights: ModelWeights) -> int:
    """Count the elements of the matrices that one token is multiplied with: no experts it does not use."""
    head = TensorRole.TOKEN_EMBEDDING if specification.tied_head else TensorRole.OUTPUT_HEAD
    layers = zip(specification.layers, weights.layers, strict=True)
    return _elements(weights.shared[head]) + sum(_active_in_layer(layer, roles) for layer, roles in layers)


def _active_in_layer(layer: LayerSpecification, roles: Mapping[TensorRole, Weight]) -> int:
    feed_forward = layer.feed_forward
    total = 0
    for role, weight in roles.items():
        if len(weight.shape) == 1:
            continue
        elements = _elements(weight)
        if role in _EXPERT_ROLES and isinstance(feed_forward, MixtureOfExperts):
            elements = elements * feed_forward.used // feed_forward.experts
        total += elements
    return total


def _elements(weight: Weight) -> int:
    return math.prod(weight.shape)
