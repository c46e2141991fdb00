from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import anyio
import pytest

from local_backend.config import ServerConfig
from local_backend.engine.loading import LoadedModel
from local_backend.errors import BadModelFile
from tests.local_backend.counting_model import CountingKernels, counting_model
from tests.local_backend.server.served import serving

pytestmark = pytest.mark.anyio


async def test_health_tells_of_the_model_and_its_load() -> None:
    async with serving(config=ServerConfig(queue_limit=3)) as served:
        await served.chat("abc", max_tokens=3)
        response = await served.client.get("/health")
    body = response.json()

    assert response.status_code == 200
    assert body["status"] == "ok"
    assert body["model"]["id"] == "counting"
    assert body["model"]["context_length"] == 64
    assert body["slots"] == {"total": 1, "busy": 0}
    assert body["queue"] == {"waiting": 0, "limit": 3}
    assert {"prefill_tok_s", "decode_tok_s", "estimated_wait_s"} <= body.keys()


async def test_health_tells_how_far_the_running_request_is() -> None:
    kernels = CountingKernels()
    kernels.gate = threading.Semaphore(0)
    async with serving(kernels, over_socket=True) as served, anyio.create_task_group() as group:
        group.start_soon(partial(served.chat, "abcdef", max_tokens=5))
        await served.until_open(1)
        with anyio.fail_after(20):
            while (running := (await served.client.get("/health")).json()["running"]) is None:
                await anyio.lowlevel.checkpoint()
        kernels.gate.release(1000)

        assert running["remaining"] == 5
        assert running["prompt_tokens"] == 6
        assert running["computed"] <= running["prompt_tokens"]


async def test_while_loading_everything_but_health_answers_503_and_says_when() -> None:
    go, reported = threading.Event(), threading.Event()

    def load(progress: Callable[[float], None]) -> LoadedModel:
        progress(0.25)
        reported.set()
        go.wait()
        return counting_model()

    async with serving(load=load, wait=False) as served:
        reported.wait()
        health = await served.client.get("/health")
        chat = await served.chat("abc")
        go.set()

    assert health.status_code == chat.status_code == 503
    assert (health.json()["status"], health.json()["progress"]) == ("loading", 0.25)
    assert chat.json()["error"]["code"] == "loading"
    assert int(chat.headers["retry-after"]) >= 1
    assert int(health.headers["retry-after"]) >= 1


async def test_a_model_that_cannot_be_loaded_is_named_in_health_and_answers() -> None:
    def load(_progress: Callable[[float], None]) -> LoadedModel:
        raise BadModelFile("x.gguf", "byte 0", "not a GGUF file")

    async with serving(load=load) as served:
        health = await served.client.get("/health")
        chat = await served.chat("abc")

    assert health.status_code == chat.status_code == 503
    assert health.json()["status"] == "failed"
    assert "x.gguf: byte 0" in health.json()["error"]
    assert chat.json()["error"]["code"] == "load_failed"
    assert "retry-after" not in chat.headers


async def test_models_lists_the_one_model() -> None:
    async with serving() as served:
        body = (await served.client.get("/v1/models")).json()

    assert [model["id"] for model in body["data"]] == ["counting"]
    assert body["data"][0]["context_length"] == 64


async def test_metrics_count_requests_and_tokens() -> None:
    async with serving() as served:
        await served.chat("abcdef", max_tokens=3)
        await served.chat("abcdef", max_tokens=3, stream=True)
        await served.chat("", max_tokens=3)
        text = (await served.client.get("/metrics")).text
    lines = set(text.splitlines())

    assert 'roundhouse_engine_requests_total{surface="chat",outcome="length"} 2' in lines
    assert 'roundhouse_engine_requests_total{surface="chat",outcome="invalid_request"} 1' in lines
    assert "roundhouse_engine_prompt_tokens_total 12" in lines
    assert "roundhouse_engine_cached_tokens_total 5" in lines
    assert "roundhouse_engine_completion_tokens_total 6" in lines
    assert "roundhouse_engine_ready 1" in lines
    assert "# TYPE roundhouse_engine_requests_total counter" in lines


async def test_a_configured_token_guards_everything_but_health() -> None:
    async with serving(config=ServerConfig(token="sesame")) as served:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic sesame"}):
            for path in ("/v1/models", "/metrics"):
                response = await served.client.get(path, headers=headers)
                assert response.status_code == 401
                assert response.json()["error"]["code"] == "invalid_api_key"
        refused = await served.chat("abc")
        health = await served.client.get("/health")
        right = await served.client.get("/v1/models", headers={"authorization": "Bearer sesame"})

    assert refused.status_code == 401
    assert health.status_code == right.status_code == 200


@pytest.mark.parametrize(("path", "status"), [("/nowhere", 404), ("/v1/chat/completions", 405)])
async def test_unknown_paths_and_methods_answer_in_the_envelope(path: str, status: int) -> None:
    async with serving() as served:
        response = await served.client.get(path)

    assert response.status_code == status
    assert response.json()["error"]["code"] in {"not_found", "method_not_allowed"}
