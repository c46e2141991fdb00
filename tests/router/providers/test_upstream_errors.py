from __future__ import annotations

import orjson
import pytest

from router.providers.credentials import NO_KEYS, ProviderKeys
from router.providers.upstream_errors import find_error_object, status_error

KEYS = ProviderKeys({"A": "alpha-secret", "B": "b"})


@pytest.mark.parametrize(
    ("body", "message", "code", "kind"),
    [
        ({"error": {"message": "m", "type": "t", "code": "c"}}, "m", "c", "t"),
        ({"error": {"message": "m", "type": "t", "code": 429}}, "m", None, "t"),
        ({"error": {"message": "m", "code": "1113"}}, "m", "1113", None),
        ({"error": {"message": "m", "code": 1113}}, "m", "1113", None),
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "m"}},
            "m",
            None,
            "overloaded_error",
        ),
        (
            [{"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}}],
            "m",
            "INVALID_ARGUMENT",
            None,
        ),
        ({"error": "m"}, "m", None, None),
        ({"code": "Arrearage", "message": "m"}, "m", "Arrearage", None),
        ({"detail": "m"}, "m", None, None),
        ({"detail": [{"loc": ["body"]}]}, '[{"loc":["body"]}]', None, None),
        ({"msg": "m", "code": 7}, "m", "7", None),
        (
            {"object": "error", "message": "m", "type": "BadRequestError", "code": 400},
            "m",
            None,
            "BadRequestError",
        ),
    ],
)
def test_the_typed_fields_of_every_vendors_shape(
    body: object, message: str, code: str | None, kind: str | None
) -> None:
    error = status_error(400, {}, orjson.dumps(body), keys=NO_KEYS, now=0.0)

    assert error.message == f"HTTP 400: {message}"
    assert (error.upstream_code, error.upstream_type) == (code, kind)


@pytest.mark.parametrize("value", [None, 5, "text", [], {}, {"error": None}, {"error": {}}, {"choices": []}])
def test_what_is_no_error_is_none(value: object) -> None:
    assert find_error_object(value) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("body", [b"", b"\xff\xfe\x00", b"[", b"null", b"plain words", b"{}"])
def test_any_body_makes_an_error(body: bytes) -> None:
    assert status_error(502, {}, body, keys=NO_KEYS, now=0.0).upstream_status == 502


def test_a_page_is_read_without_its_markup() -> None:
    page = b"<html><head><style>p {color: red}</style></head><body><h1>502 Bad  Gateway</h1></body></html>"

    assert status_error(502, {}, page, keys=NO_KEYS, now=0.0).body_excerpt == "502 Bad Gateway"


def test_a_long_body_is_cut_but_its_fields_stay_readable() -> None:
    body = orjson.dumps({"input": "x" * 5_000, "error": {"message": "too long", "code": "c", "type": "t"}})
    excerpt = status_error(400, {}, body, keys=NO_KEYS, now=0.0).body_excerpt

    assert len(excerpt) <= 2_000
    assert orjson.loads(excerpt)["error"] == {"message": "too long", "code": "c", "type": "t", "status": None}


@pytest.mark.parametrize(
    "text",
    [
        "key alpha-secret is bad",
        "Incorrect API key provided: sk-proj-ab**********wxyz.",
        "Incorrect API key provided: gsk_ABCDEFGHIJKLMNOP",
        "header was Bearer abcdefgh.ijklmnop",
        "AIzaSyA1234567890abcdefghij is not valid",
    ],
)
def test_nothing_that_looks_like_a_key_is_kept(text: str) -> None:
    redacted = KEYS.redact(text)

    assert "[removed]" in redacted
    for secret in ("alpha-secret", "ab****", "wxyz", "ABCDEFG", "abcdefgh", "SyA123"):
        assert secret not in redacted


@pytest.mark.parametrize(
    "text",
    [
        "sketchy words about pkg-config-settings",
        "the bearer of news",
        "keyboard-interrupts and key-value-databases",
        "pk-less-tables-are-rare",
        "risk-averse",
    ],
)
def test_ordinary_words_are_kept(text: str) -> None:
    assert KEYS.redact(text) == text


def test_keys_show_their_labels_only() -> None:
    assert repr(KEYS) == "ProviderKeys(A, B)"
    assert KEYS.secret("B") == "b"
    assert KEYS.secret("gone") == KEYS.secret(None) == "alpha-secret"
    assert NO_KEYS.secret(None) is None
