from __future__ import annotations

from router.dispatch.held_events import HELD_BYTES, HELD_EVENTS, HELD_FOR_S, HeldEvents
from tests.fakes.provider import finish, metadata, text


def test_events_come_out_in_order() -> None:
    held = HeldEvents()
    for event in (first := metadata(b"1"), second := text("2")):
        held.add(event, 0.0)

    assert [held.pop(), held.pop(), held.pop()] == [first, second, None]


def test_metadata_beyond_the_count_is_dropped_but_never_content() -> None:
    held = HeldEvents()
    for _ in range(HELD_EVENTS + 10):
        held.add(metadata(), 0.0)
    held.add(text("content"), 0.0)

    assert len(held) == HELD_EVENTS + 1
    assert held.dropped == 10


def test_metadata_beyond_the_bytes_is_dropped() -> None:
    held = HeldEvents()
    held.add(metadata(b"x" * HELD_BYTES), 0.0)
    held.add(metadata(b"x"), 0.0)

    assert (len(held), held.dropped) == (1, 1)


def test_late_metadata_is_no_beginning_however_late_the_first_was() -> None:
    held = HeldEvents()
    held.add(metadata(b"role"), 100.0)
    held.add(metadata(b"soon"), 100.0 + HELD_FOR_S)
    held.add(metadata(b"late"), 100.1 + HELD_FOR_S)

    assert (len(held), held.dropped) == (2, 1)


def test_a_flood_of_endings_is_bounded_too() -> None:
    held = HeldEvents()
    for _ in range(1_000):
        held.add(finish(), 0.0)

    assert len(held) <= 2 * HELD_EVENTS
