"""A defect of ours, at any seam, costs no answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from router.errors import Exhausted
from router.health.outcome import OutcomeKind
from tests.fakes.clock import VirtualTimeLoop
from tests.fakes.dispatch import FAILURES, Bench, kinds, read
from tests.fakes.provider import (
    FakeProvider,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return ("asyncio", {"loop_factory": VirtualTimeLoop})


async def test_a_provider_that_nobody_built_is_a_defect_and_the_next_is_asked() -> None:
    bench = Bench(FakeProvider(), FakeProvider())
    del bench.providers["a"]
    dispatch = bench.open()

    assert await read(dispatch) == "good"
    assert kinds(dispatch) == [("a", OutcomeKind.GATEWAY_DEFECT), ("b", OutcomeKind.SUCCESS)]
    assert bench.tracker.in_flight == 0


def _raising(*_: object, **__: object) -> object:
    raise RuntimeError("defect")


@pytest.mark.parametrize(
    "seam",
    ["acquire", "settle", "release", "observe_first_event", "observe_usage"],
)
async def test_a_defect_in_the_tracker_costs_no_answer(seam: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(FakeProvider([FAILURES["429"][0]]), FakeProvider())
    real: Callable[..., object] = getattr(bench.tracker, seam)
    failures = iter([True])

    def once(*arguments: object, **named: object) -> object:
        return _raising() if next(failures, False) else real(*arguments, **named)

    monkeypatch.setattr(bench.tracker, seam, once)

    assert await read(bench.open()) == "good"


@pytest.mark.parametrize("seam", ["classify", "exhausted"])
async def test_a_defect_in_the_rules_ends_no_request_dishonestly(
    seam: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"router.dispatch.dispatcher.{seam}", _raising)
    bench = Bench(FakeProvider([FAILURES["500"][0]]), FakeProvider([FAILURES["500"][0]]))
    with pytest.raises(Exhausted) as caught:
        await read(bench.open())

    assert caught.value.http_status == 503
    bench.assert_nothing_held()
