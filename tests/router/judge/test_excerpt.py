from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.judge.excerpt import excerpt, visible

# Everything, surrogates too: a client may send whatever its language lets it build.
ANY_TEXT = st.text(alphabet=st.characters(), max_size=400)
BUDGETS = st.integers(16, 300)


@given(ANY_TEXT, BUDGETS)
def test_an_excerpt_is_bounded_and_can_be_encoded(text: str, most_bytes: int) -> None:
    assert len(excerpt(text, most_bytes).encode()) <= most_bytes


@given(ANY_TEXT, BUDGETS)
def test_an_excerpt_is_the_whole_or_its_beginning_and_its_end(text: str, most_bytes: int) -> None:
    whole, shown = visible(text), excerpt(text, most_bytes)

    if shown != whole:
        beginning, _, ending = shown.partition("\n[...]\n")
        assert whole.startswith(beginning)
        assert whole.endswith(ending)


@given(ANY_TEXT)
def test_nothing_unseen_is_shown(text: str) -> None:
    shown = visible(text)

    assert not [
        c for c in shown if unicodedata.category(c) in {"Cs", "Cf", "Cc"} and c not in "\n\t\u200c\u200d"
    ]
    assert visible(shown) == shown


@pytest.mark.parametrize(
    "character",
    [
        "\u00e9",
        "e\u0301",
        "\u65e5",
        "\U0001f642",
        "\U0001f469\u200d\U0001f4bb",
        "\U0001f44d\U0001f3fd",
        "\U0001f1e9\U0001f1ea",
        "\u0928\u093f",
        "\u0e01\u0e47",
    ],
    ids=["one", "combining", "cjk", "emoji", "joined", "toned", "flag", "hindi", "thai"],
)
@pytest.mark.parametrize("most_bytes", range(16, 64))
def test_a_cut_never_falls_into_a_character(character: str, most_bytes: int) -> None:
    beginning, _, ending = excerpt(f"{character}-" * 100, most_bytes).partition("\n[...]\n")

    rest = f"{beginning}{ending}".replace(character, "").replace("-", "")
    assert rest == ""


def test_lone_surrogates_and_tricks_of_direction_are_made_visible_or_dropped() -> None:
    assert visible("a\ud800b\udfff") == "a\ufffdb\ufffd"
    assert visible("safe\u202e\u2066\U000e0041\u00ad\x00\x1b[31m") == "safe[31m"
    assert visible("one\r\ntwo\rthree") == "one\ntwo\nthree"


def test_a_letter_under_a_mountain_of_marks_is_cut_all_the_same() -> None:
    assert 0 < len(excerpt("a" + "\u0301" * 10_000, 200).encode()) <= 200


def test_of_megabytes_only_the_ends_are_read() -> None:
    text = "begin " + "x{}[]\n" * 2_000_000 + " end"

    shown = excerpt(text, 600)

    assert shown.startswith("begin ")
    assert shown.endswith(" end")
    assert len(shown.encode()) <= 600
