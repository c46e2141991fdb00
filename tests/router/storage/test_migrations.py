from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect
from sqlalchemy.ext.asyncio import AsyncEngine

from router.errors import StorageError
from router.recording.records import RequestRecord
from router.storage.migrate import HEAD_REVISION, current_revision, ensure_schema, migrate
from router.storage.request_log import RequestLog
from router.storage.tables import METADATA

pytestmark = pytest.mark.anyio


def test_the_head_that_the_gateway_looks_for_is_the_newest_script(scripts: Path) -> None:
    assert ScriptDirectory(str(scripts)).get_heads() == [HEAD_REVISION]


async def test_migrations_and_tables_say_the_same(database: AsyncEngine) -> None:
    def difference(connection: Connection) -> list[object]:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, METADATA))

    async with database.connect() as connection:
        assert await connection.run_sync(difference) == []


async def test_a_blank_database_goes_up_down_and_up_again(blank: AsyncEngine, scripts: Path) -> None:
    assert await current_revision(blank) is None
    await migrate(blank, scripts, "head")
    assert await current_revision(blank) == HEAD_REVISION
    await migrate(blank, scripts, "base")
    assert await current_revision(blank) is None
    assert await _tables(blank) == {"alembic_version"}
    await migrate(blank, scripts, "head")
    assert await current_revision(blank) == HEAD_REVISION


async def test_a_populated_database_goes_down_and_up(
    database: AsyncEngine, scripts: Path, make_record: Callable[..., RequestRecord]
) -> None:
    await RequestLog(database).append([make_record()])

    await migrate(database, scripts, "base")
    await migrate(database, scripts, "head")

    assert await RequestLog(database).count() == 0


async def test_a_second_start_changes_nothing(
    database: AsyncEngine, scripts: Path, make_record: Callable[..., RequestRecord]
) -> None:
    await RequestLog(database).append([make_record()])
    await ensure_schema(database, scripts, upgrade=True)

    assert await RequestLog(database).count() == 1


async def test_a_database_that_is_not_ours_to_change_names_the_command(
    blank: AsyncEngine, scripts: Path
) -> None:
    with pytest.raises(StorageError, match="run `roundhouse migrate`"):
        await ensure_schema(blank, scripts, upgrade=False)
    assert await _tables(blank) == set()


async def test_a_database_of_a_newer_version_is_left_alone(database: AsyncEngine, scripts: Path) -> None:
    async with database.begin() as connection:
        await connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(StorageError, match="newer than this version"):
        await ensure_schema(database, scripts, upgrade=True)


async def test_an_unknown_revision_is_refused_by_name(database: AsyncEngine, scripts: Path) -> None:
    with pytest.raises(StorageError, match="no revision 'nonsense'"):
        await migrate(database, scripts, "nonsense")


async def _tables(engine: AsyncEngine) -> set[str]:
    async with engine.connect() as connection:
        return set(await connection.run_sync(lambda sync: inspect(sync).get_table_names()))
