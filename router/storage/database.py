"""The one database of a gateway: opened late, migrated where it is ours, and never in anybody's way.

Everything here may fail with :class:`~router.errors.StorageError`; the callers degrade, requests go on.
A database that was not usable at the start is tried again with the next batch of records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from router.chat.types import JsonValue
from router.errors import StorageError
from router.recording.records import RequestRecord
from router.storage.engine import open_engine, shown_url
from router.storage.health_state import HealthStateStore
from router.storage.migrate import ensure_schema, migrate
from router.storage.request_log import RequestLog

__all__ = ["Database"]


class Database:
    """Opens on first use. ``migrate_itself`` allows changing the schema without being asked."""

    def __init__(self, url: str, scripts: Path, *, migrate_itself: bool) -> None:
        self._url = url
        self._scripts = scripts
        self._migrate_itself = migrate_itself
        self._engine: AsyncEngine | None = None
        self._prepared = False

    @property
    def shown_url(self) -> str:
        """The URL without its password."""
        return shown_url(self._url)

    async def prepare(self) -> None:
        """Open the database and make sure that its schema is this version's."""
        await self._ready()

    async def migrate(self, target: str) -> None:
        """Move the schema to ``target``: ``head``, ``base`` or a revision; up or down."""
        await migrate(self._opened(), self._scripts, target)

    async def append(self, records: Sequence[RequestRecord]) -> None:
        """Write a batch of records: the recorder's sink."""
        await RequestLog(await self._ready()).append(records)

    async def request_log(self) -> RequestLog:
        """Return the request log for reading."""
        return RequestLog(await self._ready())

    async def save_health(self, state: Mapping[str, JsonValue], saved_at: float) -> None:
        """Keep the health tracker's state for the next start."""
        await HealthStateStore(await self._ready()).save(state, saved_at)

    async def load_health(self) -> Mapping[str, JsonValue] | None:
        """Return the state that was saved last, or ``None``."""
        return await HealthStateStore(await self._ready()).load()

    async def aclose(self) -> None:
        """Close every connection."""
        if self._engine is not None:
            await self._engine.dispose()
            self._engine = None
            self._prepared = False

    def _opened(self) -> AsyncEngine:
        if self._engine is None:
            try:
                self._engine = open_engine(self._url)
            except ImportError as error:
                raise StorageError(f"the driver of this database is not installed: {error.name}") from error
            except (SQLAlchemyError, OSError) as error:
                raise StorageError(f"the database cannot be opened: {error}") from error
        return self._engine

    async def _ready(self) -> AsyncEngine:
        engine = self._opened()
        if not self._prepared:
            await ensure_schema(engine, self._scripts, upgrade=self._migrate_itself)
            self._prepared = True
        return engine
