"""From a model and a machine to a placement, or to a refusal with numbers.

Pure and deterministic. Everything goes to RAM for now; a plan that would swap is refused.
"""

from __future__ import annotations

from local_backend.model.quantities import bytes_text
from local_backend.model.specification import ModelSpecification
from local_backend.model.weights import ModelWeights
from local_backend.plan.footprint import Footprint, measure
from local_backend.plan.hardware import HardwareProfile
from local_backend.plan.ledger import Ledger, Tier
from local_backend.plan.placement import DoesNotFit, Placement, PlacementPlan

__all__ = ["SMALLEST_CONTEXT", "plan"]

SMALLEST_CONTEXT = 512
"""Below this a context is of no use: a system prompt and a question no longer fit."""

_RESERVE_LEAST = 256 << 20
_RESERVE_SHARE = 32


def plan(
    specification: ModelSpecification,
    weights: ModelWeights,
    hardware: HardwareProfile,
    context_tokens: int,
    *,
    prefill_chunk: int = 256,
) -> PlacementPlan | DoesNotFit:
    """Place a model with a context of ``context_tokens``, or say what keeps it from fitting."""
    footprint = measure(specification, weights, prefill_chunk)
    ledger = footprint.ledger(context_tokens)
    reserve = max(_RESERVE_LEAST, hardware.total_bytes // _RESERVE_SHARE)
    available = max(0, hardware.usable_bytes - reserve)
    if ledger.total > available:
        fitting = _fitting_context(footprint, available, context_tokens)
        return DoesNotFit(
            model=specification.name,
            context_tokens=context_tokens,
            needed_bytes=ledger.total,
            available_bytes=available,
            fitting_context=fitting,
            remedy=_remedy(footprint, available, fitting),
            ledger=ledger,
            hardware=hardware,
            reserve_bytes=reserve,
        )
    return PlacementPlan(
        model=specification.name,
        context_tokens=context_tokens,
        placements=_placements(ledger),
        ledger=ledger,
        hardware=hardware,
        reserve_bytes=reserve,
    )


def _placements(ledger: Ledger) -> tuple[Placement, ...]:
    return tuple(
        Placement(line.what, Tier.HOST, line.bytes, "all of it fits in RAM")
        for line in ledger.lines
        if line.bytes
    )


def _fitting_context(footprint: Footprint, available: int, wanted: int) -> int | None:
    """Return the largest context that fits, in steps of 256 above the smallest useful one."""
    room = available - footprint.fixed_bytes
    tokens = wanted if footprint.kv_bytes_per_token == 0 else room // footprint.kv_bytes_per_token
    tokens = min(tokens, wanted)
    if tokens < SMALLEST_CONTEXT:
        return None
    return tokens // 256 * 256


def _remedy(footprint: Footprint, available: int, fitting: int | None) -> str:
    if fitting is not None:
        return f"Smallest change that fits: a context of {fitting} tokens (--context {fitting})."
    least = footprint.fixed_bytes + SMALLEST_CONTEXT * footprint.kv_bytes_per_token
    room = available - (least - footprint.weight_bytes)
    if room <= 0:
        return f"No version of this model fits: {bytes_text(least - available)} more free memory are needed."
    share = room / footprint.weight_bytes
    return (
        f"No context fits. Either free {bytes_text(least - available)} of memory, or take a version of the "
        f"model whose file is {bytes_text(room)} at most ({share:.0%} of this one's weights)."
    )
