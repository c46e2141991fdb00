from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from local_backend.config import ActivationPreference
from local_backend.gguf.format import GGMLType
from local_backend.kernels.precision import FINE_BELOW, active_parameters, choose_precision
from local_backend.model.loader import open_model
from local_backend.model.specification import MixtureOfExperts
from local_backend.model.weights import TensorRole, Weight
from tests.local_backend.tiny_gguf import write_tiny_model


def test_what_is_asked_for_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path)
    with open_model(path) as file:
        for preference, bits in ((ActivationPreference.EIGHT, 8), (ActivationPreference.SIXTEEN, 16)):
            chosen = choose_precision(preference, file.specification, file.weights)

            assert chosen.bits == bits
            assert str(chosen) == f"{bits}-bit activations (asked for)"


@pytest.mark.parametrize(("head_rows", "bits"), [(FINE_BELOW // 64 - 10_000, 16), (FINE_BELOW // 64, 8)])
def test_auto_goes_by_the_parameters_of_a_token(tmp_path: Path, head_rows: int, bits: int) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path)
    with open_model(path) as file:
        head = Weight("head", GGMLType.Q8_0, (head_rows, 64), np.zeros(0, np.uint8))
        shared = {**file.weights.shared, TensorRole.OUTPUT_HEAD: head}
        chosen = choose_precision(
            ActivationPreference.AUTO,
            replace(file.specification, tied_head=False),
            replace(file.weights, shared=shared),
        )

    assert chosen.bits == bits
    assert "parameters a token" in str(chosen)


def test_experts_that_a_token_does_not_use_are_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path, "qwen3moe")
    with open_model(path) as file:
        specification, weights = file.specification, file.weights
        feed_forward = specification.layers[0].feed_forward
        assert isinstance(feed_forward, MixtureOfExperts)
        fewer = replace(feed_forward, used=feed_forward.used - 1)
        layers = (replace(specification.layers[0], feed_forward=fewer), *specification.layers[1:])
        difference = active_parameters(specification, weights) - active_parameters(
            replace(specification, layers=layers), weights
        )

    assert difference == 3 * feed_forward.width * specification.hidden_size
