"""Records to keep, without a database."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from router.dispatch.attempt import Attempt
from router.health.outcome import Outcome, OutcomeKind, Scope
from router.recording.records import RequestRecord


@pytest.fixture
def make_record() -> Callable[..., RequestRecord]:
    return _make_record


def _make_record(
    request_id: str = "req_1",
    *,
    requested_model: str = "chat",
    status: int = 200,
    deployment_id: str | None = "a/one",
) -> RequestRecord:
    served = Outcome(OutcomeKind.SUCCESS, Scope.NONE)
    return RequestRecord(
        request_id=request_id,
        received_at=1_800_000_000.0,
        surface="chat_completions",
        requested_model=requested_model,
        stream=False,
        status=status,
        error_code=None,
        deployment_id=deployment_id,
        attempts=(Attempt(1, deployment_id, 1_800_000_000.0, 0.5, served),) if deployment_id else (),
        decision=None,
        usage=None,
        cost_micros=7,
        ttft_s=0.2,
        duration_s=0.5,
        catalog_version="v",
    )
