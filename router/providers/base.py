"""The one seam between the gateway and whatever serves a model.

Knows the canonical request and events; not HTTP, not scores, not health.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from router.catalog.catalog import Deployment
from router.chat.types import ChatEvent, ChatRequest

__all__ = [
    "AttemptDeadlines",
    "JoiningProvider",
    "LaneFigures",
    "Provider",
    "ProviderStatus",
    "SlotStream",
    "SupervisedProvider",
]


@dataclass(frozen=True, slots=True)
class AttemptDeadlines:
    """Bounds of one attempt, seconds each. Stall is the longest wait between two events of content.

    ``slot_wait_s`` is the longest wait for a slot of this machine that is worth it, since others could
    serve meanwhile; ``None``: nobody else could, so any wait within the total is. The other bounds count
    from the moment the slot is there.
    """

    connect_s: float
    first_event_s: float
    stall_s: float
    total_s: float
    slot_wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class LaneFigures:
    """How an engine's slots are taken. Rates are tokens per second; the others count requests.

    ``spilled`` were sent elsewhere rather than let wait, ``joined`` were answered by a generation that ran
    already, ``kept`` are generations that nobody reads at present.
    """

    slots: int
    running: int
    waiting: int
    queue_limit: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    typical_output_tokens: float
    spilled: int = 0
    joined: int = 0
    kept: int = 0


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """Whether a provider can be asked now, and what to tell a person otherwise."""

    configured: bool
    ready: bool
    detail: str = ""
    expected_wait_s: float = 0.0
    # For people: what is decided from it is `expected_wait_s`.
    lane: LaneFigures | None = field(default=None, compare=False)


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


@runtime_checkable
class JoiningProvider(Provider, Protocol):
    """A provider whose running generations an identical request can be answered from."""

    def joinable(self, request: ChatRequest) -> str | None:
        """Return the id of the deployment that works on the very same request; ``None`` where none does."""


@runtime_checkable
class SlotStream(Protocol):
    """A stream that may have waited for a slot, or share somebody else's generation.

    ``waited_s`` is no time of the model's; ``joined`` is the id of the request whose generation this is,
    empty where it is the stream's own: then its times say nothing about the model.
    """

    waited_s: float
    joined: str
