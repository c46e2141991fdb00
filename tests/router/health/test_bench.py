from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.health.bench import BenchBook, BenchKey
from router.health.outcome import Outcome, OutcomeKind, Provenance, Scope

KEY = BenchKey(Scope.KEY_MODEL, "acme", "ACME_KEY", "big")


def limited(bench_s: float, *, stated: bool = True) -> Outcome:
    return Outcome(
        OutcomeKind.RATE_LIMITED,
        Scope.KEY_MODEL,
        "slow down",
        bench_s=bench_s,
        bench_from=Provenance.STATED if stated else Provenance.GUESSED,
    )


def test_a_bench_is_never_shortened() -> None:
    book = BenchBook()
    book.strike(KEY, limited(60.0), 0.0, 0.0)
    book.strike(KEY, limited(1.0), 0.0, 2.0)

    assert book.strike(KEY, limited(5.0), 3.0, 3.0).until == 60.0


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 5000), st.booleans()), min_size=1, max_size=30))
def test_no_order_of_strikes_moves_an_active_end_nearer(strikes: list[tuple[float, float, bool]]) -> None:
    book, now, end = BenchBook(), 0.0, 0.0
    for gap, length, stated in strikes:
        now += gap
        bench = book.strike(KEY, limited(length, stated=stated), now, now)

        assert bench.until >= end or end <= now
        end = bench.until


def test_a_burst_of_refusals_is_one_strike() -> None:
    book = BenchBook()
    book.strike(KEY, limited(30.0, stated=False), 0.0, 1.0)
    late = [book.strike(KEY, limited(30.0, stated=False), 0.5, 1.0 + step / 10) for step in range(1, 10)]

    assert {bench.strikes for bench in late} == {1}
    assert late[-1].until == pytest.approx(31.9)


def test_guesses_double_and_are_capped_while_statements_are_taken_as_they_are() -> None:
    book, now, lengths = BenchBook(), 0.0, []
    for _ in range(7):
        bench = book.strike(KEY, limited(30.0, stated=False), now, now)
        lengths.append(bench.until - now)
        now = bench.until + 1.0

    assert lengths == [30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0]
    assert book.strike(KEY, limited(7.0), now, now).until == now + 7.0


def test_after_its_end_one_probe_shows_whether_it_is_over() -> None:
    book = BenchBook()
    book.strike(KEY, limited(10.0), 0.0, 0.0)

    assert not book.take_probe(KEY, 1, 5.0)
    assert book.take_probe(KEY, 1, 10.0)
    assert not book.take_probe(KEY, 2, 10.0)
    bench = book.find(KEY, 10.0)
    assert bench is not None
    assert bench.probing(10.0)

    assert book.succeed(KEY, 10.0, 12.0)
    assert book.find(KEY, 12.0) is None


def test_a_success_that_began_before_the_bench_does_not_end_it() -> None:
    book = BenchBook()
    book.strike(KEY, limited(1.0), 5.0, 5.0)

    assert not book.succeed(KEY, 4.0, 7.0)
    assert book.find(KEY, 7.0) is not None


def test_a_probe_without_a_verdict_makes_room_and_an_old_one_cannot() -> None:
    book = BenchBook()
    book.strike(KEY, limited(10.0), 0.0, 0.0)
    book.take_probe(KEY, 1, 10.0)
    book.release_probe(KEY, 99)

    assert not book.take_probe(KEY, 2, 10.0)

    book.release_probe(KEY, 1)
    assert book.take_probe(KEY, 2, 10.0)


def test_a_busy_slot_returns_without_proof() -> None:
    slot = BenchKey(Scope.SLOT, "local", model="m")
    book = BenchBook()
    book.strike(slot, Outcome(OutcomeKind.SLOT_BUSY, Scope.SLOT, bench_s=5.0), 0.0, 0.0)

    assert book.find(slot, 4.9) is not None
    assert book.find(slot, 5.0) is None


def test_strikes_are_forgotten_after_a_quiet_time() -> None:
    book = BenchBook()
    book.strike(KEY, limited(30.0, stated=False), 0.0, 0.0)
    book.strike(KEY, limited(30.0, stated=False), 31.0, 31.0)

    assert book.strike(KEY, limited(30.0, stated=False), 9000.0, 9000.0).strikes == 1

    book.prune(99_999.0)
    assert len(book) == 0
