"""A list of bytes, each line with its reason and where its number comes from.

Knows lines and sums; not models or machines.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from local_backend.model.quantities import bytes_text, table_text

__all__ = ["Ledger", "LedgerLine", "Source", "Tier"]


class Tier(StrEnum):
    """Where bytes live: GPU memory, RAM, or the disk."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"


class Source(StrEnum):
    """How a number is known."""

    FILE = "the file's headers"
    COMPUTED = "computed from the model's shape"
    ESTIMATED = "estimated"
    POLICY = "set by policy"


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One use of memory, in bytes, with the reasoning behind it in ``detail``."""

    what: str
    bytes: int
    source: Source
    detail: str = ""
    tier: Tier = Tier.HOST


@dataclass(frozen=True, slots=True)
class Ledger:
    """Every byte a model will use, line by line."""

    lines: tuple[LedgerLine, ...]

    @property
    def total(self) -> int:
        """Sum over all tiers, in bytes."""
        return sum(line.bytes for line in self.lines)

    def in_tier(self, tier: Tier) -> int:
        """Sum of one tier, in bytes."""
        return sum(line.bytes for line in self.lines if line.tier is tier)

    def to_text(self) -> str:
        """Return a table for people, with the sum at its foot."""
        rows = [("what", "bytes", "tier", "source", "detail")]
        rows += [
            (line.what, bytes_text(line.bytes), line.tier.value, line.source.value, line.detail)
            for line in self.lines
        ]
        rows.append(("sum", bytes_text(self.total), "", "", ""))
        return table_text(rows, right=frozenset({1}))

    def to_json(self) -> str:
        """Lines and sum as a JSON object."""
        lines = [dataclasses.asdict(line) for line in self.lines]
        return json.dumps({"lines": lines, "total": self.total})

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Read what :meth:`to_json` wrote. Raises ``ValueError`` or ``KeyError`` for anything else."""
        return cls(tuple(_line(raw) for raw in json.loads(text)["lines"]))


def _line(raw: dict[str, Any]) -> LedgerLine:
    return LedgerLine(raw["what"], int(raw["bytes"]), Source(raw["source"]), raw["detail"], Tier(raw["tier"]))
