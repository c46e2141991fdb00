"""The tables, as SQLAlchemy Core sees them; ``migrations/`` must agree, and a test compares the two.

Knows no queries. A request's row holds no prompt and no answer.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

__all__ = ["ATTEMPTS", "HEALTH_STATE", "METADATA", "REQUESTS"]

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# row_key is made by us and sorts by time: a batch is written without reading ids back.
REQUESTS = Table(
    "requests",
    METADATA,
    Column("row_key", String(32), primary_key=True),
    Column("request_id", String(128), nullable=False),
    Column("received_at", Float, nullable=False),
    Column("surface", String(32), nullable=False),
    Column("requested_model", String(256), nullable=False),
    Column("entrypoint", String(256)),
    Column("judged_as", String(32)),
    Column("stream", Boolean, nullable=False),
    Column("status", Integer, nullable=False),
    Column("error_code", String(64)),
    Column("deployment_id", String(256)),
    Column("input_tokens", Integer),
    Column("cached_input_tokens", Integer),
    Column("cache_write_tokens", Integer),
    Column("output_tokens", Integer),
    Column("reasoning_tokens", Integer),
    Column("usage_estimated", Boolean),
    Column("cost_micros", BigInteger),
    Column("ttft_s", Float),
    Column("duration_s", Float, nullable=False),
    Column("catalog_version", String(64), nullable=False),
    Column("decision", JSON),
    Index(None, "received_at"),
    Index(None, "request_id"),
    Index(None, "deployment_id", "received_at"),
)

ATTEMPTS = Table(
    "attempts",
    METADATA,
    Column("row_key", String(32), ForeignKey("requests.row_key", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("deployment_id", String(256), nullable=False),
    Column("started_at", Float, nullable=False),
    Column("duration_s", Float, nullable=False),
    Column("ttft_s", Float),
    Column("committed", Boolean, nullable=False),
    Column("outcome", String(32), nullable=False),
    Column("scope", String(32), nullable=False),
    Column("detail", Text, nullable=False),
    Column("http_status", Integer),
    Column("bench_s", Float, nullable=False),
    Column("tokens_per_s", Float),
)

# One row for each thing that is saved over a restart; "tracker" is the health tracker's.
HEALTH_STATE = Table(
    "health_state",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("saved_at", Float, nullable=False),
    Column("state", JSON, nullable=False),
)
