"""Which keys a provider has, by label, and whose turn it is. Never sees a key itself.

A label is the name of the environment variable that holds the key. A provider nobody told about has one
nameless key: the provider layer then picks what it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["NAMELESS", "KeyRing"]

NAMELESS = ""


class KeyRing:
    """Labels per provider, with requests in flight and turns taken per label."""

    def __init__(self) -> None:
        self._labels: dict[str, tuple[str, ...]] = {}
        self._in_flight: dict[tuple[str, str], int] = {}
        self._last_turn: dict[tuple[str, str], int] = {}
        self._turns = 0

    def configure(self, provider: str, labels: Sequence[str]) -> None:
        """Say which keys ``provider`` has; an empty sequence says that it has none."""
        self._labels[provider] = tuple(dict.fromkeys(labels))

    def labels(self, provider: str) -> tuple[str, ...]:
        """Return the labels of ``provider``; one nameless key where nobody has said."""
        return self._labels.get(provider, (NAMELESS,))

    def known(self, provider: str) -> bool:
        """Whether somebody has said which keys ``provider`` has."""
        return provider in self._labels

    def in_turn(self, provider: str, labels: Iterable[str]) -> list[str]:
        """Return ``labels`` in the order to try: fewest requests in flight, then longest not used."""
        return sorted(
            labels,
            key=lambda label: (
                self._in_flight.get((provider, label), 0),
                self._last_turn.get((provider, label), 0),
            ),
        )

    def take(self, provider: str, label: str) -> None:
        """Count a request onto a key."""
        self._turns += 1
        self._last_turn[provider, label] = self._turns
        self._in_flight[provider, label] = self._in_flight.get((provider, label), 0) + 1

    def give_back(self, provider: str, label: str) -> None:
        """Count a request off a key."""
        left = self._in_flight.get((provider, label), 0) - 1
        if left > 0:
            self._in_flight[provider, label] = left
        else:
            self._in_flight.pop((provider, label), None)
