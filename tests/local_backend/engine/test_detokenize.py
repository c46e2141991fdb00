from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_backend.engine.detokenize import TextStream

texts = st.text(st.sampled_from("abAB ñ€😀\n"), max_size=40)
stops_lists = st.lists(st.text(st.sampled_from("abAB ñ€😀\n"), min_size=1, max_size=5), max_size=3)


def run(chunks: list[bytes], stops: list[str]) -> tuple[str, bool, list[str]]:
    stream = TextStream(stops)
    sent = [stream.push(chunk) for chunk in chunks]
    sent.append(stream.finish())
    return "".join(sent), stream.stopped, sent


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(p % (len(data) + 1) for p in at), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@settings(deadline=None)
@given(texts, stops_lists, st.lists(st.integers(0, 400), max_size=30))
def test_any_cut_gives_the_same_text(text: str, stops: list[str], at: list[int]) -> None:
    data = text.encode()
    whole = run([data], stops)
    single = run([data[i : i + 1] for i in range(len(data))], stops)

    assert run(cut(data, at), stops)[:2] == whole[:2] == single[:2]


@settings(deadline=None)
@given(texts, stops_lists)
def test_the_text_ends_before_the_stop_that_is_complete_first(text: str, stops: list[str]) -> None:
    got, stopped, _ = run([text.encode()], stops)

    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    assert stopped == bool(ends)
    if not ends:
        assert got == text
    else:
        longest = max(len(s) for s in stops if s in text and text.index(s) + len(s) == min(ends))
        assert got == text[: min(ends) - longest]


@settings(deadline=None)
@given(texts, stops_lists, st.lists(st.integers(0, 400), max_size=30))
def test_nothing_of_a_stop_string_is_ever_sent(text: str, stops: list[str], at: list[int]) -> None:
    _, _, sent = run(cut(text.encode(), at), stops)

    so_far = ""
    for piece in sent:
        so_far += piece
        assert not any(stop in so_far for stop in stops)


def test_half_a_character_waits_for_the_rest() -> None:
    stream = TextStream()
    first, second = "€".encode()[:2], "€".encode()[2:]

    assert stream.push(b"a" + first) == "a"
    assert stream.push(second + b"b") == "€b"


def test_half_a_character_at_the_end_is_dropped() -> None:
    assert run(["😀".encode()[:3]], [])[0] == ""
    assert run([b"ok" + "😀".encode()[:3]], [])[0] == "ok"


def test_bytes_that_are_no_text_become_replacement_characters() -> None:
    assert run([b"a\xffb"], [])[0] == "a\ufffdb"


def test_what_looked_like_a_stop_is_sent_when_it_is_none() -> None:
    stream = TextStream(["STOP"])

    assert stream.push(b"x ST") == "x "
    assert stream.push(b"A") == "STA"
    assert stream.push(b"STO") == ""
    assert stream.finish() == "STO"


def test_nothing_comes_after_a_stop() -> None:
    stream = TextStream(["END"])

    assert stream.push(b"a END b") == "a "
    assert stream.stopped
    assert stream.push(b"more") == stream.finish() == ""


@pytest.mark.parametrize("stops", [[], [""]])
def test_without_stops_everything_is_sent_at_once(stops: list[str]) -> None:
    assert TextStream(stops).push(b"abc") == "abc"
