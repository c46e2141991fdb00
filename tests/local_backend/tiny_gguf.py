"""Writes small GGUF files without any library: whole tiny models, and files that are wrong on purpose.

``write_tiny_model(path, "qwen3moe")`` is all that most tests need. ``tiny_model`` returns the parts, to be
changed before ``write_gguf`` writes them. Shapes are row-major, slowest first.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from local_backend.gguf.format import GGMLType, ValueType

HIDDEN = 64
LAYERS = 2
HEADS = 4
KV_HEADS = 2
WIDTH = 96
EXPERTS = 4
EXPERTS_USED = 2
EXPERT_WIDTH = 64
CONTEXT = 256
WINDOW = 5
ARCHITECTURES = ("llama", "llama-moe", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gpt-oss", "gemma3")
_WITH_EXPERTS = frozenset({"llama-moe", "qwen2moe", "qwen3moe", "gpt-oss"})
_PLAIN_HEADS = frozenset({"llama", "qwen2", "qwen2moe"})
_QK_NORMED = frozenset({"qwen3", "qwen3moe", "gemma3"})
_BIASED = frozenset({"qwen2", "qwen2moe", "gpt-oss"})

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MERGES = ("h e", "l l", "Ġ t", "he ll", "hell o", "Ġt he", "i n", "Ġ w", "o r", "Ġw or", "Ġwor l", "Ġworl d")


@dataclass(frozen=True)
class Typed:
    """A metadata value with a type that its Python type does not say."""

    kind: ValueType
    value: Any


@dataclass(frozen=True)
class Tensor:
    """One tensor as it goes to the file; ``offset`` overrides where the file says it lies."""

    name: str
    kind: int
    shape: tuple[int, ...]
    data: bytes
    offset: int | None = None


@dataclass
class TinyModel:
    """Metadata and tensors of a model, free to be changed before they are written."""

    metadata: dict[str, Any] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)

    def index(self, name: str) -> int:
        return next(index for index, tensor in enumerate(self.tensors) if tensor.name == name)

    def write(self, path: Path, **options: Any) -> Path:
        return write_gguf(path, self.metadata, self.tensors, **options)


def write_tiny_model(
    path: Path,
    architecture: str = "llama",
    block_type: GGMLType = GGMLType.F32,
    *,
    seed: int = 0,
    tied: bool = True,
) -> Path:
    """Write a whole model: 2 layers, 4 experts of which 2 are used, a byte-level vocabulary of 271 tokens."""
    return tiny_model(architecture, block_type, seed=seed, tied=tied).write(path)


def tiny_model(
    architecture: str = "llama",
    block_type: GGMLType = GGMLType.F32,
    *,
    seed: int = 0,
    tied: bool = True,
) -> TinyModel:
    """Make the parts of a model. ``llama-moe`` is architecture ``llama`` with experts, as mixtral is."""
    name = architecture.removesuffix("-moe")
    head_dimension = HIDDEN // HEADS if name in _PLAIN_HEADS else 2 * HIDDEN // HEADS
    metadata = _hyperparameters(name, architecture in _WITH_EXPERTS, head_dimension)
    metadata |= byte_level_vocabulary({"llama": "smollm", "gpt-oss": "gpt-4o"}.get(name, "qwen2"))
    parts = _Parts(TinyModel(metadata), block_type, np.random.default_rng(seed))
    vocabulary = len(metadata["tokenizer.ggml.tokens"])
    parts.matrix("token_embd.weight", vocabulary, HIDDEN)
    parts.norm("output_norm.weight", HIDDEN)
    if not tied:
        parts.matrix("output.weight", vocabulary, HIDDEN)
    for layer in range(LAYERS):
        _add_attention(parts, name, f"blk.{layer}.", head_dimension)
        if architecture in _WITH_EXPERTS:
            _add_experts(parts, name, f"blk.{layer}.")
        else:
            _add_feed_forward(parts, f"blk.{layer}.ffn_{{}}.weight", WIDTH)
    return parts.model


class _Parts:
    """Adds tensors of random values to a model."""

    def __init__(self, model: TinyModel, block_type: GGMLType, rng: np.random.Generator) -> None:
        self.model = model
        self._block_type = block_type
        self._rng = rng

    def matrix(self, name: str, *shape: int, kind: GGMLType | None = None) -> None:
        values = self._rng.standard_normal(shape) / np.sqrt(shape[-1])
        kind = self._block_type if kind is None else kind
        self.model.tensors.append(Tensor(name, kind, shape, quantize(kind, values)))

    def norm(self, name: str, size: int) -> None:
        self._vector(name, 1.0 + 0.1 * self._rng.standard_normal(size))

    def bias(self, name: str, *shape: int) -> None:
        self._vector(name, 0.3 * self._rng.standard_normal(shape))

    def _vector(self, name: str, values: Any) -> None:
        self.model.tensors.append(Tensor(name, GGMLType.F32, values.shape, quantize(GGMLType.F32, values)))


def _add_attention(parts: _Parts, name: str, prefix: str, head_dimension: int) -> None:
    queries, keys = HEADS * head_dimension, KV_HEADS * head_dimension
    parts.norm(prefix + "attn_norm.weight", HIDDEN)
    for projection, rows in (("attn_q", queries), ("attn_k", keys), ("attn_v", keys)):
        parts.matrix(f"{prefix}{projection}.weight", rows, HIDDEN)
        if name in _BIASED:
            parts.bias(f"{prefix}{projection}.bias", rows)
    parts.matrix(prefix + "attn_output.weight", HIDDEN, queries)
    if name in _QK_NORMED:
        parts.norm(prefix + "attn_q_norm.weight", head_dimension)
        parts.norm(prefix + "attn_k_norm.weight", head_dimension)
    if name == "gpt-oss":
        parts.bias(prefix + "attn_output.bias", HIDDEN)
        parts.bias(prefix + "attn_sinks.weight", HEADS)
    # gpt-oss names the norm before its experts as gemma3 names the one after attention.
    parts.norm(prefix + ("post_attention_norm" if name == "gpt-oss" else "ffn_norm") + ".weight", HIDDEN)
    if name == "gemma3":
        parts.norm(prefix + "post_attention_norm.weight", HIDDEN)
        parts.norm(prefix + "post_ffw_norm.weight", HIDDEN)


def _add_feed_forward(parts: _Parts, names: str, width: int) -> None:
    parts.matrix(names.format("gate"), width, HIDDEN)
    parts.matrix(names.format("up"), width, HIDDEN)
    parts.matrix(names.format("down"), HIDDEN, width)


def _add_experts(parts: _Parts, name: str, prefix: str) -> None:
    parts.matrix(prefix + "ffn_gate_inp.weight", EXPERTS, HIDDEN, kind=GGMLType.F32)
    parts.matrix(prefix + "ffn_gate_exps.weight", EXPERTS, EXPERT_WIDTH, HIDDEN)
    parts.matrix(prefix + "ffn_up_exps.weight", EXPERTS, EXPERT_WIDTH, HIDDEN)
    parts.matrix(prefix + "ffn_down_exps.weight", EXPERTS, HIDDEN, EXPERT_WIDTH)
    if name == "gpt-oss":
        parts.bias(prefix + "ffn_gate_inp.bias", EXPERTS)
        parts.bias(prefix + "ffn_gate_exps.bias", EXPERTS, EXPERT_WIDTH)
        parts.bias(prefix + "ffn_up_exps.bias", EXPERTS, EXPERT_WIDTH)
        parts.bias(prefix + "ffn_down_exps.bias", EXPERTS, HIDDEN)
    if name == "qwen2moe":
        parts.matrix(prefix + "ffn_gate_inp_shexp.weight", HIDDEN, kind=GGMLType.F32)
        _add_feed_forward(parts, prefix + "ffn_{}_shexp.weight", WIDTH)


def _hyperparameters(name: str, has_experts: bool, head_dimension: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "general.architecture": name,
        "general.name": f"tiny {name}",
        f"{name}.block_count": LAYERS,
        f"{name}.context_length": CONTEXT,
        f"{name}.embedding_length": HIDDEN,
        f"{name}.feed_forward_length": EXPERT_WIDTH if name == "llama" and has_experts else WIDTH,
        f"{name}.attention.head_count": HEADS,
        f"{name}.attention.head_count_kv": KV_HEADS,
        f"{name}.attention.key_length": head_dimension,
        f"{name}.attention.value_length": head_dimension,
        f"{name}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{name}.rope.freq_base": 10000.0,
        f"{name}.rope.dimension_count": head_dimension,
    }
    if has_experts:
        metadata[f"{name}.expert_count"] = EXPERTS
        metadata[f"{name}.expert_used_count"] = EXPERTS_USED
        if name != "llama":
            metadata[f"{name}.expert_feed_forward_length"] = EXPERT_WIDTH
    if name == "qwen2moe":
        metadata[f"{name}.expert_shared_feed_forward_length"] = WIDTH
    if name in {"gpt-oss", "gemma3"}:
        metadata[f"{name}.attention.sliding_window"] = WINDOW
    if name == "gpt-oss":
        metadata |= {
            f"{name}.rope.scaling.type": "yarn",
            f"{name}.rope.scaling.factor": 32.0,
            f"{name}.rope.scaling.original_context_length": 64,
        }
    if name == "gemma3":
        metadata[f"{name}.rope.freq_base"] = 1_000_000.0
        metadata[f"{name}.attention.sliding_window_pattern"] = 2
    return metadata


def byte_level_vocabulary(pre: str = "smollm") -> dict[str, Any]:
    """Metadata of a byte-level BPE vocabulary: three control tokens, 256 bytes, twelve merges."""
    tokens = [*SPECIALS, *byte_characters(), *(merge.replace(" ", "") for merge in _MERGES)]
    kinds = [3] * len(SPECIALS) + [1] * (len(tokens) - len(SPECIALS))
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": list(_MERGES),
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHATML,
    }


def byte_characters() -> list[str]:
    """Return the printable character that stands for each byte 0..255 in byte-level vocabularies (GPT-2)."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    characters, spare = [], 256
    for byte in range(256):
        if byte in printable:
            characters.append(chr(byte))
        else:
            characters.append(chr(spare))
            spare += 1
    return characters


def quantize(kind: GGMLType, values: Any) -> bytes:
    """Round-to-nearest quantisers, good enough for tests: F32, F16, BF16, Q8_0, Q4_0, Q4_1."""
    flat = np.asarray(values, dtype=np.float32).reshape(-1)
    if kind is GGMLType.F32:
        return flat.astype("<f4").tobytes()
    if kind is GGMLType.F16:
        return flat.astype("<f2").tobytes()
    if kind is GGMLType.BF16:
        return ((flat.view(np.uint32) + 0x8000) >> 16).astype("<u2").tobytes()
    blocks = flat.reshape(-1, 32)
    if kind is GGMLType.Q8_0:
        scale = _half(np.abs(blocks).max(axis=1, keepdims=True) / 127)
        return _pack(scale, np.round(blocks * _inverse(scale)).astype(np.int8).view(np.uint8))
    if kind is GGMLType.Q4_0:
        scale = _half(np.abs(blocks).max(axis=1, keepdims=True) / 7)
        return _pack(scale, _nibbles(np.clip(np.round(blocks * _inverse(scale)) + 8, 0, 15)))
    if kind is GGMLType.Q4_1:
        low = blocks.min(axis=1, keepdims=True)
        scale, least = _half((blocks.max(axis=1, keepdims=True) - low) / 15), _half(low)
        levels = np.clip(np.round((blocks - least.astype(np.float32)) * _inverse(scale)), 0, 15)
        return _pack(np.concatenate([scale, least], axis=1), _nibbles(levels))
    raise ValueError(f"no test quantiser for {kind.name}")


def _half(values: Any) -> Any:
    return values.astype("<f2")


def _inverse(scale: Any) -> Any:
    wide = scale.astype(np.float32)
    return np.divide(1.0, wide, out=np.zeros_like(wide), where=wide != 0)


def _nibbles(levels: Any) -> Any:
    packed = levels.astype(np.uint8)
    return packed[:, :16] | packed[:, 16:] << 4


def _pack(head: Any, levels: Any) -> bytes:
    return np.concatenate([np.ascontiguousarray(head).view(np.uint8), levels], axis=1).tobytes()


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Sequence[Tensor] = (),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    alignment: int = 32,
    tensor_count: int | None = None,
    pair_count: int | None = None,
) -> Path:
    """Write a file; the options let its header say what is not so."""
    path.write_bytes(
        gguf_bytes(
            metadata,
            tensors,
            magic=magic,
            version=version,
            alignment=alignment,
            tensor_count=tensor_count,
            pair_count=pair_count,
        )
    )
    return path


def gguf_bytes(
    metadata: Mapping[str, Any],
    tensors: Sequence[Tensor] = (),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    alignment: int = 32,
    tensor_count: int | None = None,
    pair_count: int | None = None,
) -> bytes:
    """Return the bytes of a file."""
    header = bytearray(magic)
    header += struct.pack(
        "<IQQ",
        version,
        len(tensors) if tensor_count is None else tensor_count,
        len(metadata) if pair_count is None else pair_count,
    )
    for key, value in metadata.items():
        header += _string(key) + _typed(value)
    body = bytearray()
    for tensor in tensors:
        body += bytes(-len(body) % alignment)
        offset = len(body) if tensor.offset is None else tensor.offset
        header += _string(tensor.name) + struct.pack("<I", len(tensor.shape))
        header += b"".join(struct.pack("<Q", size) for size in reversed(tensor.shape))
        header += struct.pack("<IQ", tensor.kind, offset)
        body += tensor.data
    header += bytes(-len(header) % alignment)
    return bytes(header + body)


def write_shards(folder: Path, stem: str, model: TinyModel, count: int) -> list[Path]:
    """Write a model as ``count`` files; the first carries the metadata and no tensor, as converters do."""
    paths = []
    share = -(-len(model.tensors) // (count - 1))
    for number in range(count):
        tensors = model.tensors[(number - 1) * share : number * share] if number else []
        split = {
            "split.no": Typed(ValueType.UINT16, number),
            "split.count": Typed(ValueType.UINT16, count),
            "split.tensors.count": Typed(ValueType.INT32, len(model.tensors)),
        }
        metadata = (model.metadata if number == 0 else {}) | split
        paths.append(write_gguf(folder / f"{stem}-{number + 1:05d}-of-{count:05d}.gguf", metadata, tensors))
    return paths


def _string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


_FORMATS = dict(zip(ValueType, "BbHhIif?--Qqd", strict=True))


def _typed(value: Any) -> bytes:
    kind, content = (value.kind, value.value) if isinstance(value, Typed) else (_kind_of(value), value)
    return struct.pack("<I", kind) + _content(kind, content)


def _content(kind: ValueType, value: Any) -> bytes:
    if kind is ValueType.STRING:
        return _string(value)
    if kind is not ValueType.ARRAY:
        return struct.pack("<" + _FORMATS[kind], value)
    items = list(value)
    inner = _kind_of(items[0], inside=True) if items else ValueType.INT32
    return struct.pack("<IQ", inner, len(items)) + b"".join(_content(inner, item) for item in items)


def _kind_of(value: Any, *, inside: bool = False) -> ValueType:
    match value:
        case bool():
            return ValueType.BOOL
        case int():
            return ValueType.INT32 if inside or value < 0 else ValueType.UINT32
        case float():
            return ValueType.FLOAT32
        case str() | bytes():
            return ValueType.STRING
    return ValueType.ARRAY
