"""The record of requests: rows in, our own types out.

Knows nothing of queues or metrics; raises :class:`~router.errors.StorageError` only.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import RowMapping, func, insert, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from router.chat.types import JsonValue, Usage
from router.dispatch.attempt import Attempt
from router.errors import StorageError
from router.health.outcome import Outcome, OutcomeKind, Scope
from router.recording.records import RequestRecord
from router.routing.candidate import RoutingDecision
from router.routing.explanation import verdict_fields
from router.storage.tables import ATTEMPTS, REQUESTS

__all__ = ["RequestLog", "StoredRequest"]

_DETAIL_CHARACTERS = 1_000
_USAGE_COLUMNS = (
    "input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """One row with its attempts.

    ``record.decision`` is always ``None``: what is kept of a decision is ``decision``, as JSON:
    ``features``, ``candidates`` (``[id, score]`` in order), ``excluded`` (reason → ids) and ``verdict`` (who
    named the task, with the judge's call and its cost, which is no part of the record's own).
    """

    record: RequestRecord
    entrypoint: str | None
    judged_as: str | None
    decision: Mapping[str, JsonValue] | None


class RequestLog:
    """Writes records in batches and reads them back, newest first."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def append(self, records: Sequence[RequestRecord]) -> None:
        """Write a batch in one transaction: all of it, or nothing.

        Raises
        ------
        StorageError
            The database is locked, read-only, full or gone.

        """
        if not records:
            return
        keys = [_row_key(record.received_at) for record in records]
        requests = [_request_row(key, record) for key, record in zip(keys, records, strict=True)]
        attempts = [
            _attempt_row(key, attempt)
            for key, record in zip(keys, records, strict=True)
            for attempt in record.attempts
        ]
        try:
            async with self._engine.begin() as connection:
                await connection.execute(insert(REQUESTS), requests)
                if attempts:
                    await connection.execute(insert(ATTEMPTS), attempts)
        except (SQLAlchemyError, OSError) as error:
            raise StorageError(_reason(error)) from error

    async def latest(self, limit: int = 100) -> tuple[StoredRequest, ...]:
        """Return the newest requests, at most ``limit``."""
        return await self._read(select(REQUESTS).order_by(REQUESTS.c.row_key.desc()).limit(limit))

    async def find(self, request_id: str) -> tuple[StoredRequest, ...]:
        """Return every request of that id (a client may send the same id twice), newest first."""
        query = select(REQUESTS).where(REQUESTS.c.request_id == request_id)
        return await self._read(query.order_by(REQUESTS.c.row_key.desc()))

    async def count(self) -> int:
        """Return how many requests are recorded."""
        try:
            async with self._engine.connect() as connection:
                return int(
                    (await connection.execute(select(func.count()).select_from(REQUESTS))).scalar_one()
                )
        except (SQLAlchemyError, OSError) as error:
            raise StorageError(_reason(error)) from error

    async def _read(self, query: Any) -> tuple[StoredRequest, ...]:  # noqa: ANN401 - a Select of every column
        try:
            async with self._engine.connect() as connection:
                rows = (await connection.execute(query)).mappings().all()
                keys = [row["row_key"] for row in rows]
                tries = (
                    await connection.execute(
                        select(ATTEMPTS).where(ATTEMPTS.c.row_key.in_(keys)).order_by(ATTEMPTS.c.number)
                    )
                ).mappings()
                by_key: dict[str, list[Attempt]] = {key: [] for key in keys}
                for row in tries:
                    by_key[row["row_key"]].append(_attempt(row))
        except (SQLAlchemyError, OSError) as error:
            raise StorageError(_reason(error)) from error
        return tuple(_stored(row, tuple(by_key[row["row_key"]])) for row in rows)


def _row_key(received_at: float) -> str:
    """Sorts by time of arrival; random at the end, so that several gateways may share a database."""
    return f"{int(received_at * 1e6):015x}{secrets.token_hex(6)}"


def _request_row(key: str, record: RequestRecord) -> dict[str, object]:
    usage, decision = record.usage, record.decision
    return {
        "row_key": key,
        "request_id": record.request_id,
        "received_at": record.received_at,
        "surface": record.surface,
        "requested_model": record.requested_model[:256],
        "entrypoint": decision.entrypoint if decision else None,
        "judged_as": decision.judged_as if decision else None,
        "stream": record.stream,
        "status": record.status,
        "error_code": record.error_code,
        "deployment_id": record.deployment_id,
        **{name: getattr(usage, name) if usage else None for name in _USAGE_COLUMNS},
        "usage_estimated": usage.estimated if usage else None,
        "cost_micros": record.cost_micros,
        "ttft_s": record.ttft_s,
        "duration_s": record.duration_s,
        "catalog_version": record.catalog_version,
        "decision": _decision_json(decision) if decision else None,
    }


def _decision_json(decision: RoutingDecision) -> dict[str, object]:
    excluded: dict[str, list[str]] = {}
    for exclusion in decision.exclusions:
        excluded.setdefault(exclusion.reason.value, []).append(exclusion.deployment_id)
    return {
        "features": asdict(decision.features),
        "candidates": [[one.deployment_id, round(one.score.total, 4)] for one in decision.candidates],
        "excluded": excluded,
        "panic": decision.panic,
        "verdict": verdict_fields(decision.verdict) if decision.verdict is not None else None,
    }


def _attempt_row(key: str, attempt: Attempt) -> dict[str, object]:
    outcome = attempt.outcome
    return {
        "row_key": key,
        "number": attempt.number,
        "deployment_id": attempt.deployment_id,
        "started_at": attempt.started_at,
        "duration_s": attempt.duration_s,
        "ttft_s": attempt.ttft_s,
        "committed": attempt.committed,
        "outcome": outcome.kind.value,
        "scope": outcome.scope.value,
        "detail": outcome.detail[:_DETAIL_CHARACTERS],
        "http_status": outcome.http_status,
        "bench_s": outcome.bench_s,
        "tokens_per_s": outcome.tokens_per_s,
    }


def _attempt(row: RowMapping) -> Attempt:
    outcome = Outcome(
        kind=OutcomeKind(row["outcome"]),
        scope=Scope(row["scope"]),
        detail=row["detail"],
        bench_s=row["bench_s"],
        http_status=row["http_status"],
        ttft_s=row["ttft_s"],
        tokens_per_s=row["tokens_per_s"],
        duration_s=row["duration_s"],
    )
    return Attempt(
        number=row["number"],
        deployment_id=row["deployment_id"],
        started_at=row["started_at"],
        duration_s=row["duration_s"],
        outcome=outcome,
        ttft_s=row["ttft_s"],
        committed=row["committed"],
    )


def _stored(row: RowMapping, attempts: tuple[Attempt, ...]) -> StoredRequest:
    usage = None
    if row["input_tokens"] is not None:
        usage = Usage(**{name: row[name] for name in _USAGE_COLUMNS}, estimated=row["usage_estimated"])
    record = RequestRecord(
        request_id=row["request_id"],
        received_at=row["received_at"],
        surface=row["surface"],
        requested_model=row["requested_model"],
        stream=row["stream"],
        status=row["status"],
        error_code=row["error_code"],
        deployment_id=row["deployment_id"],
        attempts=attempts,
        decision=None,
        usage=usage,
        cost_micros=row["cost_micros"],
        ttft_s=row["ttft_s"],
        duration_s=row["duration_s"],
        catalog_version=row["catalog_version"],
    )
    return StoredRequest(record, row["entrypoint"], row["judged_as"], row["decision"])


def _reason(error: Exception) -> str:
    """Return the driver's own words without SQLAlchemy's: those carry the statement and its values."""
    original = getattr(error, "orig", None)
    return str(original or error).strip().partition("\n")[0]
