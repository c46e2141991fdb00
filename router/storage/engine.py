"""Open the database: SQLite as a file of ours by default, PostgreSQL by its URL.

Knows no tables and no queries.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

__all__ = ["open_engine", "shown_url"]

# Another process may hold the write lock for a moment (a backup, a second gateway): wait that long.
_BUSY_TIMEOUT_MS = 2_000
_OWNER_ONLY = 0o700


def open_engine(url: str) -> AsyncEngine:
    """Make an engine for ``url``; connects lazily, so a database that is down does not stop the start.

    The folder of a SQLite file is created, for its owner alone.

    Raises
    ------
    OSError
        The folder cannot be created.

    """
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return create_async_engine(
            parsed, json_serializer=_dump, json_deserializer=orjson.loads, pool_size=4, pool_pre_ping=True
        )
    if parsed.database and parsed.database != ":memory:":
        Path(parsed.database).parent.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
    engine = create_async_engine(parsed, json_serializer=_dump, json_deserializer=orjson.loads)
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    return engine


def shown_url(url: str) -> str:
    """Return ``url`` as it may be printed: without a password."""
    return make_url(url).render_as_string(hide_password=True)


def _dump(value: object) -> str:
    return orjson.dumps(value).decode()


def _prepare_sqlite(connection: Any, _record: object) -> None:  # noqa: ANN401 - the driver's own type
    """Let readers and the writer not block each other; lose at most the last batch in a power cut."""
    cursor = connection.cursor()
    try:
        cursor.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA foreign_keys=ON")
        # A read-only file cannot change its journal; reading it must still work.
        if os.access(_file_of(cursor), os.W_OK):
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("PRAGMA synchronous=NORMAL")
    finally:
        cursor.close()


def _file_of(cursor: Any) -> str:  # noqa: ANN401 - the driver's own type
    cursor.execute("PRAGMA database_list")
    return next((row[2] for row in cursor.fetchall() if row[1] == "main"), "") or os.devnull
