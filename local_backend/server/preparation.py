"""From a body to what the engine is asked for: template, tokens, sampling, limits.

Blocking: tokenising a long prompt takes long, so routes run it in a thread. Knows no answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from local_backend.engine.loading import LoadedModel
from local_backend.engine.sampling import SamplingParameters
from local_backend.engine.sequence import GenerationRequest
from local_backend.engine.validation import validate
from local_backend.errors import InvalidRequest
from local_backend.server.schemas import ChatBody, ChatMessage, CompletionBody, SamplingFields

__all__ = ["prepare_chat", "prepare_completion"]

_MOST_STOPS = 16
_SEED_MASK = (1 << 63) - 1


def prepare_chat(body: ChatBody, model: LoadedModel, request_id: str) -> GenerationRequest:
    """Render and tokenise a conversation. Raises ``InvalidRequest`` or ``ContextOverflow``."""
    _refuse_choices(body.n)
    if body.response_format is not None and body.response_format.type != "text":
        raise InvalidRequest(
            f"response_format {body.response_format.type} is not supported: this engine cannot constrain "
            "its output",
            param="response_format",
        )
    if body.top_logprobs and not body.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs to be true", param="top_logprobs")
    tools = None if body.tool_choice == "none" else body.tools
    messages = [_message(index, message) for index, message in enumerate(body.messages)]
    prompt = model.render_chat(messages, tools, body.chat_template_kwargs or {})
    top = (body.top_logprobs or 0) if body.logprobs else None
    wanted = body.max_completion_tokens or body.max_tokens
    return _request(body, model, request_id, prompt, wanted, top)


def prepare_completion(body: CompletionBody, model: LoadedModel, request_id: str) -> GenerationRequest:
    """Tokenise a text. Raises ``InvalidRequest`` or ``ContextOverflow``."""
    _refuse_choices(body.n)
    for name, value in (("echo", body.echo), ("suffix", body.suffix)):
        if value:
            raise InvalidRequest(f"{name} is not supported", param=name)
    if body.best_of not in {None, 1}:
        raise InvalidRequest("best_of above 1 is not supported", param="best_of")
    text = body.prompt
    if isinstance(text, list) and text and isinstance(text[0], str):
        if len(text) > 1:
            raise InvalidRequest("several prompts in one request are not supported", param="prompt")
        text = text[0]
    prompt = model.encode_text(text) if isinstance(text, str) else [int(token) for token in text]
    # OpenAI's default for this surface.
    wanted = body.max_tokens or min(16, max(1, model.engine.context_tokens - len(prompt)))
    return _request(body, model, request_id, prompt, wanted, body.logprobs)


def _request(
    body: SamplingFields,
    model: LoadedModel,
    request_id: str,
    prompt: list[int],
    wanted: int | None,
    top_logprobs: int | None,
) -> GenerationRequest:
    room = model.engine.context_tokens - len(prompt)
    if wanted and body.fit_max_tokens:
        wanted = min(wanted, max(1, room))
    request = GenerationRequest(
        request_id=request_id,
        prompt=tuple(prompt),
        max_tokens=wanted or max(1, room),
        sampling=_sampling(body, top_logprobs),
        stops=_stops(body.stop),
    )
    validate(request, model.vocabulary_size, model.engine.context_tokens)
    return request


def _sampling(body: SamplingFields, top_logprobs: int | None) -> SamplingParameters:
    repetition = body.repeat_penalty if body.repetition_penalty is None else body.repetition_penalty
    given: dict[str, Any] = {
        "temperature": body.temperature,
        # Some clients write "off" as -1.
        "top_k": None if body.top_k is None else max(0, body.top_k),
        "top_p": body.top_p,
        "min_p": body.min_p,
        "repetition_penalty": repetition,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "logit_bias": body.logit_bias,
        # Any integer is a seed on the wire; generators want one that is not negative.
        "seed": None if body.seed is None else body.seed & _SEED_MASK,
        "top_logprobs": top_logprobs,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    return replace(SamplingParameters(), **chosen)


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > _MOST_STOPS:
        raise InvalidRequest(f"{len(stops)} stop strings; at most {_MOST_STOPS} can be watched", param="stop")
    return tuple(text for text in stops if text)


def _refuse_choices(count: int | None) -> None:
    if count not in {None, 1}:
        raise InvalidRequest(f"n is {count}; this engine gives one choice a request", param="n")


def _message(index: int, message: ChatMessage) -> Mapping[str, Any]:
    """One turn as templates expect it; parts become one text."""
    turn: dict[str, Any] = {"role": message.role, "content": _text(index, message)}
    for name in ("name", "reasoning_content", "tool_calls", "tool_call_id"):
        value = getattr(message, name)
        if value is not None:
            turn[name] = value
    return turn


def _text(index: int, message: ChatMessage) -> str:
    if message.content is None:
        return ""
    if isinstance(message.content, str):
        return message.content
    texts: list[str] = []
    for number, part in enumerate(message.content):
        place = f"messages[{index}].content[{number}]"
        if part.type != "text":
            raise InvalidRequest(f"{place} is of type {part.type}; this model reads only text", param=place)
        texts.append(part.text or "")
    return "\n".join(texts)
