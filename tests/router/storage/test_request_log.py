from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from router.errors import StorageError
from router.recording.records import RequestRecord
from router.storage.engine import open_engine, shown_url
from router.storage.migrate import ensure_schema
from router.storage.request_log import RequestLog

pytestmark = pytest.mark.anyio
MakeRecord = Callable[..., RequestRecord]


async def test_a_record_comes_back_as_it_was_but_for_the_decision(
    database: AsyncEngine, make_record: MakeRecord
) -> None:
    log, record = RequestLog(database), make_record()

    await log.append([record])
    (stored,) = await log.latest()

    first, second = stored.record.attempts
    assert replace(stored.record, attempts=()) == replace(record, decision=None, attempts=())
    assert (first.outcome.kind, first.outcome.detail, first.outcome.bench_s) == (
        "rate_limited",
        "429 slow down",
        20.0,
    )
    assert (second.deployment_id, second.committed, second.ttft_s) == ("b/second", True, 0.2)
    assert (stored.entrypoint, stored.judged_as) == ("code", "code")


async def test_a_decision_is_kept_with_features_scores_and_exclusions(
    database: AsyncEngine, make_record: MakeRecord
) -> None:
    log = RequestLog(database)

    await log.append([make_record()])
    (stored,) = await log.latest()

    assert stored.decision is not None
    assert stored.decision["candidates"] == [["a/first", 0.8]]
    assert stored.decision["excluded"] == {"unconfigured": ["c/third"]}
    assert stored.decision["features"]["prompt_characters"] == 400  # type: ignore[index,call-overload]


async def test_the_newest_come_first_and_an_id_that_was_sent_twice_finds_both(
    database: AsyncEngine, make_record: MakeRecord
) -> None:
    log = RequestLog(database)

    await log.append([make_record("same", 10.0), make_record("other", 20.0), make_record("same", 30.0)])

    assert [one.record.received_at for one in await log.latest(2)] == [30.0, 20.0]
    assert [one.record.received_at for one in await log.find("same")] == [30.0, 10.0]
    assert await log.count() == 3


async def test_a_request_that_never_got_a_decision_is_a_row_too(
    database: AsyncEngine, make_record: MakeRecord
) -> None:
    log = RequestLog(database)
    refused = replace(
        make_record(),
        decision=None,
        attempts=(),
        usage=None,
        cost_micros=None,
        status=404,
        deployment_id=None,
    )

    await log.append([refused])
    (stored,) = await log.latest()

    assert stored.record == refused
    assert stored.decision is None


async def test_a_batch_is_written_whole_or_not_at_all(database: AsyncEngine, make_record: MakeRecord) -> None:
    log, good = RequestLog(database), make_record()
    twice = replace(good, attempts=(good.attempts[0], good.attempts[0]))

    with pytest.raises(StorageError, match="UNIQUE"):
        await log.append([good, twice])

    assert await log.count() == 0


async def test_a_locked_database_is_a_storage_error_without_the_rows_values(
    tmp_path: Path, scripts: Path, make_record: MakeRecord
) -> None:
    file = tmp_path / "locked.sqlite3"
    engine = open_engine(f"sqlite+aiosqlite:///{file}?timeout=0.05")
    await ensure_schema(engine, scripts, upgrade=True)
    other = sqlite3.connect(file)
    other.execute("BEGIN EXCLUSIVE")
    try:
        async with engine.connect() as connection:
            await connection.exec_driver_sql("PRAGMA busy_timeout=20")
        with pytest.raises(StorageError, match="locked") as caught:
            await RequestLog(engine).append([make_record()])
    finally:
        other.close()
        await engine.dispose()

    assert "429 slow down" not in str(caught.value)


async def test_the_folder_of_the_database_is_for_its_owner_alone(
    database: AsyncEngine, tmp_path: Path
) -> None:
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    async with database.connect() as connection:
        assert (await connection.exec_driver_sql("PRAGMA journal_mode")).scalar() == "wal"


def test_a_shown_url_has_no_password() -> None:
    assert "hunter2" not in shown_url("postgresql+asyncpg://me:hunter2@db/name")
