"""Typed wrapper over the compiled module ``local_backend._native``: one native call a layer.

Turns specifications and weights into the plain numbers and views that C++ takes, and nothing else.
Knows no sequences, no sampling, no files; all arithmetic is on the other side.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from local_backend.errors import NativeUnavailable, UnsupportedModel
from local_backend.gguf.format import GGMLType
from local_backend.kernels.base import FloatArray, IntArray, LayerCache, LayerRunner
from local_backend.kernels.precision import EIGHT_BITS, Precision
from local_backend.layers.rope import rotary_table
from local_backend.model.specification import (
    Activation,
    AttentionSpecification,
    DenseFeedForward,
    GatingFunction,
    LayerSpecification,
    RopeStyle,
)
from local_backend.model.weights import TensorRole, Weight

if TYPE_CHECKING:
    from local_backend import _native

__all__ = ["InstructionSet", "NativeKernels", "NativeLayer", "available_sets", "computes"]

InstructionSet: TypeAlias = Literal["", "scalar", "avx2", "avx512"]

_ACTIVATIONS = {Activation.SILU: 0, Activation.GELU: 1, Activation.SWIGLU_OAI: 2}
_GATINGS = {GatingFunction.SOFTMAX: 0, GatingFunction.SIGMOID: 1, GatingFunction.SOFTMAX_OF_CHOSEN: 2}
_LARGEST_GROUP = 64
_MOST_BOUND = 64

_MATRICES = frozenset(
    {
        TensorRole.QUERY,
        TensorRole.KEY,
        TensorRole.VALUE,
        TensorRole.ATTENTION_OUTPUT,
        TensorRole.GATE_PROJ,
        TensorRole.UP_PROJ,
        TensorRole.DOWN_PROJ,
        TensorRole.GATING,
        TensorRole.EXPERT_GATE_PROJ,
        TensorRole.EXPERT_UP_PROJ,
        TensorRole.EXPERT_DOWN_PROJ,
        TensorRole.SHARED_GATE_PROJ,
        TensorRole.SHARED_UP_PROJ,
        TensorRole.SHARED_DOWN_PROJ,
    }
)


def _module() -> ModuleType:
    try:
        from local_backend import _native as module
    except ImportError as error:
        raise NativeUnavailable(
            f"the compiled module local_backend._native cannot be loaded ({error}); "
            "build the package (python3 bootstrap.py does), or use the reference kernels"
        ) from error
    return module


def available_sets() -> list[str]:
    """Instruction sets that this machine can run, best first. Raises NativeUnavailable."""
    sets: list[str] = _module().available_sets()
    return sets


def computes(kind: GGMLType) -> bool:
    """Whether matrices of a block type can be computed with here; never without the compiled module."""
    try:
        return bool(_module().supports(int(kind)))
    except NativeUnavailable:
        return False


class NativeKernels:
    """C++ kernels of one instruction set, and the worker threads that run them.

    ``isa`` "" takes the best set the machine has; ``threads`` 0 takes one worker per physical core that
    this process may use. Results do not depend on the number of threads. ``precision`` is how
    finely inputs of quantised matrices are rounded. Raises NativeUnavailable if
    the module is missing, ValueError for a set that the machine lacks.
    """

    def __init__(self, isa: InstructionSet = "", threads: int = 0, precision: Precision = EIGHT_BITS) -> None:
        self._native = _module()
        if threads < 0:
            raise ValueError(f"threads must be 0 (automatic) or more, not {threads}")
        self._runtime: _native.Runtime = self._native.Runtime(isa, threads, precision.bits)
        self._precision = precision
        # A matrix is bound once: making one costs more than a token's embedding.
        self._bound: dict[int, tuple[Weight, _native.Matrix]] = {}

    @property
    def name(self) -> str:
        """The family's name."""
        return "native"

    @property
    def description(self) -> str:
        """Instruction set, precision, workers and why."""
        threads, cores, quota = self._native.topology()
        workers = self._runtime.workers
        text = f"{self._runtime.isa}, {self._precision}, "
        text += f"{_count(workers, 'worker')} on {_count(cores, 'physical core')}"
        if quota and quota < cores:
            text += f" (the control group allows {quota})"
        elif threads > cores and workers <= cores:
            text += f" ({threads - cores} hyper-threads idle on purpose: they share a core's arithmetic)"
        return text

    def supports(self, weight: Weight) -> bool:
        """Whether matrices of this weight's block type can be computed with."""
        return bool(self._native.supports(int(weight.type)))

    def embed(self, weight: Weight, tokens: IntArray) -> FloatArray:
        """Rows of the embedding: tokens [T] → [T, E]. Raises ValueError for a token outside it."""
        out = np.empty((len(tokens), weight.columns), dtype=np.float32)
        self._runtime.embed(self._bind_once(weight), np.ascontiguousarray(tokens, dtype=np.int32), out)
        return out

    def layer(
        self,
        specification: LayerSpecification,
        weights: Mapping[TensorRole, Weight],
        shared: Mapping[TensorRole, Weight],
    ) -> LayerRunner:
        """Prepare one layer over views of the weights' bytes.

        Raises UnsupportedModel for a block type or feature that is not computed here, ValueError for
        weights whose shapes do not fit the specification.
        """
        return NativeLayer(self._native, self._runtime, specification, weights, shared)

    def logits(self, hidden: FloatArray, norm: Weight, head: Weight, epsilon: float) -> FloatArray:
        """Apply the final RMSNorm and the output head: hidden [T, E] → logits [T, V]."""
        out = np.empty((len(hidden), head.rows), dtype=np.float32)
        self._runtime.head(
            self._bind_once(head), np.ascontiguousarray(hidden, dtype=np.float32), _vector(norm), epsilon, out
        )
        return out

    def multiply(self, weight: Weight, inputs: FloatArray) -> FloatArray:
        """Multiply one matrix: inputs [T, columns] → [T, rows]; for tests and benchmarks."""
        out = np.empty((len(inputs), weight.rows), dtype=np.float32)
        self._runtime.multiply(self._bind_once(weight), np.ascontiguousarray(inputs, dtype=np.float32), out)
        return out

    def read(self, data: NDArray[np.uint8]) -> None:
        """Read bytes once with all workers and drop them: the measure of what memory can give."""
        self._runtime.read(data)

    def close(self) -> None:
        """Stop the worker threads. Later calls still work, on the caller's thread alone."""
        self._bound.clear()
        self._runtime.stop()

    def _bind_once(self, weight: Weight) -> _native.Matrix:
        known = self._bound.get(id(weight))
        if known is None or known[0] is not weight:
            if len(self._bound) >= _MOST_BOUND:
                self._bound.clear()
            known = (weight, _bind(self._native, weight))
            self._bound[id(weight)] = known
        return known[1]


class NativeLayer:
    """One transformer layer in C++."""

    def __init__(
        self,
        native: ModuleType,
        runtime: _native.Runtime,
        specification: LayerSpecification,
        weights: Mapping[TensorRole, Weight],
        shared: Mapping[TensorRole, Weight],
    ) -> None:
        wanted = _wanted(specification, weights)
        divisors = shared.get(TensorRole.ROPE_FREQUENCIES)
        settings = _settings(native, specification, wanted, None if divisors is None else _vector(divisors))
        matrices = {str(role): _bind(native, weight) for role, weight in wanted.items() if role in _MATRICES}
        vectors = {
            str(role): _vector(weight).ravel().tolist()
            for role, weight in wanted.items()
            if role not in _MATRICES
        }
        self._layer: _native.Layer = native.Layer(runtime, settings, matrices, vectors)

    def forward(self, hidden: FloatArray, start: int, cache: LayerCache) -> None:
        """Run T tokens at positions ``start ..``; ``hidden`` [T, E] is replaced by the output.

        Raises ValueError where shapes do not fit or the cache has too few rows.
        """
        if start < 0:
            raise ValueError(f"positions start at 0, not at {start}")
        # float16 crosses as its bit patterns: no array protocol here knows the type on the C++ side.
        self._layer.forward(hidden, start, cache.keys.view(np.uint16), cache.values.view(np.uint16))


def _wanted(
    specification: LayerSpecification, weights: Mapping[TensorRole, Weight]
) -> dict[TensorRole, Weight]:
    """Pick the weights that the specification makes use of; what it does not mention must not act."""
    attention = specification.attention
    unused: set[TensorRole] = set()
    if not attention.qk_norm:
        unused |= {TensorRole.QUERY_NORM, TensorRole.KEY_NORM}
    if not attention.sinks:
        unused |= {TensorRole.ATTENTION_SINKS}
    if not specification.post_norms:
        unused |= {TensorRole.ATTENTION_POST_NORM, TensorRole.FEED_FORWARD_POST_NORM}
    wanted = {role: weight for role, weight in weights.items() if role not in unused}
    for needed, roles in (
        (attention.qk_norm, (TensorRole.QUERY_NORM, TensorRole.KEY_NORM)),
        (attention.sinks, (TensorRole.ATTENTION_SINKS,)),
        (
            specification.post_norms,
            (TensorRole.ATTENTION_POST_NORM, TensorRole.FEED_FORWARD_POST_NORM),
        ),
    ):
        for role in roles:
            if needed and role not in wanted:
                raise ValueError(f"the layer needs a vector '{role}'")
    return wanted


def _settings(
    native: ModuleType,
    specification: LayerSpecification,
    weights: Mapping[TensorRole, Weight],
    divisors: FloatArray | None,
) -> _native.LayerSettings:
    attention = specification.attention
    settings: _native.LayerSettings = native.LayerSettings()
    settings.hidden = weights[TensorRole.QUERY].columns
    settings.norm_epsilon = specification.norm_epsilon
    _set_attention(settings, attention)
    table = rotary_table(attention.rope, divisors)
    settings.rope_halves = table.style is RopeStyle.NEOX
    settings.rope_frequencies = table.step.tolist()
    settings.rope_magnitude = table.magnitude

    feed_forward = specification.feed_forward
    settings.activation = _ACTIVATIONS[feed_forward.activation]
    settings.width = feed_forward.width
    if not isinstance(feed_forward, DenseFeedForward):
        settings.experts = feed_forward.experts
        settings.used = feed_forward.used
        settings.gating = _GATINGS[feed_forward.gating]
        settings.normalise_weights = feed_forward.normalise_weights
        settings.weights_scale = feed_forward.weights_scale
        settings.shared_width = feed_forward.shared_width
    return settings


def _set_attention(settings: _native.LayerSettings, attention: AttentionSpecification) -> None:
    if attention.heads > _LARGEST_GROUP * attention.kv_heads:
        raise UnsupportedModel(
            "native kernels",
            f"{attention.heads} query heads on {attention.kv_heads} kv heads",
            (f"up to {_LARGEST_GROUP} query heads per kv head",),
        )
    settings.heads = attention.heads
    settings.kv_heads = attention.kv_heads
    settings.key_dimension = attention.key_dimension
    settings.value_dimension = attention.value_dimension
    settings.scale = attention.scale
    settings.window = attention.sliding_window or 0


def _bind(native: ModuleType, weight: Weight) -> _native.Matrix:
    if not native.supports(int(weight.type)):
        supported = tuple(kind.name for kind in GGMLType if native.supports(int(kind)))
        raise UnsupportedModel(weight.name, f"block type {weight.type.name}", supported)
    experts = weight.shape[0] if len(weight.shape) > 2 else 1  # noqa: PLR2004 - (experts, rows, columns)
    try:
        matrix: _native.Matrix = native.Matrix(
            int(weight.type), experts, weight.rows, weight.columns, weight.data
        )
    except ValueError as error:
        raise ValueError(f"{weight.name}: {error}") from error
    return matrix


def _vector(weight: Weight) -> FloatArray:
    """Norms, biases and the like: small, so copied to aligned float32."""
    if weight.type is GGMLType.F32:
        kind: type[np.float32 | np.float16] = np.float32
    elif weight.type is GGMLType.F16:
        kind = np.float16
    else:
        raise UnsupportedModel(weight.name, f"a vector of type {weight.type.name}", ("F32", "F16"))
    return np.frombuffer(weight.data.tobytes(), dtype=kind).astype(np.float32)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
