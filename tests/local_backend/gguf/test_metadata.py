"""Asking for metadata by type."""

from __future__ import annotations

import math

import numpy as np
import pytest

from local_backend.errors import BadModelFile
from local_backend.gguf.metadata import Metadata

METADATA = Metadata(
    "m.gguf",
    {
        "text": "t",
        "flag": True,
        "count": 7,
        "ratio": 0.5,
        "nan": math.nan,
        "words": ("a", "b"),
        "mixed": (("a",), ("b",)),
        "none": np.array([], dtype=np.int32),
        "heads": np.array([4, 8], dtype=np.uint32),
        "scores": np.array([0.5, -1.0], dtype=np.float32),
    },
)


def test_values_of_the_right_type_are_returned() -> None:
    assert METADATA.text("text") == "t"
    assert METADATA.flag("flag", default=False) is True
    assert METADATA.integer("count") == 7
    assert METADATA.number("ratio") == 0.5
    assert METADATA.number("count") == 7.0
    assert METADATA.strings("words") == ("a", "b")
    assert METADATA.optional_strings("none") == ()
    assert METADATA.optional_integers("heads") == (4, 8)
    assert METADATA.per_layer("heads", 2) == (4, 8)
    assert METADATA.per_layer("count", 3) == (7, 7, 7)
    numbers = METADATA.optional_numbers("scores")
    assert numbers is not None
    assert numbers.tolist() == [0.5, -1.0]


def test_absent_keys_are_none_or_the_default_where_they_may_be() -> None:
    assert METADATA.optional_text("x") is None
    assert METADATA.flag("x", default=True) is True
    assert METADATA.optional_integer("x") is None
    assert METADATA.optional_number("x") is None
    assert METADATA.optional_strings("x") is None
    assert METADATA.optional_numbers("x") is None
    assert METADATA.optional_integers("x") is None
    assert "x" not in METADATA
    assert len(METADATA) == 10


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        (lambda: METADATA.text("x"), "key x: is missing"),
        (lambda: METADATA.text("count"), r"key count: is a int \('7'\); expected a string"),
        (lambda: METADATA.flag("text", default=True), "expected a boolean"),
        (lambda: METADATA.integer("flag"), "expected an integer"),
        (lambda: METADATA.integer("ratio"), "expected an integer"),
        (lambda: METADATA.integer("count", most=6), "is 7; expected 0 to 6"),
        (lambda: METADATA.number("text"), "expected a number"),
        (lambda: METADATA.number("nan"), "is nan; expected a finite number"),
        (lambda: METADATA.number("ratio", least=1.0), "at least 1"),
        (lambda: METADATA.number("ratio", above=0.5), "greater than 0.5"),
        (lambda: METADATA.strings("heads"), "an array of 2 uint32; expected an array of strings"),
        (lambda: METADATA.strings("mixed"), "expected an array of strings"),
        (lambda: METADATA.optional_numbers("words"), "expected an array of numbers"),
        (lambda: METADATA.optional_integers("scores"), "expected an array of integers"),
        (lambda: METADATA.per_layer("heads", 3), "has 2 entries for 3 layers"),
        (lambda: METADATA.per_layer("heads", 2, most=7), "is 8; expected 0 to 7"),
        (lambda: METADATA.per_layer("x", 2), "is missing"),
    ],
)
def test_anything_else_is_refused_with_the_key(ask: object, problem: str) -> None:
    assert callable(ask)
    with pytest.raises(BadModelFile, match=problem):
        ask()
