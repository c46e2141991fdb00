"""The choice between reference and native arithmetic; same interface, made once by the engine.

Knows block types and what each family supports; not models, sequences or files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from local_backend.config import KernelPreference
from local_backend.errors import NativeUnavailable, UnsupportedModel
from local_backend.kernels.base import Kernels
from local_backend.kernels.native import NativeKernels
from local_backend.kernels.precision import EIGHT_BITS, Precision
from local_backend.kernels.reference import ReferenceKernels
from local_backend.model.weights import Weight

__all__ = ["Selection", "select"]


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen family; ``reason`` says why where it is not the first choice."""

    kernels: Kernels
    reason: str | None = None


def select(
    preference: KernelPreference,
    weights: Iterable[Weight],
    threads: int | None,
    precision: Precision = EIGHT_BITS,
) -> Selection:
    """Choose a family that computes with every matrix of a model.

    ``threads`` ``None`` leaves their number to the kernels. ``precision`` is the native kernels'; the
    reference does not round. With NATIVE preferred, raises
    ``NativeUnavailable`` or ``UnsupportedModel`` where AUTO would fall back to the reference.
    """
    tensors = tuple(weights)
    if preference is KernelPreference.REFERENCE:
        return Selection(_reference(tensors), "asked for")
    try:
        return Selection(_native(tensors, threads, precision))
    except (NativeUnavailable, UnsupportedModel) as error:
        if preference is KernelPreference.NATIVE:
            raise
        return Selection(_reference(tensors), str(error))


def _native(weights: tuple[Weight, ...], threads: int | None, precision: Precision) -> Kernels:
    kernels = NativeKernels(threads=threads or 0, precision=precision)
    try:
        _require(kernels, weights)
    except UnsupportedModel:
        kernels.close()
        raise
    return kernels


def _reference(weights: tuple[Weight, ...]) -> Kernels:
    kernels = ReferenceKernels()
    _require(kernels, weights)
    return kernels


def _require(kernels: Kernels, weights: tuple[Weight, ...]) -> None:
    for weight in weights:
        is_matrix = len(weight.shape) > 1
        if is_matrix and not kernels.supports(weight):
            raise UnsupportedModel(
                weight.name,
                f"block type {weight.type.name} in the {kernels.name} kernels",
                tuple(sorted({w.type.name for w in weights if kernels.supports(w)}))
                or ("none of this file's",),
            )
