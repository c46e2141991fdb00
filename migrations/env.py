"""Run migrations on the connection that was handed in, or on the one ``-x url=`` names."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from router.storage.tables import METADATA


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        compare_type=True,
        render_as_batch=connection.dialect.name == "sqlite",
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    _run(given)
else:
    url = context.get_x_argument(as_dictionary=True).get("url")
    if url is None:
        raise SystemExit(
            "name the database: alembic -c migrations/alembic.ini -x url=sqlite:///FILE upgrade head"
        )
    with create_engine(url, poolclass=NullPool).connect() as connection:
        _run(connection)
