"""A database on disk for each test, and records to put into it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from router.chat.features import RequestFeatures
from router.chat.types import Usage
from router.dispatch.attempt import Attempt
from router.health.outcome import Outcome, OutcomeKind, Scope
from router.recording.records import RequestRecord
from router.routing.candidate import Candidate, Exclusion, ExclusionReason, RoutingDecision, Score, ScoreTerm
from router.settings import installed_path
from router.storage.engine import open_engine
from router.storage.migrate import ensure_schema


@pytest.fixture
def scripts() -> Path:
    return installed_path("migrations")


@pytest.fixture
async def blank(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    engine = open_engine(f"sqlite+aiosqlite:///{tmp_path / 'data' / 'roundhouse.sqlite3'}")
    yield engine
    await engine.dispose()


@pytest.fixture
async def database(blank: AsyncEngine, scripts: Path) -> AsyncEngine:
    await ensure_schema(blank, scripts, upgrade=True)
    return blank


@pytest.fixture
def make_record() -> Callable[..., RequestRecord]:
    return _make_record


def _make_record(request_id: str = "req_1", received_at: float = 1_800_000_000.0) -> RequestRecord:
    failed = Outcome(
        OutcomeKind.RATE_LIMITED,
        Scope.KEY_MODEL,
        "429 slow down",
        bench_s=20.0,
        http_status=429,
        duration_s=0.1,
    )
    served = Outcome(OutcomeKind.SUCCESS, Scope.NONE, tokens_per_s=80.0, ttft_s=0.2, duration_s=1.0)
    decision = RoutingDecision(
        entrypoint="code",
        features=RequestFeatures(model="code", prompt_characters=400, wanted_output_tokens=None),
        candidates=(Candidate("a/first", Score((ScoreTerm("health", 0.8, 1.0, "prior"),))),),
        exclusions=(Exclusion("c/third", ExclusionReason.UNCONFIGURED, "no key"),),
        decided_at=received_at,
        judged_as="code",
    )
    return RequestRecord(
        request_id=request_id,
        received_at=received_at,
        surface="chat_completions",
        requested_model="auto",
        stream=True,
        status=200,
        error_code=None,
        deployment_id="b/second",
        attempts=(
            Attempt(1, "a/first", received_at, 0.1, failed),
            Attempt(2, "b/second", received_at + 0.1, 1.0, served, ttft_s=0.2, committed=True),
        ),
        decision=decision,
        usage=Usage(input_tokens=100, cached_input_tokens=20, output_tokens=50, reasoning_tokens=5),
        cost_micros=1234,
        ttft_s=0.31,
        duration_s=1.2,
        catalog_version="abc",
    )
