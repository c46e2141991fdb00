from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_backend.engine.scheduler import (
    Admit,
    Decode,
    Prefill,
    Progress,
    Speed,
    estimate_wait_s,
    next_work,
)


def test_nothing_to_do() -> None:
    assert next_work(None, [], 8) is None


def test_the_first_that_waits_is_admitted() -> None:
    assert next_work(None, ["a", "b"], 8) == Admit("a")


def test_those_that_wait_do_not_disturb_the_running_one() -> None:
    assert next_work(Progress("r", 4, 4, 9), ["a"], 8) == Decode("r")


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 50), st.integers(0, 199))
def test_prefill_covers_the_prompt_once_in_chunks(prompt: int, chunk: int, cached: int) -> None:
    computed = min(cached, prompt - 1)
    chunks: list[Prefill] = []
    while isinstance(work := next_work(Progress("r", prompt, computed, 1), [], chunk), Prefill):
        assert work.start == computed
        assert 1 <= work.count <= chunk
        chunks.append(work)
        computed += work.count

    assert computed == prompt
    assert work == Decode("r")
    assert [c.last for c in chunks] == [False] * (len(chunks) - 1) + [True]


@pytest.mark.parametrize(
    ("ahead", "speed", "expected"),
    [
        ([], Speed(100, 10), 0.0),
        ([Progress("a", 100, 100, 20)], Speed(100, 10), 2.0),
        ([Progress("a", 100, 50, 20), Progress("b", 200, 0, 10)], Speed(100, 10), 5.5),
        ([Progress("a", 100, 0, 20)], Speed(), 1.0),
        ([Progress("a", 100, 0, 20)], Speed(prefill=50), 3.0),
    ],
)
def test_wait_is_the_rest_of_everything_ahead(ahead: list[Progress], speed: Speed, expected: float) -> None:
    assert estimate_wait_s(ahead, speed) == pytest.approx(expected)
