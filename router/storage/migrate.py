"""Bring the database's schema to this version's, and down again for a downgrade.

Knows revisions only. Alembic costs half a second to import, so it is imported only when there is
something to change: whether there is, is read from its own table.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from router.errors import StorageError

__all__ = ["HEAD_REVISION", "current_revision", "ensure_schema", "migrate"]

HEAD_REVISION = "0001"


async def current_revision(engine: AsyncEngine) -> str | None:
    """Return the revision that the database says it is at; ``None`` for a blank one."""
    async with engine.connect() as connection:
        return await connection.run_sync(_read_revision)


async def ensure_schema(engine: AsyncEngine, scripts: Path, *, upgrade: bool) -> None:
    """Make sure that the schema is this version's; ``upgrade`` allows changing it.

    Raises
    ------
    StorageError
        The database cannot be reached or written, or is at another revision and may not be changed.

    """
    try:
        found = await current_revision(engine)
        if found == HEAD_REVISION:
            return
        if found is not None and found > HEAD_REVISION:
            raise StorageError(
                f"the database is at revision {found}, newer than this version's {HEAD_REVISION}: "
                "start the version that wrote it, or pass another --data-dir"
            )
        if not upgrade:
            raise StorageError(
                f"the database is at revision {found or 'none'}, this version needs {HEAD_REVISION}: "
                "run `roundhouse migrate` with the same --database-url"
            )
        await migrate(engine, scripts, HEAD_REVISION)
    except (SQLAlchemyError, OSError) as error:
        raise StorageError(f"the database cannot be opened: {_first_line(error)}") from error


async def migrate(engine: AsyncEngine, scripts: Path, target: str) -> None:
    """Go to ``target``: a revision, ``head`` or ``base``; up or down as needed.

    Raises
    ------
    StorageError
        There is no such revision, or the database cannot be reached or changed.

    """
    try:
        async with engine.connect() as connection:
            await connection.run_sync(_run_alembic, scripts, target)
    except (SQLAlchemyError, OSError) as error:
        raise StorageError(f"the database cannot be migrated: {_first_line(error)}") from error


def _read_revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _run_alembic(connection: Connection, scripts: Path, target: str) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.attributes["connection"] = connection
    revisions = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    order = {revision: height for height, revision in enumerate(reversed(revisions), start=1)}
    found = _read_revision(connection)
    connection.rollback()
    wanted = {"head": len(order), "base": 0}.get(target, order.get(target))
    if wanted is None:
        raise StorageError(
            f"there is no revision {target!r}: use head, base or one of {', '.join(sorted(order))}"
        )
    step = command.upgrade if wanted >= order.get(found or "", 0) else command.downgrade
    step(config, target)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
