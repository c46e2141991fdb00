"""Who served whom last is remembered for a while, within bounds, and counts in the decision."""

from __future__ import annotations

import random

from router.chat.features import TaskKind
from router.health.snapshot import HealthSnapshot
from router.routing.conversations import Conversations
from router.routing.decide import decide
from router.routing.verdict import TaskVerdict

from .conftest import NOW, catalog, deployment, features


def test_the_last_one_counts_and_is_forgotten_in_time() -> None:
    known = Conversations(remembered_s=60)
    known.remember(b"c", "one", 0.0)
    known.remember(b"c", "two", 10.0)

    assert known.last(b"c", 70.0) == "two"
    assert known.last(b"c", 70.1) is None
    assert len(known) == 0
    assert known.last(b"d", 0.0) is None


def test_the_memory_is_bounded_and_the_one_longest_unused_goes_first() -> None:
    known = Conversations(most=100)
    known.remember(b"old", "one", 0.0)
    for number in range(99):
        known.remember(b"%d" % number, "one", 1.0)
    known.remember(b"old", "one", 2.0)
    known.remember(b"new", "one", 3.0)

    assert len(known) == 100
    assert known.last(b"old", 3.0) == "one"
    assert known.last(b"0", 3.0) is None


def test_between_equals_the_one_that_served_before_comes_first_and_it_is_a_term(
    nobody_known: HealthSnapshot,
) -> None:
    both = catalog(deployment("a"), deployment("b"))
    for previous in ("a", "b"):
        decision = decide(
            features(),
            both.entrypoints["chat"],
            both,
            nobody_known,
            now=NOW,
            rng=random.Random(1),  # noqa: S311 - breaks ties
            verdict=TaskVerdict(TaskKind.CHAT, ""),
            previous_deployment=previous,
            reasoning_history=previous == "b",
        )

        assert decision.candidates[0].deployment_id == previous
        term = decision.candidates[0].score.terms[-1]
        assert term.name == "stickiness"
        assert ("reasoning" in term.basis) == (previous == "b")
        assert term.value == (1.0 if previous == "b" else term.value) > 0.5
