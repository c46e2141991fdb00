"""Opening models: what is sound is loaded by role, what is not is refused by name within a second."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from local_backend.errors import BadModelFile, EngineError, InvalidRequest, UnsupportedModel
from local_backend.gguf.dequantize import dequantize
from local_backend.gguf.format import GGMLType
from local_backend.model.default_model import resolve_model
from local_backend.model.loader import open_model
from local_backend.model.specification import (
    DenseFeedForward,
    GatingFunction,
    MixtureOfExperts,
    RopeStyle,
)
from local_backend.model.tokenizer import Tokenizer
from local_backend.model.weights import TensorRole
from tests.local_backend import tiny_gguf
from tests.local_backend.tiny_gguf import (
    ARCHITECTURES,
    Tensor,
    TinyModel,
    gguf_bytes,
    tiny_model,
    write_shards,
    write_tiny_model,
)

LAYER = "blk.1."


@pytest.mark.parametrize(
    "block_type", [GGMLType.F32, GGMLType.F16, GGMLType.Q8_0, GGMLType.Q4_0, GGMLType.Q4_1]
)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_family_loads_with_every_block_type(
    tmp_path: Path, architecture: str, block_type: GGMLType
) -> None:
    model = open_model(write_tiny_model(tmp_path / "m.gguf", architecture, block_type))
    specification, weights = model.specification, model.weights

    assert specification.architecture == architecture.removesuffix("-moe")
    assert specification.hidden_size == tiny_gguf.HIDDEN
    assert specification.vocabulary_size == model.vocabulary.size == 271
    assert specification.tied_head
    assert len(specification.layers) == len(weights.layers) == tiny_gguf.LAYERS
    assert weights.shared[TensorRole.TOKEN_EMBEDDING].shape == (271, tiny_gguf.HIDDEN)
    for roles in weights.layers:
        assert roles[TensorRole.QUERY].type is block_type
        for weight in roles.values():
            assert weight.data.dtype == np.uint8
            assert weight.data.nbytes == weight.row_bytes * math.prod(weight.shape[:-1])
    model.close()


def test_a_dense_llama_is_described(tmp_path: Path) -> None:
    layer = open_model(write_tiny_model(tmp_path / "m.gguf", "llama")).specification.layers[0]

    assert layer.feed_forward == DenseFeedForward(tiny_gguf.WIDTH)
    assert layer.attention.rope.style is RopeStyle.NORMAL
    assert layer.attention.scale == pytest.approx(0.25)
    assert not layer.attention.qk_norm
    assert layer.norm_epsilon == pytest.approx(1e-5)


def test_a_qwen3_mixture_is_described(tmp_path: Path) -> None:
    specification = open_model(write_tiny_model(tmp_path / "m.gguf", "qwen3moe", tied=False)).specification
    attention, feed_forward = specification.layers[1].attention, specification.layers[1].feed_forward

    assert not specification.tied_head
    assert attention.qk_norm
    assert attention.rope.style is RopeStyle.NEOX
    assert attention.key_dimension == 2 * tiny_gguf.HIDDEN // tiny_gguf.HEADS
    assert feed_forward == MixtureOfExperts(
        experts=4, used=2, width=64, gating=GatingFunction.SOFTMAX, normalise_weights=True
    )


def test_experts_are_slices_of_the_stacked_tensor(tmp_path: Path) -> None:
    parts = tiny_model("llama-moe")
    weights = open_model(parts.write(tmp_path / "m.gguf")).weights
    stacked = weights.layers[1][TensorRole.EXPERT_DOWN_PROJ]
    whole = dequantize(stacked.type, stacked.data, stacked.shape)

    third = stacked.expert(2)

    assert np.array_equal(dequantize(third.type, third.data, third.shape), whole[2])


def test_a_split_model_loads_as_one(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "split", tiny_model("qwen3moe"), 4)

    assert len(open_model(paths[2]).weights.layers) == tiny_gguf.LAYERS


@pytest.mark.model
def test_the_default_model_loads_in_a_second() -> None:
    path = resolve_model("builtin:smollm2")
    started = time.process_time()

    with open_model(path) as model:
        assert time.process_time() - started < 1.0
        assert model.specification.architecture == "llama"
        assert len(model.specification.layers) == 30
        assert model.specification.layers[0].attention.heads == 9
        assert model.chat_template is not None


def change_key(key: str, value: Any) -> Callable[[TinyModel], None]:
    def change(model: TinyModel) -> None:
        if value is None:
            del model.metadata[key]
        else:
            model.metadata[key] = value

    return change


def drop(name: str) -> Callable[[TinyModel], None]:
    def change(model: TinyModel) -> None:
        del model.tensors[model.index(name)]

    return change


def replace_tensor(name: str, **changes: Any) -> Callable[[TinyModel], None]:
    def change(model: TinyModel) -> None:
        at = model.index(name)
        old = vars(model.tensors[at])
        model.tensors[at] = Tensor(**{**old, **changes})

    return change


def add(name: str, shape: tuple[int, ...], kind: GGMLType = GGMLType.F32) -> Callable[[TinyModel], None]:
    size = math.prod(shape) // kind.block_elements * kind.block_bytes
    return lambda model: model.tensors.append(Tensor(name, kind, shape, bytes(size)))


def change_token(index: int, text: str) -> Callable[[TinyModel], None]:
    def change(model: TinyModel) -> None:
        tokens = list(model.metadata["tokenizer.ggml.tokens"])
        tokens[index] = text
        model.metadata["tokenizer.ggml.tokens"] = tokens

    return change


A = "qwen3moe."
T = "tokenizer.ggml."
# Changes to a sound qwen3moe model, and the words its refusal must hold.
BAD: dict[str, tuple[Callable[[TinyModel], None], str]] = {
    "no architecture": (change_key("general.architecture", None), "key general.architecture: is missing"),
    "architecture is a number": (
        change_key("general.architecture", 3),
        "general.architecture.*expected a string",
    ),
    "no layers key": (change_key(A + "block_count", None), "key qwen3moe.block_count: is missing"),
    "zero layers": (change_key(A + "block_count", 0), "block_count: is 0; expected 1"),
    "a million layers": (change_key(A + "block_count", 1_000_000), "block_count: is 1000000"),
    "more layers than tensors": (change_key(A + "block_count", 3), r"tensor blk\.2\.\S+: is missing"),
    "fewer layers than tensors": (
        change_key(A + "block_count", 1),
        r"tensor blk\.1\.\S+: belongs to a layer",
    ),
    "layers as text": (change_key(A + "block_count", "2"), "block_count.*expected an integer"),
    "layers as a flag": (change_key(A + "block_count", True), "block_count.*expected an integer"),
    "negative width": (change_key(A + "embedding_length", -64), "embedding_length: is -64"),
    "epsilon is not finite": (
        change_key(A + "attention.layer_norm_rms_epsilon", math.nan),
        "layer_norm_rms_epsilon: is nan",
    ),
    "no heads": (change_key(A + "attention.head_count", 0), "head_count: is 0"),
    "kv heads that do not divide": (
        change_key(A + "attention.head_count_kv", 3),
        "head_count_kv: is 3.*divide 4",
    ),
    "heads of the wrong number of layers": (
        change_key(A + "attention.head_count", [4, 4, 4]),
        "head_count: has 3 entries for 2 layers",
    ),
    "odd rotation": (change_key(A + "rope.dimension_count", 31), "dimension_count: is 31; expected an even"),
    "rotation wider than a head": (change_key(A + "rope.dimension_count", 64), "dimension_count: is 64"),
    "negative base": (change_key(A + "rope.freq_base", -1.0), "freq_base: is -1"),
    "no experts": (change_key(A + "expert_count", None), "expert_count: is missing or zero"),
    "more used than there are": (
        change_key(A + "expert_used_count", 5),
        "expert_used_count: is 5; expected 1 to 4",
    ),
    "no used experts": (change_key(A + "expert_used_count", None), "expert_used_count: is missing"),
    "missing tensor": (drop(LAYER + "ffn_up_exps.weight"), r"tensor blk\.1\.ffn_up_exps\.weight: is missing"),
    "missing embedding": (drop("token_embd.weight"), r"token_embd\.weight: is missing"),
    "wrong shape": (
        replace_tensor(LAYER + "attn_k.weight", shape=(32, 128)),
        r"tensor blk\.1\.attn_k\.weight: has the shape \(32, 128\); the metadata asks for \(64, 64\)",
    ),
    "experts of another number": (
        replace_tensor(LAYER + "ffn_gate_exps.weight", shape=(2, 128, 64)),
        r"ffn_gate_exps\.weight: has the shape \(2, 128, 64\)",
    ),
    "no tokens": (
        change_key(T + "tokens", None),
        r"key tokenizer\.ggml\.tokens: is missing",
    ),
    "embedding of another vocabulary": (
        replace_tensor("token_embd.weight", shape=(270, 64)),
        r"token_embd\.weight: has the shape \(270, 64\).*vocabulary does not match",
    ),
    "tokens as numbers": (change_key(T + "tokens", [1, 2]), "tokens.*expected an array of strings"),
    "the same token twice": (change_token(10, "!"), "tokens 10 and .* are the same"),
    "merge of unknown tokens": (
        change_key(T + "merges", ["h e", "q zz"]),
        r"merges: entry 1 \('q zz'\) needs 'zz', which is not a token",
    ),
    "merge to an unknown token": (change_key(T + "merges", ["q q"]), "needs 'qq', which is not a token"),
    "merge without a space": (change_key(T + "merges", ["he"]), "entry 0 is 'he'; expected two tokens"),
    "no merges": (change_key(T + "merges", None), "merges: is missing"),
    "kinds of another length": (
        change_key(T + "token_type", [1] * 270),
        "token_type: has 270 entries for 271",
    ),
    "unknown kind": (
        change_key(T + "token_type", [9] * 271),
        "token_type: has the unknown kind 9 for token 0",
    ),
    "beginning outside": (change_key(T + "bos_token_id", 271), "bos_token_id: is 271; expected 0 to 270"),
    "end outside": (change_key(T + "eos_token_id", 1 << 31), "eos_token_id"),
    "template as a number": (
        change_key("tokenizer.chat_template", 3),
        "tokenizer.chat_template.*expected a string",
    ),
}
UNSUPPORTED: dict[str, tuple[Callable[[TinyModel], None], str]] = {
    "unknown architecture": (
        change_key("general.architecture", "mamba9"),
        "architecture 'mamba9' is not supported; supported: llama, qwen2, .*, gpt-oss, gemma3",
    ),
    "unknown tokenizer": (change_key(T + "model", "rwkv"), "tokenizer 'rwkv'.*gpt2, llama"),
    "unknown pre-tokenizer": (change_key(T + "pre", "klingon"), "pre-tokenizer 'klingon'"),
    "unknown block type": (
        replace_tensor(LAYER + "attn_q.weight", kind=99),
        r"block type 99 of tensor blk\.1\.attn_q",
    ),
    "block type without a kernel": (
        add("blk.0.extra.weight", (1, 256), GGMLType.IQ1_S),
        r"block type IQ1_S of 1 tensors \(blk\.0\.extra\.weight",
    ),
    "unknown rope scaling": (change_key(A + "rope.scaling.type", "longrope"), "rope scaling 'longrope'"),
    "unknown gating": (change_key(A + "expert_gating_func", 9), "expert gating function 9"),
    "shared expert": (change_key(A + "expert_shared_feed_forward_length", 64), "a shared expert in qwen3moe"),
    "tensor nobody knows": (
        add("blk.0.attn_magic.weight", (4,)),
        r"additional tensors blk\.0\.attn_magic\.weight",
    ),
}


def refused(tmp_path: Path, change: Callable[[TinyModel], None]) -> EngineError:
    model = tiny_model("qwen3moe")
    change(model)
    path = model.write(tmp_path / "m.gguf")
    started = time.process_time()
    with pytest.raises((BadModelFile, UnsupportedModel)) as caught:
        open_model(path)
    assert time.process_time() - started < 1.0
    return caught.value


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_is_not_what_it_claims_is_refused(tmp_path: Path, case: str) -> None:
    change, words = BAD[case]

    error = refused(tmp_path, change)

    assert type(error) is BadModelFile
    assert pytest.raises(BadModelFile, match=words).matches(error)


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_what_this_engine_lacks_is_named(tmp_path: Path, case: str) -> None:
    change, words = UNSUPPORTED[case]

    error = refused(tmp_path, change)

    assert type(error) is UnsupportedModel
    assert pytest.raises(UnsupportedModel, match=words).matches(error)


def test_a_file_without_a_vocabulary_speaks_in_ids(tmp_path: Path) -> None:
    model = tiny_model("qwen3moe")
    for key in [key for key in model.metadata if key.startswith("tokenizer.")]:
        del model.metadata[key]
    model.metadata |= {"tokenizer.ggml.model": "none", "qwen3moe.vocab_size": 271}

    opened = open_model(model.write(tmp_path / "m.gguf"))
    tokenizer = Tokenizer(opened.vocabulary)

    assert opened.specification.vocabulary_size == 271
    assert tokenizer.end_tokens == frozenset()
    assert tokenizer.encode("") == []
    assert tokenizer.token_bytes(270) == b""
    with pytest.raises(InvalidRequest, match="give token ids"):
        tokenizer.encode("text")


def test_separate_tensors_for_each_expert_are_named(tmp_path: Path) -> None:
    model = tiny_model("llama-moe")
    for name in ("gate", "up", "down"):
        drop(f"blk.0.ffn_{name}_exps.weight")(model)
        for expert in range(4):
            add(f"blk.0.ffn_{name}.{expert}.weight", (64, 64))(model)

    with pytest.raises(UnsupportedModel, match=r"one tensor for each expert.*convert the model anew"):
        open_model(model.write(tmp_path / "m.gguf"))


def test_stored_rotation_frequencies_are_left_aside(tmp_path: Path) -> None:
    model = tiny_model()
    add("blk.0.attn_rot_embd", (8,))(model)

    open_model(model.write(tmp_path / "m.gguf"))


def test_biases_are_found_by_their_tensors(tmp_path: Path) -> None:
    model = tiny_model()
    for layer in range(2):
        for name, size in (("q", 64), ("k", 32), ("v", 32), ("output", 64)):
            add(f"blk.{layer}.attn_{name}.bias", (size,))(model)

    opened = open_model(model.write(tmp_path / "m.gguf"))

    assert opened.specification.layers[0].attention.bias
    assert opened.specification.layers[0].attention.output_bias
    assert opened.weights.layers[1][TensorRole.KEY_BIAS].shape == (32,)


def test_two_thousand_mutated_models_load_or_are_refused(tmp_path: Path) -> None:
    model = tiny_model("llama-moe", GGMLType.Q4_0)
    content = gguf_bytes(model.metadata, model.tensors)
    header = len(content) - sum(len(tensor.data) for tensor in model.tensors)
    rng = np.random.default_rng(20261202)
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    refusals = 0

    for _ in range(2_000):
        at = int(rng.integers(4, header - 8))
        damage = (
            struct.pack("<Q", int(rng.integers(1 << 63)))
            if rng.integers(2)
            else bytes([int(rng.integers(256))])
        )
        with path.open("r+b") as file:
            file.seek(at)
            file.write(damage)
        try:
            open_model(path).close()
        except (BadModelFile, UnsupportedModel):
            refusals += 1
        with path.open("r+b") as file:
            file.seek(at)
            file.write(content[at : at + 8])

    assert refusals > 500
