"""Give an attempt up as soon as it turns out that there is no network to make it over.

Only worth it where somebody else waits who needs none. Knows no addresses and no candidates.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import anyio

from router.errors import UpstreamUnreachable

__all__ = ["Network", "unless_offline"]

# Most connections, and many first words, have come by then; nothing is looked into before.
_DOUBT_AFTER_S: Final = 0.4


class Network(Protocol):
    """What is known of the network."""

    @property
    def is_gone(self) -> bool:
        """Whether it was found to be gone, and has not been seen since."""

    @property
    def is_proved(self) -> bool:
        """Whether somebody outside was heard a moment ago."""

    def heard(self) -> None:
        """Note that somebody outside was heard."""

    def suspect(self) -> None:
        """Note that several could not be reached."""

    async def is_there(self) -> bool:
        """Find out now; takes well under a second."""


async def unless_offline(work: Callable[[], Awaitable[None]], network: Network) -> None:
    """Do ``work``; give it up where it takes long and the network is gone.

    Raises
    ------
    UpstreamUnreachable
        There is no network. Beside that, whatever ``work`` raises.

    """
    failure: Exception | None = None
    done = False

    async def doubt() -> None:
        await anyio.sleep(_DOUBT_AFTER_S)
        if not await network.is_there():
            both.cancel_scope.cancel()

    async with anyio.create_task_group() as both:
        both.start_soon(doubt)
        try:
            await work()
            done = True
        except Exception as error:  # noqa: BLE001 - a task group would wrap it
            failure, done = error, True
        both.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if not done:
        raise UpstreamUnreachable("there is no network: nobody outside can be reached")
