from __future__ import annotations

import pytest

from router.errors import UnknownModel
from router.routing.resolve import resolve

from .conftest import catalog, deployment

EVERYTHING = catalog(deployment("deepseek/v4-chat"), deployment("groq/Qwen3-32B"))


def test_an_entrypoint_is_found_by_name() -> None:
    assert resolve("code", EVERYTHING) is EVERYTHING.entrypoints["code"]


def test_a_candidates_id_pins_it_alone() -> None:
    pinned = resolve("groq/Qwen3-32B", EVERYTHING)

    assert pinned.candidates == ("groq/Qwen3-32B",)
    assert pinned.name == "groq/Qwen3-32B"
    assert not pinned.judged


@pytest.mark.parametrize("name", [" Code ", "GROQ/qwen3-32b"])
def test_case_and_blanks_are_forgiven(name: str) -> None:
    assert resolve(name, EVERYTHING).name.casefold() == name.strip().casefold()


def test_an_unknown_name_is_refused_with_close_ones() -> None:
    with pytest.raises(UnknownModel, match=r"groq/Qwen3-32B") as caught:
        resolve("groq/qwen-32b", EVERYTHING)

    assert caught.value.http_status == 404
    assert caught.value.param == "model"


@pytest.mark.parametrize("name", ["", "zzzzzzz", "x" * 100_000, "\N{SNOWMAN}"])
def test_nonsense_is_refused_in_a_short_sentence(name: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        resolve(name, EVERYTHING)

    assert len(caught.value.message) < 300
    assert "/v1/models" in caught.value.message
