"""The README's promise, as a user would see it: start, ask, be answered by the real model."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.gateway_process import GatewayProcess, running_gateway, stream_of, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.usefixtures("real_model")]

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def _text(frames: list[str]) -> str:
    chunks = [json.loads(frame) for frame in frames if frame != "[DONE]"]
    return "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk["choices"])


def test_the_real_model_answers_a_stream_and_a_plain_request_alike(gateway: GatewayProcess) -> None:
    body: dict[str, Any] = {"model": "chat", "messages": QUESTION, "temperature": 0, "max_tokens": 32}

    plain = httpx.post(gateway.base + "/v1/chat/completions", json=body, timeout=120)
    frames = list(stream_of(gateway, {**body, "stream": True}))

    answer = plain.json()
    assert plain.status_code == 200
    assert "Paris" in answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] in {"stop", "length"}
    assert answer["usage"]["prompt_tokens"] > 10
    assert (
        answer["usage"]["total_tokens"]
        == answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"]
    )
    assert frames[-1] == "[DONE]"
    assert len(frames) > 5
    assert _text(frames) == answer["choices"][0]["message"]["content"]


@pytest.mark.parametrize("model", ["auto", "chat", "code", "build", "long"])
def test_without_any_key_the_local_model_answers_every_entrypoint(
    gateway: GatewayProcess, model: str
) -> None:
    started = time.monotonic()

    answer = httpx.post(
        gateway.base + "/v1/chat/completions",
        json={"model": model, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4},
        timeout=120,
    )

    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"]
    assert answer.headers["x-roundhouse-candidate"].startswith("local/")
    assert answer.headers["x-roundhouse-attempts"] == "1"
    assert answer.headers["x-roundhouse-request-id"]
    assert time.monotonic() - started < 30


def test_every_request_leaves_one_row(gateway: GatewayProcess) -> None:
    answer = httpx.post(
        gateway.base + "/v1/chat/completions",
        json={"model": "chat", "messages": QUESTION, "max_tokens": 3},
        timeout=60,
    )
    request_id = answer.headers["x-roundhouse-request-id"]

    (path,) = gateway.data.glob("*.sqlite3")

    def row() -> Any:
        with sqlite3.connect(path) as database:
            database.row_factory = sqlite3.Row
            return database.execute("select * from requests where request_id = ?", (request_id,)).fetchone()

    found = dict(wait_for(row, "the row", 10))
    assert found["requested_model"] == "chat"
    assert found["status"] == 200
    assert found["deployment_id"] == answer.headers["x-roundhouse-candidate"]
    assert found["cost_micros"] == 0


def test_a_killed_engine_ends_the_stream_with_an_error_and_comes_back(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway:
        gateway.wait_ready()
        gateway.wait_engine()
        (before,) = gateway.engine_pids()
        body = {
            "model": "chat",
            "stream": True,
            "max_tokens": 2000,
            "messages": [{"role": "user", "content": "Write a very long story about a river."}],
        }

        frames: list[str] = []
        for frame in stream_of(gateway, body):
            frames.append(frame)
            if len(frames) == 5:
                os.kill(before, signal.SIGKILL)

        last = json.loads(frames[-1])
        assert last["error"]["code"] == "stream_interrupted"
        assert last["error"]["message"]
        assert "[DONE]" not in frames

        wait_for(lambda: gateway.engine_pids() not in ([], [before]), "the engine's return", 30)
        gateway.wait_engine()
        again = httpx.post(
            gateway.base + "/v1/chat/completions",
            json={"model": "chat", "messages": QUESTION, "max_tokens": 4},
            timeout=60,
        )
        assert again.status_code == 200, again.text


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return state == "Z"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_engine_outlives_its_gateway(tmp_path: Path, how: signal.Signals) -> None:
    with running_gateway(tmp_path) as gateway:
        gateway.wait_ready()
        (engine,) = wait_for(gateway.engine_pids, "the engine's start", 20)

        gateway.process.send_signal(how)
        gateway.process.wait(20)

        wait_for(lambda: _gone(engine), "the engine's end", 10)


def test_the_gateway_is_ready_within_three_seconds_while_the_engine_still_loads(tmp_path: Path) -> None:
    started = time.monotonic()
    with running_gateway(tmp_path) as gateway:
        gateway.wait_ready(10)
        # Twice the promise: other tests may be using the same two cores. docs/log.md has the measured figure.
        assert time.monotonic() - started < 6

        assert gateway.get("/health/live")[0] == 200
