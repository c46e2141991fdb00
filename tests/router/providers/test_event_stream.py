from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import UpstreamBrokenStream
from router.providers.event_stream import EventStreamParser, ServerSentEvent


def parse(*pieces: bytes, flush: bool = False) -> list[ServerSentEvent]:
    parser = EventStreamParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.flush() if flush else events


def data_of(*pieces: bytes, flush: bool = False) -> list[bytes]:
    return [event.data for event in parse(*pieces, flush=flush)]


@pytest.mark.parametrize("ending", [b"\n", b"\r", b"\r\n"], ids=["LF", "CR", "CRLF"])
def test_every_line_ending_ends_a_line(ending: bytes) -> None:
    stream = ending.join([b"data: one", b"", b"data: two", b"", b""])

    assert data_of(stream) == [b"one", b"two"]


def test_mixed_line_endings_in_one_stream() -> None:
    assert data_of(b"data: a\r\n\ndata: b\r\rdata: c\n\r\n") == [b"a", b"b", b"c"]


def test_data_lines_join_with_lf_and_lose_one_leading_space() -> None:
    assert data_of(b"data: a\ndata:  b\ndata:c\ndata\n\n") == [b"a\n b\nc\n"]


def test_comments_unknown_fields_and_events_without_data_say_nothing() -> None:
    assert parse(b": OPENROUTER PROCESSING\n\nid: 4\nretry: 10\n\nevent: ping\n\nfoo: bar\n\n") == []


def test_an_event_keeps_its_type_and_the_next_one_does_not_inherit_it() -> None:
    assert parse(b"event: error\ndata: x\n\ndata: y\n\n") == [
        ServerSentEvent(b"x", "error"),
        ServerSentEvent(b"y", None),
    ]


@pytest.mark.parametrize("split", [0, 1, 2, 3, 4])
def test_a_byte_order_mark_is_dropped_wherever_it_is_split(split: int) -> None:
    stream = b"\xef\xbb\xbfdata: x\n\n"

    assert data_of(stream[:split], stream[split:]) == [b"x"]


def test_a_byte_order_mark_later_on_belongs_to_its_line() -> None:
    assert data_of(b"data: a\n\n\xef\xbb\xbfdata: b\n\n") == [b"a"]


def test_what_only_begins_like_a_byte_order_mark_is_kept() -> None:
    assert data_of(b"\xef\xbb", b"\ndata: x\n\n") == [b"x"]


def test_a_crlf_split_between_its_bytes_is_one_ending() -> None:
    assert data_of(b"data: x\r", b"\n\r", b"\ndata: y\r", b"\n\r\n") == [b"x", b"y"]


def test_flush_gives_the_event_that_lacks_its_blank_line_or_its_line_ending() -> None:
    assert data_of(b"data: [DONE]", flush=True) == [b"[DONE]"]
    assert data_of(b"data: [DONE]\n", flush=True) == [b"[DONE]"]
    assert data_of(b"data: [DONE]\n\n", flush=True) == [b"[DONE]"]
    assert data_of(b"", flush=True) == []


def test_a_line_beyond_the_bound_breaks_the_stream() -> None:
    parser = EventStreamParser(maximum_event_bytes=100)
    parser.feed(b"data: " + b"x" * 90)

    with pytest.raises(UpstreamBrokenStream, match="longer than 100 bytes"):
        parser.feed(b"x" * 90)


def test_many_short_lines_beyond_the_bound_break_the_stream_too() -> None:
    parser = EventStreamParser(maximum_event_bytes=100)

    with pytest.raises(UpstreamBrokenStream, match="holds more than 100 bytes"):
        parser.feed(b"data\n" * 200)


_LINES = st.sampled_from(
    [
        b"data: x",
        b"data:",
        b"data",
        b"data: {}",
        b": c",
        b"event: error",
        b"id: 1",
        b"",
        b"",
        b"\xef\xbb\xbf",
        b"\xff",
    ]
)
_STREAMS = st.lists(st.tuples(_LINES, st.sampled_from([b"\n", b"\r", b"\r\n", b""])), max_size=12).map(
    lambda lines: b"".join(line + ending for line, ending in lines)
)


@given(st.one_of(_STREAMS, st.binary(max_size=60)), st.lists(st.integers(0, 100), max_size=6))
def test_any_split_of_the_same_bytes_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    bounds = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[start:stop] for start, stop in pairwise(bounds)]

    assert parse(*pieces, flush=True) == parse(stream, flush=True)
    assert parse(*pieces) == parse(stream)


@given(_STREAMS)
def test_byte_by_byte_gives_the_same_events(stream: bytes) -> None:
    assert parse(*(stream[at : at + 1] for at in range(len(stream)))) == parse(stream)


def test_a_long_line_in_small_pieces_takes_linear_time() -> None:
    parser = EventStreamParser()
    started = time.perf_counter()
    parser.feed(b"data: ")
    for _ in range(4_000):
        parser.feed(b"x" * 1_000)
    events = parser.feed(b"\n\n")

    assert len(events[0].data) == 4_000_000
    assert time.perf_counter() - started < 1.0
