"""Whose turn it is, whatever comes and goes in whatever order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from router.chat.types import Priority
from router.providers.slot_queue import SlotQueue

INTERACTIVE, BACKGROUND = Priority.INTERACTIVE, Priority.BACKGROUND


def enter(queue: SlotQueue, now: float, priority: Priority = INTERACTIVE) -> int:
    number, _ = queue.enter(now, priority)
    assert number is not None
    return number


def test_a_free_slot_is_had_at_once() -> None:
    queue = SlotQueue(2, 0)

    first, second = enter(queue, 0.0), enter(queue, 0.0)

    assert queue.running == {first, second}
    assert queue.is_full


def test_first_come_first_served_within_a_class() -> None:
    queue = SlotQueue(1, 8)
    running = enter(queue, 0.0)
    waiting = [enter(queue, 0.0) for _ in range(3)]

    assert queue.leave(running) == (waiting[0],)
    assert queue.leave(waiting[0]) == (waiting[1],)


def test_interactive_comes_before_background() -> None:
    queue = SlotQueue(1, 8)
    running = enter(queue, 0.0)
    chore = enter(queue, 1.0, BACKGROUND)
    person = enter(queue, 20.0)

    assert queue.waiting == (person, chore)
    assert queue.leave(running) == (person,)


def test_background_is_overtaken_for_no_longer_than_the_handicap() -> None:
    queue = SlotQueue(1, 8, handicap_s=30.0)
    enter(queue, 0.0)
    chore = enter(queue, 1.0, BACKGROUND)
    enter(queue, 30.9)
    late = enter(queue, 31.1)

    assert queue.waiting.index(chore) == 1
    assert queue.waiting[-1] == late


def test_a_full_queue_refuses_one_who_would_be_last() -> None:
    queue = SlotQueue(1, 1)
    enter(queue, 0.0)
    enter(queue, 0.0)

    assert queue.enter(0.0, INTERACTIVE) == (None, None)
    assert queue.enter(0.0, BACKGROUND) == (None, None)


def test_a_full_queue_takes_a_person_in_place_of_a_chore() -> None:
    queue = SlotQueue(1, 2)
    enter(queue, 0.0)
    first = enter(queue, 0.0, BACKGROUND)
    last = enter(queue, 1.0, BACKGROUND)
    number, displaced = queue.enter(2.0, INTERACTIVE)

    assert displaced == last
    assert queue.waiting == (number, first)
    # One that has aged is not displaced any more.
    assert queue.enter(60.0, INTERACTIVE) == (None, None)


def test_who_is_ahead_is_told_before_and_after_arriving() -> None:
    queue = SlotQueue(1, 8)
    enter(queue, 0.0)
    chore = enter(queue, 0.0, BACKGROUND)
    person = enter(queue, 1.0)

    assert queue.ahead_of(None, 2.0, INTERACTIVE) == (person,)
    assert queue.ahead_of(None, 2.0, BACKGROUND) == (person, chore)
    assert queue.ahead_of(chore, 2.0, BACKGROUND) == (person,)


STEPS = st.lists(
    st.tuples(st.sampled_from(["person", "chore", "leave"]), st.integers(0, 30), st.floats(0.0, 50.0)),
    max_size=60,
)


@given(STEPS, st.integers(1, 3), st.integers(0, 5))
@settings(max_examples=200, deadline=None)
def test_no_slot_is_lost_and_nobody_twice_whatever_happens(
    steps: list[tuple[str, int, float]], slots: int, limit: int
) -> None:
    queue = SlotQueue(slots, limit)
    inside: list[int] = []
    now = 0.0
    for what, which, later in steps:
        now += later
        if what != "leave":
            number, displaced = queue.enter(now, INTERACTIVE if what == "person" else BACKGROUND)
            if displaced is not None:
                inside.remove(displaced)
            if number is not None:
                inside.append(number)
        elif inside:
            granted = queue.leave(inside.pop(which % len(inside)))
            assert set(granted) <= queue.running

        assert sorted([*queue.running, *queue.waiting]) == sorted(inside)
        assert len(queue.running) == min(slots, len(inside))
        assert len(queue.waiting) <= limit
    for number in tuple(inside):
        queue.leave(number)

    assert not queue.running
    assert not queue.waiting
