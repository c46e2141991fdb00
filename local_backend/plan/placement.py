"""A placement of a model, or the reason why there is none: values that explain themselves.

Know tiers, bytes and reasons; not how they were chosen.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from local_backend.model.quantities import bytes_text, table_text
from local_backend.plan.hardware import HardwareProfile
from local_backend.plan.ledger import Ledger, Tier

__all__ = ["DoesNotFit", "Placement", "PlacementPlan"]


@dataclass(frozen=True, slots=True)
class Placement:
    """A part of the model, where it goes, and why."""

    what: str
    tier: Tier
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """Where everything goes. ``spare_bytes`` of HOST stay free after it."""

    model: str
    context_tokens: int
    placements: tuple[Placement, ...]
    ledger: Ledger
    hardware: HardwareProfile
    reserve_bytes: int

    @property
    def spare_bytes(self) -> int:
        """Bytes of HOST that neither the model nor the reserve uses."""
        return self.hardware.usable_bytes - self.reserve_bytes - self.ledger.in_tier(Tier.HOST)

    def to_text(self) -> str:
        """Return the plan for people."""
        rows = [("part", "tier", "bytes", "why")]
        rows += [(p.what, p.tier.value, bytes_text(p.bytes), p.reason) for p in self.placements]
        return "\n\n".join(
            (
                f"{self.model}, context {self.context_tokens} tokens: fits",
                self.hardware.to_text(),
                self.ledger.to_text(),
                table_text(rows, right=frozenset({2})),
                f"System: {bytes_text(self.reserve_bytes)}; to spare: {bytes_text(self.spare_bytes)}.",
            )
        )

    def to_json(self) -> str:
        """Return the plan as a JSON object that :meth:`from_json` reads."""
        return json.dumps(
            {
                "fits": True,
                "model": self.model,
                "context_tokens": self.context_tokens,
                "placements": [dataclasses.asdict(placement) for placement in self.placements],
                "ledger": json.loads(self.ledger.to_json()),
                "hardware": dataclasses.asdict(self.hardware),
                "reserve_bytes": self.reserve_bytes,
                "spare_bytes": self.spare_bytes,
            },
            indent=2,
        )

    @classmethod
    def from_json(cls, text: str) -> PlacementPlan:
        """Read what :meth:`to_json` wrote. Raises ``ValueError`` or ``KeyError`` for anything else."""
        raw: dict[str, Any] = json.loads(text)
        return cls(
            model=raw["model"],
            context_tokens=raw["context_tokens"],
            placements=tuple(
                Placement(item["what"], Tier(item["tier"]), item["bytes"], item["reason"])
                for item in raw["placements"]
            ),
            ledger=Ledger.from_json(json.dumps(raw["ledger"])),
            hardware=HardwareProfile.from_json(json.dumps(raw["hardware"])),
            reserve_bytes=raw["reserve_bytes"],
        )


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """Why a model was not placed, in numbers, and the smallest change that would help.

    ``fitting_context`` is the largest context that fits, ``None`` where none does.
    """

    model: str
    context_tokens: int
    needed_bytes: int
    available_bytes: int
    fitting_context: int | None
    remedy: str
    ledger: Ledger
    hardware: HardwareProfile
    reserve_bytes: int

    @property
    def missing_bytes(self) -> int:
        """How far it is from fitting."""
        return self.needed_bytes - self.available_bytes

    def to_text(self) -> str:
        """Return the refusal for people."""
        verdict = (
            f"{self.model}, context {self.context_tokens} tokens: does not fit. "
            f"It needs {bytes_text(self.needed_bytes)}; {bytes_text(self.available_bytes)} are there after "
            f"{bytes_text(self.reserve_bytes)} for the system: {bytes_text(self.missing_bytes)} are missing."
        )
        return f"{verdict}\n\n{self.remedy}\n\n{self.hardware.to_text()}\n\n{self.ledger.to_text()}"

    def to_json(self) -> str:
        """Return the refusal as a JSON object."""
        fields = dataclasses.asdict(self) | {"ledger": json.loads(self.ledger.to_json())}
        return json.dumps({"fits": False, "missing_bytes": self.missing_bytes} | fields, indent=2)
