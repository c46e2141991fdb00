"""Families of models as a table: what a family's metadata does not say. A new family is a new row.

Knows no file; :mod:`local_backend.model.hyperparameters` reads one with a row's help.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from local_backend.model.specification import Activation, GatingFunction, RopeStyle

__all__ = ["FAMILIES", "ExpertUse", "Family"]


class ExpertUse(StrEnum):
    """Whether layers of a family are mixtures of experts: never, always, or where metadata counts experts."""

    NEVER = "never"
    WHERE_COUNTED = "where_counted"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture name in GGUF (``general.architecture``) and its fixed traits.

    ``normalise_weights``: the chosen experts' weights are made to sum to one, whatever the file says.
    """

    architecture: str
    rope_style: RopeStyle
    experts: ExpertUse
    qk_norm: bool = False
    activation: Activation = Activation.SILU
    gating: GatingFunction = GatingFunction.SOFTMAX
    normalise_weights: bool = True


FAMILIES: dict[str, Family] = {
    family.architecture: family
    for family in (
        Family("llama", RopeStyle.NORMAL, ExpertUse.WHERE_COUNTED),
        Family("qwen3", RopeStyle.NEOX, ExpertUse.NEVER, qk_norm=True),
        Family("qwen3moe", RopeStyle.NEOX, ExpertUse.ALWAYS, qk_norm=True),
    )
}
"""Families that are read, by architecture."""
