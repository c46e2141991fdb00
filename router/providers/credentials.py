"""A provider's keys, which show themselves to nobody by accident, and the removal of secrets from texts.

Knows no environment and no vendor: labels and secrets are handed in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["NO_KEYS", "ProviderKeys"]

_REMOVED: Final = "[removed]"
_SHORTEST_SECRET: Final = 6
# What vendors' keys look like, whole or half masked, and what a bearer header carries. A gateway's excerpt
# of an error body must hold neither its own key nor one that the upstream happens to echo.
_KEY_SHAPES: Final = re.compile(
    r"\b(?:gsk_|xai-|nvapi-|csk-)[A-Za-z0-9_\-*.]{12,}"
    # These begin ordinary words too: a key has digits, or the stars of its mask.
    r"|\b(?:sk|pk|rk|hf|fw|tgp|key)[-_](?=[A-Za-z_\-.]*[\d*])[A-Za-z0-9_\-*.]{12,}"
    r"|\bAIza[A-Za-z0-9_\-]{16,}"
    r"|(?i:\bbearer\s+)[A-Za-z0-9_\-*.~+/=]{8,}"
)


class ProviderKeys:
    """Keys by label, in order of preference. The labels may be logged, the keys never are."""

    __slots__ = ("_by_label",)

    def __init__(self, by_label: Mapping[str, str]) -> None:
        self._by_label = dict(by_label)

    def __repr__(self) -> str:
        return f"ProviderKeys({', '.join(self._by_label)})"

    def __bool__(self) -> bool:
        return bool(self._by_label)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, in order of preference."""
        return tuple(self._by_label)

    def secret(self, label: str | None) -> str | None:
        """Return the key of that label; without one, or where it is gone, the first; else ``None``."""
        if label is not None and label in self._by_label:
            return self._by_label[label]
        return next(iter(self._by_label.values()), None)

    def redact(self, text: str) -> str:
        """Return ``text`` without these keys and without anything shaped like a key."""
        for secret in self._by_label.values():
            if len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, _REMOVED)
        return _KEY_SHAPES.sub(_REMOVED, text)


NO_KEYS: Final = ProviderKeys({})
