from __future__ import annotations

from typing import Any

import pytest

from local_backend.config import EngineConfig, ServerConfig, token_from_environment
from local_backend.errors import InvalidRequest


@pytest.mark.parametrize(
    ("environment", "token"),
    [({}, None), ({"ROUNDHOUSE_ENGINE_TOKEN": ""}, None), ({"ROUNDHOUSE_ENGINE_TOKEN": "sesame"}, "sesame")],
)
def test_the_token_comes_from_the_environment(environment: dict[str, str], token: str | None) -> None:
    assert token_from_environment(environment) == token


@pytest.mark.parametrize("fields", [{"context_tokens": 0}, {"threads": -1}, {"prefill_chunk": 0}])
def test_an_engine_refuses_sizes_below_one(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="at least 1"):
        EngineConfig(**fields)


@pytest.mark.parametrize("fields", [{"port": 65536}, {"port": -1}, {"queue_limit": -1}])
def test_a_server_refuses_what_no_socket_or_queue_can_be(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        ServerConfig(**fields)
