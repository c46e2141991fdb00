"""Tiny models of every family, and with each trait that a file may turn on."""

from __future__ import annotations

from typing import Any

import numpy as np

from local_backend.gguf.format import GGMLType
from tests.local_backend.tiny_gguf import ARCHITECTURES, LAYERS, Tensor, TinyModel, quantize, tiny_model

SEED = 3


def variants() -> dict[str, TinyModel]:
    """Return models by name; each has a head of its own."""
    return {name: tiny_model(name, seed=SEED, tied=False) for name in ARCHITECTURES} | {
        "llama, tied head": tiny_model("llama", seed=SEED),
        "llama, linear scaling": _with_scaling("llama", type="linear", factor=4.0),
        "llama, yarn": _with_scaling("llama", type="yarn", factor=4.0, original_context_length=64),
        "llama, frequency divisors": _with_divisors(),
        "llama, biases": _with_biases(),
        "qwen3moe, one expert used": _with_keys("qwen3moe", {"expert_used_count": 1}),
        "gpt-oss, windows by layer": _with_keys(
            "gpt-oss", {"attention.sliding_window_pattern": [False, True], "rope.freq_base_swa": 5000.0}
        ),
        "gemma3, linear scaling": _with_scaling("gemma3", type="linear", factor=8.0),
        "gemma3, capped logits": _with_keys("gemma3", {"final_logit_softcapping": 2.0}),
        "gemma3, no window": _with_keys("gemma3", {"attention.sliding_window": 0}),
        "gemma3, windows everywhere": _with_keys("gemma3", {"attention.sliding_window_pattern": 0}),
        "gemma3, tied head": tiny_model("gemma3", seed=SEED),
    }


def _with_keys(name: str, keys: dict[str, Any]) -> TinyModel:
    model = tiny_model(name, seed=SEED, tied=False)
    model.metadata |= {f"{name}.{key}": value for key, value in keys.items()}
    return model


def _with_scaling(name: str, **scaling: str | float) -> TinyModel:
    return _with_keys(name, {f"rope.scaling.{key}": value for key, value in scaling.items()})


def _vector(name: str, values: list[float]) -> Tensor:
    return Tensor(name, GGMLType.F32, (len(values),), quantize(GGMLType.F32, values))


def _with_divisors() -> TinyModel:
    model = tiny_model("llama", seed=SEED, tied=False)
    model.tensors.append(_vector("rope_freqs.weight", [1.0, 1.0, 1.5, 2.0, 4.0, 8.0, 8.0, 8.0]))
    return model


def _with_biases() -> TinyModel:
    model = tiny_model("llama", seed=SEED, tied=False)
    rng = np.random.default_rng(SEED)
    for layer in range(LAYERS):
        for name, size in (("q", 64), ("k", 32), ("v", 32), ("output", 64)):
            values = (0.3 * rng.standard_normal(size)).tolist()
            model.tensors.append(_vector(f"blk.{layer}.attn_{name}.bias", values))
    return model
