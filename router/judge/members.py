"""Who of the judge's candidates may judge at all, and with which key.

Decided once for a catalog, from what the file says. Knows neither breakers nor calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from router.catalog.catalog import Catalog, Deployment

__all__ = ["KeyTurns", "Members", "members_of"]


@dataclass(frozen=True, slots=True)
class Members:
    """``eligible`` in order of preference; ``left_out`` says of each of the others why, in a few words."""

    eligible: Mapping[str, Deployment]
    left_out: Mapping[str, str]


def members_of(catalog: Catalog) -> Members:
    """Return who may judge.

    Never a local one, which the catalog refuses as well. And nobody with a tag that any entrypoint forbids:
    what a request to ``auto`` turns out to be is not known before, and no prompt must go where it may not.
    """
    eligible: dict[str, Deployment] = {}
    left_out: dict[str, str] = {}
    forbidden = {tag for entrypoint in catalog.entrypoints.values() for tag in entrypoint.forbidden_tags}
    for name in catalog.judge.candidates if catalog.judge is not None else ():
        deployment = catalog.deployments.get(name)
        if deployment is None:
            left_out[name] = "not in the catalog"
        elif not deployment.enabled:
            left_out[name] = "switched off"
        elif catalog.providers[deployment.provider].local:
            left_out[name] = "on this machine"
        elif barred := forbidden.intersection(deployment.tags):
            left_out[name] = f"an entrypoint forbids {', '.join(sorted(barred))}"
        else:
            eligible[name] = deployment
    return Members(MappingProxyType(eligible), MappingProxyType(left_out))


class KeyTurns:
    """Which of a provider's keys is used: the same one until it is refused, then the next.

    ``labels`` are the labels of each provider's keys, by the provider's name; never the keys.
    """

    def __init__(self, labels: Mapping[str, Sequence[str]]) -> None:
        self._labels = labels
        self._turns: dict[str, int] = {}

    def label(self, provider: str) -> str | None:
        """Return the label of the key to use; ``None`` where the provider has one at most."""
        labels = self._labels.get(provider, ())
        return labels[self._turns.get(provider, 0) % len(labels)] if len(labels) > 1 else None

    def refused(self, provider: str, label: str | None) -> bool:
        """Note that a key was refused; return whether there is another one to use."""
        if label is None:
            return False
        # Several calls may have used the same key: it is passed over once.
        if label == self.label(provider):
            self._turns[provider] = self._turns.get(provider, 0) + 1
        return True
