"""Rendering messages, and templates that would rather not end."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from local_backend.errors import BadModelFile, InvalidRequest, UnsupportedModel
from local_backend.gguf.reader import open_gguf
from local_backend.model.chat_template import ChatTemplate
from local_backend.model.default_model import resolve_model
from local_backend.model.loader import open_model
from local_backend.model.vocabulary import Vocabulary, read_vocabulary
from tests.local_backend.tiny_gguf import CHATML, byte_level_vocabulary, write_gguf

NOW = datetime(2026, 12, 1, 8, 30, tzinfo=UTC)
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def vocabulary(tmp_path: Path) -> Vocabulary:
    return read_vocabulary(open_gguf(write_gguf(tmp_path / "v.gguf", byte_level_vocabulary())).metadata)


@pytest.fixture
def render(vocabulary: Vocabulary) -> Any:
    def rendered(source: str, messages: Any = HELLO, **options: Any) -> str:
        return ChatTemplate("m.gguf", source, vocabulary).render(messages, now=NOW, **options)

    return rendered


@pytest.mark.model
def test_the_default_model_renders_its_own_format() -> None:
    with open_model(resolve_model("builtin:smollm2")) as model:
        template = ChatTemplate(str(model.path), model.chat_template, model.vocabulary)

        assert template.render(HELLO, now=NOW) == (
            "<|im_start|>system\n"
            "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
        )


def test_the_prompt_for_an_answer_is_left_out_when_asked(render: Any) -> None:
    assert render(CHATML, add_generation_prompt=False) == "<|im_start|>user\nHello<|im_end|>\n"


def test_chatml_stands_in_where_the_file_has_no_template(vocabulary: Vocabulary) -> None:
    template = ChatTemplate("m.gguf", None, vocabulary)

    assert template.is_fallback
    assert template.render(HELLO, now=NOW) == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


def test_no_template_and_no_chatml_is_refused(tmp_path: Path) -> None:
    metadata = byte_level_vocabulary()
    metadata["tokenizer.ggml.tokens"] = [
        text.replace("im_", "xx_") for text in metadata["tokenizer.ggml.tokens"]
    ]
    vocabulary = read_vocabulary(open_gguf(write_gguf(tmp_path / "w.gguf", metadata)).metadata)

    with pytest.raises(UnsupportedModel, match="neither a chat template nor ChatML"):
        ChatTemplate("m.gguf", None, vocabulary)


def test_blocks_are_trimmed_as_templates_expect(render: Any) -> None:
    assert render("a\n  {% if true %}\nb\n  {% endif %}\nc") == "a\nb\nc"


def test_special_tokens_tools_and_extra_variables_are_there(render: Any) -> None:
    source = "{{ bos_token }}|{{ eos_token }}|{{ tools | tojson }}|{{ enable_thinking }}"

    assert render(source, tools=[{"name": "größe"}], extra={"enable_thinking": False}) == (
        '<|endoftext|>|<|im_end|>|[{"name": "größe"}]|False'
    )


def test_absent_tools_are_none(render: Any) -> None:
    assert render("{% if tools is none %}none{% endif %}", tools=[]) == "none"


def test_the_date_is_the_one_handed_in(render: Any) -> None:
    assert render("{{ strftime_now('%d %b %Y') }}") == "01 Dec 2026"


def test_extra_variables_cannot_replace_messages(render: Any) -> None:
    assert render("{{ messages | length }}", extra={"messages": []}) == "1"


def test_text_parts_are_joined_and_missing_content_is_empty(render: Any) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": None}]

    assert render("{% for m in messages %}[{{ m.content }}]{% endfor %}", messages) == "[a\nb][]"


def test_parts_that_are_no_text_are_refused_by_name(render: Any) -> None:
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]

    with pytest.raises(InvalidRequest, match=r"message 0: a part of type 'image_url'"):
        render(CHATML, messages)


def test_arguments_of_tool_calls_are_objects_for_the_template(render: Any) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    broken = {"id": "2", "type": "function", "function": {"name": "g", "arguments": "{"}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call, broken]}]

    found = render(
        "{% for c in messages[0].tool_calls %}{{ c.function.arguments | tojson }};{% endfor %}", messages
    )

    assert found == '{"a": 1};"{";'
    assert call["function"] == {"name": "f", "arguments": '{"a": 1}'}


def test_training_marks_and_loop_controls_are_understood(render: Any) -> None:
    assert (
        render("{% generation %}x{% endgeneration %}{% for i in range(9) %}{{ i }}{% break %}{% endfor %}")
        == "x0"
    )


def test_a_template_may_refuse_the_messages(render: Any) -> None:
    with pytest.raises(InvalidRequest, match="roles must alternate") as caught:
        render("{{ raise_exception('roles must alternate') }}")

    assert caught.value.param == "messages"


def test_a_template_that_is_no_jinja_is_a_bad_file(vocabulary: Vocabulary) -> None:
    with pytest.raises(BadModelFile, match=r"tokenizer\.chat_template: is not a valid template"):
        ChatTemplate("m.gguf", "{% for %}", vocabulary)


HOSTILE = {
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "a range too long": "{% for i in range(10 ** 9) %}{% endfor %}",
    "branching recursion": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"
    ),
    "endless recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a doubled text": (
        "{% set n = namespace(x='aa') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}"
    ),
    "a doubled sum": (
        "{% set n = namespace(x='aa') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}"
    ),
    "a large product": "{{ 'a' * 10 ** 12 }}",
    "a large power": "{{ 9 ** 99 ** 9 }}",
    "a wide padding": "{{ 'a'.ljust(10 ** 10) }}",
    "a wide format": "{{ '{:999999999}'.format(1) }}",
    "an old wide format": "{{ '%999999999d' % 1 }}",
    "a long answer": "{% for i in range(90000) %}{{ 'a' * 1000 }}{% endfor %}",
    "the interpreter's insides": "{{ ''.__class__.__mro__ }}",
    "a changed message": "{{ messages.append(1) }}",
    "an undefined thing": "{{ nothing.at.all }}",
    "a wrong sum": "{{ messages + 1 }}",
    "an unknown filter call": "{{ 'a' | center(10 ** 9) }}",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_template_is_an_error_and_soon(render: Any, case: str) -> None:
    started = time.process_time()

    with pytest.raises((InvalidRequest, BadModelFile)):
        render(HOSTILE[case])

    assert time.process_time() - started < 5.0


def test_long_conversations_are_within_the_bounds(render: Any) -> None:
    messages = [{"role": "user", "content": "word " * 200}] * 2_000

    assert len(render(CHATML, messages)) > 2_000_000
