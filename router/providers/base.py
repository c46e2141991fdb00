"""The one seam between the gateway and whatever serves a model.

Knows the canonical request and events; not HTTP, not scores, not health.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from router.catalog.catalog import Deployment
from router.chat.types import ChatEvent, ChatRequest

__all__ = ["AttemptDeadlines", "Provider", "ProviderStatus", "SupervisedProvider"]


@dataclass(frozen=True, slots=True)
class AttemptDeadlines:
    """Bounds of one attempt, seconds each. Stall is the longest wait between two events of content."""

    connect_s: float
    first_event_s: float
    stall_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """Whether a provider can be asked now, and what to tell a person otherwise."""

    configured: bool
    ready: bool
    detail: str = ""
    expected_wait_s: float = 0.0


class Provider(Protocol):
    """A way to have a request served."""

    def stream(
        self,
        request: ChatRequest,
        deployment: Deployment,
        deadlines: AttemptDeadlines,
        *,
        key_label: str | None = None,
    ) -> AsyncIterator[ChatEvent]:
        """Serve ``request``: events until a complete answer.

        Closing the iterator (``aclose``) closes the upstream connection. Always streams upstream, also
        where the client did not ask for a stream: a non-streamed answer is a folded stream. ``key_label``
        chooses among the provider's keys; without it the first one is used.

        Raises
        ------
        UpstreamError
            Any failure of the upstream, as its most specific subclass.

        """

    def status(self) -> ProviderStatus:
        """Say whether the provider can be asked now; no IO."""

    async def aclose(self) -> None:
        """Release connections and processes."""


@runtime_checkable
class SupervisedProvider(Provider, Protocol):
    """A provider with something of its own to keep running, such as an engine's process.

    The application runs :meth:`run` in its task group from its start to its end.
    """

    async def run(self) -> None:
        """Keep it running until cancelled; nothing of it is left afterwards."""
