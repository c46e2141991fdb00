"""From a model's path to an engine that can step. Knows how the parts fit; computes nothing itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from local_backend.config import EngineConfig, KernelPreference
from local_backend.engine.engine import Engine, TokenTable
from local_backend.engine.forward import ForwardContext, compute, last_logits, prepare
from local_backend.errors import InvalidRequest, TooLargeForMemory, UnsupportedModel
from local_backend.kernels import select
from local_backend.kernels.base import Kernels
from local_backend.kernels.precision import choose_precision
from local_backend.kv_cache.sequence_cache import SequenceCache
from local_backend.model.chat_template import ChatTemplate
from local_backend.model.default_model import resolve_model
from local_backend.model.loader import ModelFile, open_model
from local_backend.model.quantities import bytes_text
from local_backend.model.specification import ModelSpecification
from local_backend.model.tokenizer import Tokenizer
from local_backend.model.weights import ModelWeights, Weight
from local_backend.plan.hardware import probe
from local_backend.plan.placement import PlacementPlan
from local_backend.plan.planner import plan

__all__ = ["LoadedModel", "RenderChat", "context_within", "load_model", "public_name"]

_log = logging.getLogger(__name__)

RenderChat: TypeAlias = Callable[
    [Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]] | None, Mapping[str, Any]], list[int]
]
"""Messages, tools and template options → the tokens of the prompt, ready for the answer."""

_DEFAULT_CONTEXT = 32_768
_OPENED = 0.1
_TOKENIZED = 0.2
_PREPARED = 0.6


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that can answer. ``kernels`` describes the arithmetic for people."""

    name: str
    architecture: str
    kernels: str
    vocabulary_size: int
    engine: Engine
    token_bytes: Callable[[int], bytes]
    encode_text: Callable[[str], list[int]]
    render_chat: RenderChat


def load_model(model: str, config: EngineConfig, progress: Callable[[float], None]) -> LoadedModel:
    """Open, check and prepare a model, and compute one token so that the first request is no slower.

    ``model`` is a path or ``builtin:…``. Raises the errors of
    :func:`~local_backend.model.loader.open_model` and of the kernels' choice; nothing stays loaded then.
    """
    started = time.perf_counter()
    with ExitStack() as undo:
        file = open_model(resolve_model(model))
        undo.callback(file.close)
        progress(_OPENED)
        context_tokens = _planned_context(file, config)
        tokenizer = Tokenizer(file.vocabulary)
        render_chat = _renderer(file, tokenizer)
        progress(_TOKENIZED)
        forward = _prepare(file, config, progress)
        undo.callback(forward.kernels.close)
        cache = SequenceCache(file.specification, context_tokens)
        _warm_up(forward, cache)
        progress(1.0)
        undo.pop_all()
    _log.info("%s: %d layers, context %d, loaded in %.2f s", *_summary(file, context_tokens, started))
    kernels = forward.kernels
    return LoadedModel(
        name=public_name(model),
        architecture=file.specification.architecture,
        kernels=f"{kernels.name}: {kernels.description}",
        vocabulary_size=file.specification.vocabulary_size,
        engine=Engine(
            forward,
            TokenTable(file.specification.vocabulary_size, tokenizer.token_bytes, tokenizer.end_tokens),
            cache,
            prefill_chunk=config.prefill_chunk,
            clock=time.perf_counter,
        ),
        token_bytes=lambda token: tokenizer.token_bytes(token, special=True),
        encode_text=tokenizer.encode,
        render_chat=render_chat,
    )


def public_name(model: str) -> str:
    """Name of a model on the wire, known before it is loaded: the file's without its ending."""
    if model.startswith("builtin:"):
        return model.removeprefix("builtin:")
    return Path(model).name.removesuffix(".gguf")


def _prepare(file: ModelFile, config: EngineConfig, progress: Callable[[float], None]) -> ForwardContext:
    precision = choose_precision(config.activations, file.specification, file.weights)
    tensors = _tensors(file.weights)
    selection = select(config.kernels, tensors, config.threads, precision)
    _announce(selection.kernels, selection.reason)
    layers = len(file.specification.layers)

    def on_layer(index: int) -> None:
        progress(_TOKENIZED + (_PREPARED - _TOKENIZED) * (index + 1) / layers)

    try:
        return prepare(file.specification, file.weights, selection.kernels, on_layer)
    except UnsupportedModel as error:
        selection.kernels.close()
        if config.kernels is not KernelPreference.AUTO or selection.kernels.name == "reference":
            raise
        reference = select(KernelPreference.REFERENCE, tensors, config.threads, precision).kernels
        _announce(reference, str(error))
        return prepare(file.specification, file.weights, reference, on_layer)


def _announce(kernels: Kernels, reason: str | None) -> None:
    why = "" if reason is None else f" ({reason})"
    _log.info("kernels: %s, %s%s", kernels.name, kernels.description, why)


def _tensors(weights: ModelWeights) -> list[Weight]:
    groups = (weights.shared, *weights.layers)
    return [weight for group in groups for weight in group.values()]


def _warm_up(forward: ForwardContext, cache: SequenceCache) -> None:
    """Touch what a token needs: pages come from disk, small models are dequantised."""
    last_logits(forward, compute(forward, [0], cache, lambda: False))
    cache.truncate(0)


def context_within(specification: ModelSpecification, wanted: int | None) -> int:
    """Return the wanted context, or a usual one. Raises ``InvalidRequest`` beyond what was trained."""
    trained = specification.context_tokens
    if wanted is None:
        return min(trained, _DEFAULT_CONTEXT)
    if wanted > trained:
        raise InvalidRequest(
            f"a context of {wanted} tokens is more than the {trained} this model was trained for",
            param="context",
        )
    return wanted


def _planned_context(file: ModelFile, config: EngineConfig) -> int:
    """Return the context to reserve: the wanted one, or without a wish the largest that fits."""
    wanted = context_within(file.specification, config.context_tokens)
    result = plan(file.specification, file.weights, probe(), wanted, prefill_chunk=config.prefill_chunk)
    if isinstance(result, PlacementPlan):
        return wanted
    if config.context_tokens is None and result.fitting_context is not None:
        _log.warning("memory allows a context of %d tokens instead of %d", result.fitting_context, wanted)
        return result.fitting_context
    raise TooLargeForMemory(
        f"{file.path}: needs {bytes_text(result.needed_bytes)} with a context of {wanted} tokens, "
        f"{bytes_text(result.available_bytes)} are there. {result.remedy}"
    )


def _renderer(file: ModelFile, tokenizer: Tokenizer) -> RenderChat:
    try:
        template = ChatTemplate(str(file.path), file.chat_template, file.vocabulary)
    except UnsupportedModel as error:
        return _refusing(str(error))
    if template.is_fallback:
        _log.warning("%s has no chat template; ChatML is used", file.path.name)

    def render(
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        options: Mapping[str, Any],
    ) -> list[int]:
        now = datetime.now().astimezone()
        return tokenizer.encode(template.render(messages, now=now, tools=tools, extra=options))

    return render


def _refusing(reason: str) -> RenderChat:
    def refuse(*_: object) -> list[int]:
        raise InvalidRequest(reason, param="messages")

    return refuse


def _summary(file: ModelFile, context_tokens: int, started: float) -> tuple[str, int, int, float]:
    return file.path.name, len(file.specification.layers), context_tokens, time.perf_counter() - started
