"""Requests, their attempts, and the health state that outlives a restart."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_requests()
    op.create_table(
        "attempts",
        sa.Column("row_key", sa.String(32), nullable=False),
        sa.Column("number", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("deployment_id", sa.String(256), nullable=False),
        sa.Column("started_at", sa.Float, nullable=False),
        sa.Column("duration_s", sa.Float, nullable=False),
        sa.Column("ttft_s", sa.Float),
        sa.Column("committed", sa.Boolean, nullable=False),
        sa.Column("outcome", sa.String(32), nullable=False),
        sa.Column("scope", sa.String(32), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("http_status", sa.Integer),
        sa.Column("bench_s", sa.Float, nullable=False),
        sa.Column("tokens_per_s", sa.Float),
        sa.PrimaryKeyConstraint("row_key", "number", name="pk_attempts"),
        sa.ForeignKeyConstraint(
            ["row_key"], ["requests.row_key"], name="fk_attempts_row_key_requests", ondelete="CASCADE"
        ),
    )
    op.create_table(
        "health_state",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("saved_at", sa.Float, nullable=False),
        sa.Column("state", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_health_state"),
    )


def _create_requests() -> None:
    op.create_table(
        "requests",
        sa.Column("row_key", sa.String(32), nullable=False),
        sa.Column("request_id", sa.String(128), nullable=False),
        sa.Column("received_at", sa.Float, nullable=False),
        sa.Column("surface", sa.String(32), nullable=False),
        sa.Column("requested_model", sa.String(256), nullable=False),
        sa.Column("entrypoint", sa.String(256)),
        sa.Column("judged_as", sa.String(32)),
        sa.Column("stream", sa.Boolean, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("error_code", sa.String(64)),
        sa.Column("deployment_id", sa.String(256)),
        sa.Column("input_tokens", sa.Integer),
        sa.Column("cached_input_tokens", sa.Integer),
        sa.Column("cache_write_tokens", sa.Integer),
        sa.Column("output_tokens", sa.Integer),
        sa.Column("reasoning_tokens", sa.Integer),
        sa.Column("usage_estimated", sa.Boolean),
        sa.Column("cost_micros", sa.BigInteger),
        sa.Column("ttft_s", sa.Float),
        sa.Column("duration_s", sa.Float, nullable=False),
        sa.Column("catalog_version", sa.String(64), nullable=False),
        sa.Column("decision", sa.JSON),
        sa.PrimaryKeyConstraint("row_key", name="pk_requests"),
    )
    op.create_index("ix_requests_received_at", "requests", ["received_at"])
    op.create_index("ix_requests_request_id", "requests", ["request_id"])
    op.create_index("ix_requests_deployment_id_received_at", "requests", ["deployment_id", "received_at"])


def downgrade() -> None:
    op.drop_table("health_state")
    op.drop_table("attempts")
    op.drop_index("ix_requests_deployment_id_received_at", "requests")
    op.drop_index("ix_requests_request_id", "requests")
    op.drop_index("ix_requests_received_at", "requests")
    op.drop_table("requests")
