"""Families of models as a table: what a family's metadata does not say. A new family is a new row.

Knows no file; :mod:`local_backend.model.hyperparameters` reads one with a row's help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from local_backend.model.specification import Activation, GatingFunction, RopeStyle
from local_backend.model.weights import TensorRole

__all__ = ["FAMILIES", "ExpertUse", "Family", "WindowPattern"]

_NO_ROLES: Mapping[TensorRole, TensorRole] = MappingProxyType({})


class ExpertUse(StrEnum):
    """Whether layers of a family are mixtures of experts: never, always, or where metadata counts experts."""

    NEVER = "never"
    WHERE_COUNTED = "where_counted"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class WindowPattern:
    """Which layers attend to a sliding window where the file does not say: all but each ``period``-th.

    ``theta``: the base of the windowed layers' rotation, which is not stretched then; ``None`` means that
    they rotate as the others do. ``is_required``: a file without a window is not of the family.
    """

    period: int
    theta: float | None = None
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture name in GGUF (``general.architecture``) and its fixed traits.

    ``normalise_weights``: the chosen experts' weights are made to sum to one, whatever the file says.
    ``shared_expert``: one more expert, with a gate of its own, works on every token. ``biases``: attention's
    output and the experts have biases (those of queries, keys and values show in the file). ``post_norms``:
    as in :class:`~local_backend.model.specification.LayerSpecification`. ``scales_embedding``: embeddings
    are multiplied by the square root of their width. ``width_scaled_layers``: models of so many layers scale
    attention by embedding length over heads instead of by the key's length. ``named_as``: roles whose
    tensors bear the name of another role.
    """

    architecture: str
    rope_style: RopeStyle
    experts: ExpertUse
    qk_norm: bool = False
    activation: Activation = Activation.SILU
    gating: GatingFunction = GatingFunction.SOFTMAX
    normalise_weights: bool = True
    shared_expert: bool = False
    biases: bool = False
    sinks: bool = False
    post_norms: bool = False
    window: WindowPattern | None = None
    scales_embedding: bool = False
    width_scaled_layers: int | None = None
    named_as: Mapping[TensorRole, TensorRole] = field(default_factory=lambda: _NO_ROLES)


FAMILIES: dict[str, Family] = {
    family.architecture: family
    for family in (
        Family("llama", RopeStyle.NORMAL, ExpertUse.WHERE_COUNTED),
        Family("qwen2", RopeStyle.NEOX, ExpertUse.NEVER),
        Family("qwen2moe", RopeStyle.NEOX, ExpertUse.ALWAYS, normalise_weights=False, shared_expert=True),
        Family("qwen3", RopeStyle.NEOX, ExpertUse.NEVER, qk_norm=True),
        Family("qwen3moe", RopeStyle.NEOX, ExpertUse.ALWAYS, qk_norm=True),
        Family(
            "gpt-oss",
            RopeStyle.NEOX,
            ExpertUse.ALWAYS,
            activation=Activation.SWIGLU_OAI,
            gating=GatingFunction.SOFTMAX_OF_CHOSEN,
            biases=True,
            sinks=True,
            window=WindowPattern(period=2, is_required=True),
            named_as=MappingProxyType({TensorRole.FEED_FORWARD_NORM: TensorRole.ATTENTION_POST_NORM}),
        ),
        Family(
            "gemma3",
            RopeStyle.NEOX,
            ExpertUse.NEVER,
            qk_norm=True,
            activation=Activation.GELU,
            post_norms=True,
            window=WindowPattern(period=6, theta=10_000.0),
            scales_embedding=True,
            width_scaled_layers=62,
        ),
    )
}
"""Families that are read, by architecture."""
