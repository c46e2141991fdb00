"""``roundhouse migrate``: bring a database up, or down, to a revision. Knows no requests."""

from __future__ import annotations

import argparse
import asyncio
import sys

from router.settings import installed_path, read_database_url
from router.storage.database import Database

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Migrate the database that the options name."""
    url = read_database_url({"data_dir": options.data_dir, "database_url": options.database_url})
    database = Database(url, installed_path("migrations"), migrate_itself=True)
    asyncio.run(_migrate(database, options.to))
    sys.stdout.write(f"{database.shown_url} is at {options.to}\n")
    return 0


async def _migrate(database: Database, target: str) -> None:
    try:
        await database.migrate(target)
    finally:
        await database.aclose()
