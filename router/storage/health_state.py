"""What the health tracker wants to find again after a restart.

Knows nothing of what the state means: it is the tracker's own JSON.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import delete, insert, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from router.chat.types import JsonValue
from router.errors import StorageError
from router.storage.tables import HEALTH_STATE

__all__ = ["HealthStateStore"]

_NAME = "tracker"


class HealthStateStore:
    """One saved state, replaced as a whole."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def save(self, state: Mapping[str, JsonValue], saved_at: float) -> None:
        """Replace what was saved; ``saved_at`` is wall-clock seconds.

        Raises
        ------
        StorageError
            The database cannot be written.

        """
        try:
            async with self._engine.begin() as connection:
                await connection.execute(delete(HEALTH_STATE).where(HEALTH_STATE.c.name == _NAME))
                await connection.execute(
                    insert(HEALTH_STATE), {"name": _NAME, "saved_at": saved_at, "state": dict(state)}
                )
        except (SQLAlchemyError, OSError) as error:
            raise StorageError(f"the health state cannot be saved: {error}") from error

    async def load(self) -> Mapping[str, JsonValue] | None:
        """Return what was saved last, or ``None``.

        Raises
        ------
        StorageError
            The database cannot be read.

        """
        try:
            async with self._engine.connect() as connection:
                row = (
                    await connection.execute(select(HEALTH_STATE.c.state).where(HEALTH_STATE.c.name == _NAME))
                ).one_or_none()
        except (SQLAlchemyError, OSError) as error:
            raise StorageError(f"the health state cannot be read: {error}") from error
        return row[0] if row is not None and isinstance(row[0], dict) else None
