from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from router.recording.log_setup import Redaction, configure_logging

SECRETS = (
    "sk-proj-abcdefghijklmnop1234",
    "gsk_ABCDEFGHIJKLMNOPQRST",
    "AIzaSyA-1234567890abcdefghijklmnopq",
    "Bearer abcdefgh12345678",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijk",
    "api_key=supersecretvalue",
    '"api-key": "supersecretvalue"',
    "postgresql://me:hunter2222@db/name",
)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    configure_logging(as_json=True, level="info", secrets=("plain-looking-key",), stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.mark.parametrize("secret", SECRETS)
def test_whatever_looks_like_a_key_is_masked(secret: str) -> None:
    cleaned = Redaction().clean(f"upstream said: {secret} is wrong")

    assert "***" in cleaned
    assert not any(part in cleaned for part in (secret, "supersecret", "hunter2222", "abcdefgh12345678"))


@pytest.mark.parametrize(
    "text",
    ["task-force-delta-nineteen", "openai/gpt-5-mini", "the key is missing", "risk-free", "basic settings"],
)
def test_ordinary_words_stay(text: str) -> None:
    assert Redaction().clean(text) == text


def test_a_known_secret_is_masked_wherever_it_stands(lines: io.StringIO) -> None:
    structlog.get_logger("test").info("hello plain-looking-key", deep={"list": ["x plain-looking-key"]})

    assert "plain-looking-key" not in lines.getvalue()
    assert json.loads(lines.getvalue())["deep"]["list"] == ["x ***"]


def test_an_exceptions_text_and_trace_are_cleaned(lines: io.StringIO) -> None:
    try:
        _fail("bad key sk-abcdefghijklmnopqrst")
    except ValueError:
        structlog.get_logger("test").exception("failed")

    assert "sk-abc" not in lines.getvalue()
    assert "ValueError" in json.loads(lines.getvalue())["exception"]


def test_standard_library_loggers_pass_through_the_same_cleaning(lines: io.StringIO) -> None:
    try:
        _fail("Bearer abcdefgh12345678")
    except ValueError:
        logging.getLogger("some.library").exception("key %s", "plain-looking-key")

    line = json.loads(lines.getvalue())
    assert line["event"] == "key ***"
    assert "abcdefgh12345678" not in lines.getvalue()


def _fail(message: str) -> None:
    raise ValueError(message)
