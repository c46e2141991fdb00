from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from router.errors import StorageError
from router.recording.records import RequestRecord
from router.storage.database import Database

pytestmark = pytest.mark.anyio


async def test_a_database_that_was_not_usable_is_tried_again(
    tmp_path: Path, scripts: Path, make_record: Callable[..., RequestRecord]
) -> None:
    folder = tmp_path / "data"
    folder.write_text("in the way")
    database = Database(f"sqlite+aiosqlite:///{folder / 'x.sqlite3'}", scripts, migrate_itself=True)

    with pytest.raises(StorageError, match="cannot be opened"):
        await database.append([make_record()])
    folder.unlink()
    await database.append([make_record()])

    assert await (await database.request_log()).count() == 1
    await database.aclose()


async def test_a_file_that_is_no_database_is_a_storage_error(tmp_path: Path, scripts: Path) -> None:
    file = tmp_path / "x.sqlite3"
    file.write_bytes(b"this is not a database, it is a text" * 100)
    database = Database(f"sqlite+aiosqlite:///{file}", scripts, migrate_itself=True)

    with pytest.raises(StorageError, match="not a database"):
        await database.prepare()
    await database.aclose()


async def test_a_database_that_only_reads_costs_the_records_and_can_still_be_read(
    tmp_path: Path, scripts: Path, make_record: Callable[..., RequestRecord]
) -> None:
    file = tmp_path / "x.sqlite3"
    writing = Database(f"sqlite+aiosqlite:///{file}", scripts, migrate_itself=True)
    await writing.append([make_record()])
    await writing.aclose()
    reading = Database(f"sqlite+aiosqlite:///file:{file}?mode=ro&uri=true", scripts, migrate_itself=True)

    with pytest.raises(StorageError, match="readonly"):
        await reading.append([make_record()])

    assert await (await reading.request_log()).count() == 1
    await reading.aclose()


async def test_a_full_database_costs_the_records_and_is_written_again_when_there_is_room(
    tmp_path: Path, scripts: Path, make_record: Callable[..., RequestRecord]
) -> None:
    file = tmp_path / "x.sqlite3"
    database = Database(f"sqlite+aiosqlite:///{file}", scripts, migrate_itself=True)
    await database.prepare()
    engine = database._opened()
    async with engine.connect() as connection:
        pages = (await connection.exec_driver_sql("PRAGMA page_count")).scalar()
        await connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")

    with pytest.raises(StorageError, match="full"):
        await database.append([make_record(f"req_{number}") for number in range(500)])
    async with engine.connect() as connection:
        await connection.exec_driver_sql("PRAGMA max_page_count=100000")
    await database.append([make_record()])

    assert await (await database.request_log()).count() == 1
    await database.aclose()


async def test_a_server_that_is_not_there_is_a_storage_error_without_the_password(scripts: Path) -> None:
    url = "postgresql+asyncpg://me:hunter2@127.0.0.1:1/name"
    database = Database(url, scripts, migrate_itself=False)

    with pytest.raises(StorageError) as caught:
        await database.prepare()

    assert "hunter2" not in f"{caught.value} {database.shown_url}"
    await database.aclose()
