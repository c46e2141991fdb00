"""Metadata to specification, where keys are optional or come in several forms."""

from __future__ import annotations

from typing import Any

import pytest

from local_backend.errors import BadModelFile
from local_backend.gguf.metadata import Metadata
from local_backend.model.hyperparameters import read_specification
from local_backend.model.specification import (
    GatingFunction,
    MixtureOfExperts,
    ModelSpecification,
    RopeSpecification,
)
from local_backend.model.tensor_names import place_of, tensor_name
from local_backend.model.tensor_shapes import layer_shapes, shared_shapes
from local_backend.model.weights import TensorRole
from tests.local_backend.tiny_gguf import tiny_model


def specification(architecture: str = "llama", **changes: Any) -> ModelSpecification:
    """Read a tiny model's metadata, with keys below the architecture's prefix changed (None removes)."""
    prefix = architecture.removesuffix("-moe") + "."
    values = dict(tiny_model(architecture).metadata)
    for name, value in changes.items():
        key = prefix + name.replace("__", ".")
        values.pop(key, None)
        if value is not None:
            values[key] = value
    plain = {key: value for key, value in values.items() if not isinstance(value, list)}
    return read_specification(Metadata("m.gguf", plain), frozenset(), 271)


def rope(**changes: Any) -> RopeSpecification:
    return specification(**changes).layers[0].attention.rope


def test_absent_keys_take_the_defaults_of_the_format() -> None:
    layer = specification(
        attention__head_count_kv=None,
        attention__key_length=None,
        attention__value_length=None,
        rope__freq_base=None,
        rope__dimension_count=None,
    ).layers[0]

    assert layer.attention.kv_heads == layer.attention.heads == 4
    assert layer.attention.key_dimension == layer.attention.value_dimension == 16
    assert layer.attention.rope == RopeSpecification(layer.attention.rope.style, 16, 10_000.0)


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(BadModelFile, match=r"head_count: is 5, which does not divide"):
        specification(attention__head_count=5, attention__head_count_kv=5, attention__key_length=None)


def test_a_partial_rotation_is_kept() -> None:
    assert rope(rope__dimension_count=8).dimensions == 8


def test_linear_scaling_is_read_from_either_key() -> None:
    assert rope(rope__scaling__type="linear", rope__scaling__factor=4.0).scaling_factor == 4.0
    assert rope(rope__scale_linear=2.0).scaling_factor == 2.0
    assert rope(rope__scaling__type="none", rope__scaling__factor=4.0).scaling_factor == 1.0
    assert rope(rope__scaling__factor=0.0).scaling_factor == 1.0


def test_yarn_takes_its_settings() -> None:
    found = rope(
        rope__scaling__type="yarn",
        rope__scaling__factor=32.0,
        rope__scaling__original_context_length=4096,
        rope__scaling__attn_factor=0.5,
        rope__scaling__yarn_beta_fast=16.0,
    )

    assert found.scaling_factor == 32.0
    assert found.yarn_original_context == 4096
    assert found.yarn_attention_factor == 0.5
    assert found.yarn_beta_fast == 16.0
    assert found.yarn_beta_slow == 1.0


def test_yarn_without_an_original_context_takes_the_trained_one() -> None:
    assert rope(rope__scaling__type="yarn", rope__scaling__factor=2.0).yarn_original_context == 256


def test_llama3_frequencies_are_a_tensor_of_the_whole_model() -> None:
    shapes = shared_shapes(specification())

    assert shapes[TensorRole.ROPE_FREQUENCIES] == (8,)
    assert place_of("rope_freqs.weight") is not None


def test_mixtral_takes_its_expert_width_from_the_feed_forward_length() -> None:
    feed_forward = specification("llama-moe").layers[0].feed_forward

    assert isinstance(feed_forward, MixtureOfExperts)
    assert feed_forward.width == 64
    assert feed_forward.normalise_weights


@pytest.mark.parametrize(
    ("number", "function"),
    [(1, GatingFunction.SOFTMAX), (2, GatingFunction.SIGMOID), (3, GatingFunction.SOFTMAX_OF_CHOSEN)],
)
def test_the_gating_function_may_be_said(number: int, function: GatingFunction) -> None:
    feed_forward = (
        specification("qwen3moe", expert_gating_func=number, expert_weights_scale=2.5).layers[0].feed_forward
    )

    assert isinstance(feed_forward, MixtureOfExperts)
    assert feed_forward.gating is function
    assert feed_forward.weights_scale == 2.5


def test_a_dense_family_with_experts_is_refused() -> None:
    with pytest.raises(BadModelFile, match="qwen3 has no experts"):
        specification("qwen3", expert_count=4)


def test_a_shared_expert_may_leave_out_its_width_and_that_of_the_others() -> None:
    feed_forward = (
        specification("qwen2moe", expert_feed_forward_length=None, expert_shared_feed_forward_length=None)
        .layers[0]
        .feed_forward
    )

    assert isinstance(feed_forward, MixtureOfExperts)
    assert (feed_forward.width, feed_forward.shared_width) == (96 // 2, 96)
    assert not feed_forward.normalise_weights


def windows(architecture: str, **changes: Any) -> list[int | None]:
    layers = specification(architecture, block_count=7, **changes).layers
    return [layer.attention.sliding_window for layer in layers]


def test_windows_follow_the_pattern_of_the_family_or_of_the_file() -> None:
    pattern: dict[str, Any] = {"attention__sliding_window_pattern": None}

    assert windows("gemma3", **pattern) == [5, 5, 5, 5, 5, None, 5]
    assert windows("gpt-oss") == [5, None, 5, None, 5, None, 5]
    assert windows("gemma3", attention__sliding_window_pattern=3) == [5, 5, None, 5, 5, None, 5]
    assert windows("gemma3", attention__sliding_window_pattern=(True,) + 6 * (False,)) == [5] + 6 * [None]
    assert windows("gemma3", attention__sliding_window=None) == [None] * 7
    with pytest.raises(BadModelFile, match=r"sliding_window: is missing or zero; gpt-oss has a window"):
        windows("gpt-oss", attention__sliding_window=None)
    with pytest.raises(BadModelFile, match=r"sliding_window_pattern: has 2 entries"):
        windows("gpt-oss", attention__sliding_window_pattern=(True, False))
    with pytest.raises(BadModelFile, match=r"sliding_window: is 4294967295"):
        windows("gemma3", attention__sliding_window=(1 << 32) - 1)


def test_layers_with_a_window_may_rotate_by_a_base_of_their_own() -> None:
    window, full = specification("gemma3", rope__scaling__factor=8.0).layers
    assert (window.attention.rope.theta, window.attention.rope.scaling_factor) == (10_000.0, 1.0)
    assert (full.attention.rope.theta, full.attention.rope.scaling_factor) == (1_000_000.0, 8.0)

    window, full = specification("gpt-oss", rope__freq_base_swa=500.0).layers
    assert (window.attention.rope.theta, window.attention.rope.scaling_factor) == (500.0, 32.0)
    assert (full.attention.rope.theta, full.attention.rope.scaling_factor) == (10_000.0, 32.0)


def test_the_largest_gemma3_scales_attention_by_its_width() -> None:
    small, large = specification("gemma3"), specification("gemma3", block_count=62)

    assert small.layers[0].attention.scale == pytest.approx(32**-0.5)
    assert large.layers[0].attention.scale == pytest.approx((64 // 4) ** -0.5)
    assert small.embedding_scale == 8.0
    assert small.final_logit_cap is None
    assert specification("gemma3", final_logit_softcapping=30.0).final_logit_cap == 30.0


def test_names_and_roles_are_inverse() -> None:
    model = specification("qwen3moe")

    for role in layer_shapes(model.layers[0], model.hidden_size):
        place = place_of(tensor_name(role, 7))
        assert place is not None
        assert (place.role, place.layer) == (role, 7)
    assert place_of("blk.01.attn_q.weight") is None
    assert place_of("blk.0.attn_q.scale") is None
