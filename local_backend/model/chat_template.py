"""Messages to a prompt, by the Jinja template of the file, in a sandbox that ends.

Source: the conventions of Hugging Face's chat templates (trimmed blocks, ``raise_exception``,
``strftime_now``, tool arguments as objects). Knows messages as JSON; not tokens or limits of requests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2

from local_backend.errors import BadModelFile, InvalidRequest, UnsupportedModel
from local_backend.model.template_sandbox import bounded_template, render_bounded
from local_backend.model.vocabulary import Vocabulary

__all__ = ["ChatTemplate"]

_TEMPLATE_KEY = "key tokenizer.chat_template"
_MOST_SOURCE = 1 << 20
_CHATML_MARKS = frozenset({"<|im_start|>", "<|im_end|>"})
_CHATML = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
)


class ChatTemplate:
    """One compiled template. ``source`` ``None`` takes ChatML where the vocabulary has its marks.

    Raises ``UnsupportedModel`` where there is no template to take, ``BadModelFile`` for one that is not
    Jinja.
    """

    def __init__(self, path: str, source: str | None, vocabulary: Vocabulary) -> None:
        self.is_fallback = source is None
        if source is None:
            if not _CHATML_MARKS.issubset(vocabulary.tokens):
                raise UnsupportedModel(
                    path,
                    "chat with a file that has neither a chat template nor ChatML's tokens",
                    ("plain completions",),
                )
            source = _CHATML
        if len(source) > _MOST_SOURCE:
            raise BadModelFile(path, _TEMPLATE_KEY, f"is longer than {_MOST_SOURCE} characters")
        self.source = source
        self._specials = {
            "bos_token": vocabulary.text_of(vocabulary.bos),
            "eos_token": vocabulary.text_of(vocabulary.eos),
            "unk_token": vocabulary.text_of(vocabulary.unknown),
        }
        try:
            self._template = bounded_template(source)
        except (jinja2.TemplateError, RecursionError, SyntaxError) as error:
            raise BadModelFile(path, _TEMPLATE_KEY, f"is not a valid template: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        now: datetime,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        extra: Mapping[str, Any] | None = None,
    ) -> str:
        """Render messages (in OpenAI's form) to the text of a prompt.

        ``now`` is what ``strftime_now`` tells; ``extra`` are further variables, such as
        ``enable_thinking``. Raises ``InvalidRequest`` where the template refuses the messages, fails on
        them, or does not come to an end within its bounds.
        """
        variables = (
            dict(extra or {})
            | self._specials
            | {
                "messages": [_prepared(message, index) for index, message in enumerate(messages)],
                "tools": list(tools) if tools else None,
                "add_generation_prompt": add_generation_prompt,
                "raise_exception": _refuse,
                "strftime_now": now.strftime,
            }
        )
        try:
            return render_bounded(self._template, variables)
        except (
            jinja2.TemplateError,
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
            RecursionError,
            MemoryError,
        ) as error:
            reason = str(error) or type(error).__name__
            raise InvalidRequest(
                f"the model's chat template cannot render these messages: {reason}", param="messages"
            ) from error


def _refuse(message: object) -> NoReturn:
    raise jinja2.TemplateRuntimeError(str(message))


def _prepared(message: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Bring a message into the form templates are written for: text content, arguments as objects."""
    prepared = dict(message)
    prepared["content"] = _text(message.get("content"), index)
    calls = message.get("tool_calls")
    if calls:
        prepared["tool_calls"] = [_prepared_call(call) for call in calls]
    return prepared


def _text(content: object, index: int) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise InvalidRequest(
            f"message {index}: content is neither text nor a list of parts", param="messages"
        )
    texts: list[str] = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        if not isinstance(part, Mapping) or kind not in {"text", "input_text", "output_text", "refusal"}:
            raise InvalidRequest(
                f"message {index}: a part of type {kind!r} cannot be read by this text model; send text",
                param="messages",
            )
        texts.append(str(part.get("text", part.get("refusal", ""))))
    return "\n".join(texts)


def _prepared_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, Mapping):
        return dict(call)
    return dict(call) | {"function": dict(function) | {"arguments": _arguments(function.get("arguments"))}}


def _arguments(arguments: object) -> object:
    """Turn the JSON text of OpenAI's wire into the object templates expect, where it is one."""
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed = json.loads(arguments or "{}")
    except ValueError:
        return arguments
    return parsed if isinstance(parsed, dict) else arguments
