"""A model that counts: after token t comes t + 1. Exact, instant, and it can be held at a layer.

A fake for the engine and the server: tokens are single letters, ``{`` ends an answer, a chat's prompt is
the letters of its messages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from local_backend.engine.engine import Engine, TokenTable
from local_backend.engine.forward import ForwardContext, prepare
from local_backend.engine.loading import LoadedModel
from local_backend.errors import InvalidRequest
from local_backend.gguf.format import GGMLType
from local_backend.kernels.base import FloatArray, IntArray, LayerCache
from local_backend.kv_cache.sequence_cache import SequenceCache
from local_backend.model.specification import (
    AttentionSpecification,
    DenseFeedForward,
    LayerSpecification,
    ModelSpecification,
    RopeSpecification,
    RopeStyle,
)
from local_backend.model.weights import ModelWeights, TensorRole, Weight

LETTERS = "abcdefghijklmnopqrstuvwxyz{"
END = len(LETTERS) - 1
LAYERS = 2


class CountingKernels:
    """Computes nothing but the next number. ``gate`` is waited for before each layer when it is set up."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, tuple[int, ...]]] = []
        self.gate: threading.Semaphore | None = None
        self.at_gate = threading.Event()
        self.fail_on: int | None = None
        self.skip_end = False
        self.closed = False

    name = "counting"
    description = "counts"

    def supports(self, _weight: Weight) -> bool:
        return True

    def embed(self, _weight: Weight, tokens: IntArray) -> FloatArray:
        return tokens[:, None].astype(np.float32)

    def layer(self, *_: Any) -> CountingLayer:
        return CountingLayer(self)

    def logits(self, hidden: FloatArray, *_: Any) -> FloatArray:
        logits = np.zeros((len(hidden), len(LETTERS)), dtype=np.float32)
        turn = END if self.skip_end else END + 1
        logits[np.arange(len(hidden)), (hidden[:, 0].astype(int) + 1) % turn] = 10.0
        return logits

    def close(self) -> None:
        self.closed = True


class CountingLayer:
    def __init__(self, kernels: CountingKernels) -> None:
        self._kernels = kernels

    def forward(self, hidden: FloatArray, start: int, cache: LayerCache) -> None:
        if self._kernels.gate is not None:
            self._kernels.at_gate.set()
            self._kernels.gate.acquire()
        tokens = tuple(int(t) for t in hidden[:, 0])
        if self._kernels.fail_on in tokens:
            raise ArithmeticError("told to fail")
        self._kernels.calls.append((start, tokens))
        cache.keys[start : start + len(tokens), 0, 0] = hidden[:, 0]


def counting_context(kernels: CountingKernels) -> ForwardContext:
    attention = AttentionSpecification(1, 1, 2, 2, 1.0, RopeSpecification(RopeStyle.NORMAL, 2, 10000.0))
    layer = LayerSpecification(attention, DenseFeedForward(1), 1e-5)
    specification = ModelSpecification(
        "counting", "counting", 1, len(LETTERS), 4096, 1e-5, (layer,) * LAYERS, tied_head=True
    )
    weight = Weight("w", GGMLType.F32, (len(LETTERS), 1), np.zeros(4 * len(LETTERS), dtype=np.uint8))
    weights = ModelWeights(
        {TensorRole.TOKEN_EMBEDDING: weight, TensorRole.OUTPUT_NORM: weight}, ({},) * LAYERS
    )
    return prepare(specification, weights, kernels, lambda _: None)


def counting_engine(
    kernels: CountingKernels | None = None,
    *,
    context: int = 64,
    chunk: int = 4,
    clock: Callable[[], float] = lambda: 0.0,
) -> Engine:
    forward = counting_context(kernels or CountingKernels())
    return Engine(
        forward,
        TokenTable(len(LETTERS), token_bytes, frozenset({END})),
        SequenceCache(forward.specification, context),
        prefill_chunk=chunk,
        clock=clock,
    )


def counting_model(
    kernels: CountingKernels | None = None, *, context: int = 64, chunk: int = 4
) -> LoadedModel:
    return LoadedModel(
        name="counting",
        architecture="counting",
        kernels="counts",
        vocabulary_size=len(LETTERS),
        engine=counting_engine(kernels, context=context, chunk=chunk),
        token_bytes=token_bytes,
        encode_text=encode,
        render_chat=render,
    )


def token_bytes(token: int) -> bytes:
    return LETTERS[token].encode()


def encode(text: str) -> list[int]:
    unknown = set(text) - set(LETTERS)
    if unknown:
        raise InvalidRequest(f"the counting model knows no {sorted(unknown)}", param="messages")
    return [LETTERS.index(letter) for letter in text]


def render(
    messages: Sequence[Mapping[str, Any]],
    _tools: Sequence[Mapping[str, Any]] | None,
    _options: Mapping[str, Any],
) -> list[int]:
    return encode("".join(message["content"].replace("\n", "") for message in messages))
