"""What a request must fulfil before it is queued. Pure; knows sizes, not HTTP bodies."""

from __future__ import annotations

import math

from local_backend.engine.sampling import SamplingParameters
from local_backend.engine.sequence import GenerationRequest
from local_backend.errors import ContextOverflow, InvalidRequest

__all__ = ["validate"]


def validate(request: GenerationRequest, vocabulary_size: int, context_tokens: int) -> None:
    """Raise ``InvalidRequest`` naming the field, or ``ContextOverflow`` with the numbers."""
    if not request.prompt:
        raise InvalidRequest("the prompt is empty: at least one token is needed", param="prompt")
    for position, token in enumerate(request.prompt):
        if not 0 <= token < vocabulary_size:
            raise InvalidRequest(
                f"token {token} at position {position} is not in the vocabulary (0 to {vocabulary_size - 1})",
                param="prompt",
            )
    if request.max_tokens < 1:
        raise InvalidRequest(f"max_tokens is {request.max_tokens}; it must be at least 1", param="max_tokens")
    total = len(request.prompt) + request.max_tokens
    if total > context_tokens:
        raise ContextOverflow(
            f"This model's context is {context_tokens} tokens; {len(request.prompt)} tokens of prompt and "
            f"{request.max_tokens} of output make {total}. Shorten the prompt or ask for fewer tokens.",
            param="messages",
        )
    _validate_sampling(request.sampling, vocabulary_size)


def _validate_sampling(sampling: SamplingParameters, vocabulary_size: int) -> None:
    bounds = (
        ("temperature", sampling.temperature, 0.0, math.inf),
        ("top_k", sampling.top_k, 0, math.inf),
        ("top_p", sampling.top_p, 0.0, 1.0),
        ("min_p", sampling.min_p, 0.0, 1.0),
        ("presence_penalty", sampling.presence_penalty, -math.inf, math.inf),
        ("frequency_penalty", sampling.frequency_penalty, -math.inf, math.inf),
    )
    for name, value, low, high in bounds:
        if math.isnan(value) or math.isinf(value) or not low <= value <= high:
            raise InvalidRequest(f"{name} is {value}; it must be from {low:g} to {high:g}", param=name)
    if not (0.0 < sampling.repetition_penalty < math.inf):
        raise InvalidRequest(
            f"repetition_penalty is {sampling.repetition_penalty}; it must be above 0",
            param="repetition_penalty",
        )
    if sampling.seed is not None and sampling.seed < 0:
        raise InvalidRequest(f"seed is {sampling.seed}; it must not be negative", param="seed")
    if sampling.top_logprobs is not None and sampling.top_logprobs < 0:
        raise InvalidRequest("top_logprobs must not be negative", param="top_logprobs")
    for token, bias in sampling.logit_bias.items():
        if not 0 <= token < vocabulary_size or not math.isfinite(bias):
            raise InvalidRequest(
                f"logit_bias names token {token} with {bias}; ids go from 0 to {vocabulary_size - 1}, "
                "biases are finite",
                param="logit_bias",
            )
