from __future__ import annotations

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from router.errors import StorageError
from router.storage.health_state import HealthStateStore

pytestmark = pytest.mark.anyio


async def test_a_saved_state_comes_back_and_a_newer_one_replaces_it(database: AsyncEngine) -> None:
    store = HealthStateStore(database)

    assert await store.load() is None
    await store.save({"version": 1, "deployments": {"a": {"health": 0.4}}}, 100.0)
    await store.save({"version": 1, "deployments": {}}, 200.0)

    assert await store.load() == {"version": 1, "deployments": {}}


async def test_a_database_without_tables_is_a_storage_error(blank: AsyncEngine) -> None:
    with pytest.raises(StorageError, match="cannot be read"):
        await HealthStateStore(blank).load()
