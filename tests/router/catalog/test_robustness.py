"""Whatever stands in the file: a catalog or problems, nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from router.catalog.documentation import EXAMPLE
from router.catalog.load import parse_catalog
from router.catalog.secret_scan import REMOVED, find_secrets, without_secrets
from router.catalog.yaml_source import plain, read_yaml
from router.errors import ConfigurationError

GOOD = YAML(typ="safe", pure=True).load(EXAMPLE)
SHIPPED = (Path(__file__).parents[3] / "providers.yaml").read_bytes()


def load(data: bytes) -> None:
    try:
        parse_catalog(data)
    except ConfigurationError as error:
        problems = error.problems
    else:
        return

    assert problems
    assert all(one.message and one.fix for one in problems)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    load(data)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=" \n\t:-[]{}&*!|>'\"#%@,?ab1.~<", max_size=80))
def test_any_text_of_yaml_s_own_characters(text: str) -> None:
    load(text.encode())


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, len(EXAMPLE) - 1),
    st.integers(1, 30),
    st.sampled_from(["", " ", "\n", ":", "-1", "[", "x"]),
)
def test_a_damaged_good_file(start: int, length: int, instead: str) -> None:
    load((EXAMPLE[:start] + instead + EXAMPLE[start + length :]).encode())


JSON_LIKE: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["limits", "judge", "entrypoints", "providers", "candidates"]), JSON_LIKE)
def test_any_value_in_place_of_a_block(block: str, value: Any) -> None:
    load(json.dumps({**GOOD, block: value}).encode())


def test_the_tree_holds_what_the_yaml_library_would_load() -> None:
    tree, problems = read_yaml(SHIPPED.decode(), "p.yaml")

    assert not problems
    assert tree is not None
    assert plain(tree) == YAML(typ="safe", pure=True).load(SHIPPED.decode())


def test_secrets_are_placed_and_removed() -> None:
    text = "a: b\n  key: sk-abcdefghijklmnop # and Bearer abcdefgh12345\n"

    assert find_secrets(text) == ((2, 8), (2, 34))
    assert without_secrets(text) == f"a: b\n  key: {REMOVED} # and {REMOVED}\n"
