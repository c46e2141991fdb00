"""How many bytes a model needs, part by part, from its specification and its tensors' sizes.

Pure. Knows shapes and block types; not machines or where anything will live.
"""

from __future__ import annotations

from dataclasses import dataclass

from local_backend.model.quantities import bytes_text
from local_backend.model.specification import LayerSpecification, MixtureOfExperts, ModelSpecification
from local_backend.model.weights import ModelWeights, TensorRole, Weight
from local_backend.plan.ledger import Ledger, LedgerLine, Source

__all__ = ["ExpertFootprint", "Footprint", "measure"]

_EXPERT_ROLES = frozenset(
    {
        TensorRole.EXPERT_GATE_PROJ,
        TensorRole.EXPERT_UP_PROJ,
        TensorRole.EXPERT_DOWN_PROJ,
        TensorRole.EXPERT_GATE_BIAS,
        TensorRole.EXPERT_UP_BIAS,
        TensorRole.EXPERT_DOWN_BIAS,
    }
)
_HALF = 2  # bytes of a float16, the type of the KV cache
_SINGLE = 4  # bytes of a float32, the type of everything in between
# Measured: 65 MiB resident for the interpreter with NumPy, the tokenizer's library and the server idle.
_PROCESS_BYTES = 96 << 20
# Measured on vocabularies of 49,152 to 151,936 tokens: 610 to 1,300 bytes for text, merges and the tables
# of the tokenizer.
_BYTES_PER_TOKEN_OF_VOCABULARY = 1_300
_ACTIVATION_COPIES = 4  # hidden state, its norm, the residual, a product on its way


@dataclass(frozen=True, slots=True)
class ExpertFootprint:
    """A group of layers whose experts have the same size. ``bytes_per_expert`` is one expert of one layer."""

    layers: tuple[int, ...]
    experts: int
    used: int
    bytes_per_expert: int

    @property
    def bytes(self) -> int:
        """All experts of all these layers."""
        return len(self.layers) * self.experts * self.bytes_per_expert


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes by part. ``kv_bytes_per_token`` counts all layers; ``head_bytes`` is 0 where it is tied."""

    layers: int
    dense_bytes: int
    embedding_bytes: int
    head_bytes: int
    experts: tuple[ExpertFootprint, ...]
    kv_bytes_per_token: int
    scratch_bytes: int
    process_bytes: int

    @property
    def expert_bytes(self) -> int:
        """All routed experts."""
        return sum(group.bytes for group in self.experts)

    @property
    def weight_bytes(self) -> int:
        """All weights."""
        return self.dense_bytes + self.embedding_bytes + self.head_bytes + self.expert_bytes

    @property
    def fixed_bytes(self) -> int:
        """Everything but the KV cache."""
        return self.weight_bytes + self.scratch_bytes + self.process_bytes

    def ledger(self, context_tokens: int) -> Ledger:
        """Write everything down for a context of so many tokens."""
        lines = [
            LedgerLine("token embedding", self.embedding_bytes, Source.FILE),
            LedgerLine(
                "output head", self.head_bytes, Source.FILE, "" if self.head_bytes else "the embedding again"
            ),
            LedgerLine(
                "dense weights", self.dense_bytes, Source.FILE, f"norms, attention, {self.layers} layers"
            ),
            *(self._expert_line(group) for group in self.experts),
            LedgerLine(
                "KV cache",
                self.kv_bytes_per_token * context_tokens,
                Source.COMPUTED,
                f"{context_tokens} tokens of {bytes_text(self.kv_bytes_per_token)}, float16",
            ),
            LedgerLine(
                "scratch", self.scratch_bytes, Source.ESTIMATED, "activations of one chunk of a prompt"
            ),
            LedgerLine("process", self.process_bytes, Source.ESTIMATED, "interpreter, libraries, vocabulary"),
        ]
        return Ledger(tuple(lines))

    @staticmethod
    def _expert_line(group: ExpertFootprint) -> LedgerLine:
        first, last = group.layers[0], group.layers[-1]
        where = f"layer {first}" if first == last else f"{len(group.layers)} layers of {first} to {last}"
        detail = (
            f"{where}, {group.experts} experts of {bytes_text(group.bytes_per_expert)}, {group.used} used"
        )
        return LedgerLine("experts", group.bytes, Source.FILE, detail)


def measure(specification: ModelSpecification, weights: ModelWeights, prefill_chunk: int) -> Footprint:
    """Count the bytes of a model whose prompts are computed ``prefill_chunk`` tokens at a time."""
    shared = dict(weights.shared)
    embedding = shared.pop(TensorRole.TOKEN_EMBEDDING)
    head = shared.pop(TensorRole.OUTPUT_HEAD, None)
    dense = sum(_bytes(weight) for weight in shared.values())
    dense += sum(
        _bytes(weight)
        for layer in weights.layers
        for role, weight in layer.items()
        if role not in _EXPERT_ROLES
    )
    vocabulary_bytes = specification.vocabulary_size * _BYTES_PER_TOKEN_OF_VOCABULARY
    return Footprint(
        layers=len(specification.layers),
        dense_bytes=dense,
        embedding_bytes=_bytes(embedding),
        head_bytes=0 if head is None else _bytes(head),
        experts=_experts(specification, weights),
        kv_bytes_per_token=sum(_kv_bytes(layer) for layer in specification.layers),
        scratch_bytes=_scratch(specification, prefill_chunk),
        process_bytes=_PROCESS_BYTES + vocabulary_bytes,
    )


def _bytes(weight: Weight) -> int:
    return int(weight.data.nbytes)


def _kv_bytes(layer: LayerSpecification) -> int:
    attention = layer.attention
    return attention.kv_heads * (attention.key_dimension + attention.value_dimension) * _HALF


def _experts(specification: ModelSpecification, weights: ModelWeights) -> tuple[ExpertFootprint, ...]:
    """Group layers by the size of their experts: files mix block types from layer to layer."""
    groups: dict[tuple[int, int, int], list[int]] = {}
    for index, (layer, roles) in enumerate(zip(specification.layers, weights.layers, strict=True)):
        feed_forward = layer.feed_forward
        if isinstance(feed_forward, MixtureOfExperts):
            total = sum(_bytes(weight) for role, weight in roles.items() if role in _EXPERT_ROLES)
            key = (feed_forward.experts, feed_forward.used, total // feed_forward.experts)
            groups.setdefault(key, []).append(index)
    return tuple(
        ExpertFootprint(tuple(layers), experts, used, size)
        for (experts, used, size), layers in sorted(groups.items(), key=lambda item: item[1])
    )


def _scratch(specification: ModelSpecification, prefill_chunk: int) -> int:
    """Estimate what one chunk of a prompt needs at its widest layer, and one row of logits."""
    widest = max(_layer_width(layer) for layer in specification.layers)
    per_token = _ACTIVATION_COPIES * specification.hidden_size + widest
    return (prefill_chunk * per_token + specification.vocabulary_size) * _SINGLE


def _layer_width(layer: LayerSpecification) -> int:
    attention = layer.attention
    queries = attention.heads * (attention.key_dimension + attention.value_dimension)
    keys = attention.kv_heads * (attention.key_dimension + attention.value_dimension)
    feed_forward = layer.feed_forward
    inner = 2 * feed_forward.width
    if isinstance(feed_forward, MixtureOfExperts):
        inner *= feed_forward.used
    return queries + keys + inner
