"""``serve`` as a process of its own: what a supervisor sees of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from local_backend.cli import main
from tests.local_backend.tiny_gguf import write_tiny_model

PATIENCE_S = 30
ROOT = Path(__file__).parents[3]


@contextmanager
def process(model: Path, *options: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-m",
        "local_backend",
        "serve",
        str(model),
        "--port",
        "0",
        "--announce",
        *options,
    ]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def line(child: subprocess.Popen[str]) -> dict[str, Any]:
    assert child.stdout is not None
    announced: dict[str, Any] = json.loads(child.stdout.readline())
    return announced


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path)
    return path


def test_it_announces_serves_and_ends_running_answers_with_an_error_on_sigterm(model: Path) -> None:
    with process(model, "--kernels", "reference", ROUNDHOUSE_ENGINE_TOKEN="sesame") as child:
        listening = line(child)
        ready = line(child)
        base = f"http://{listening['host']}:{listening['port']}"
        with httpx.Client(base_url=base, trust_env=False, timeout=PATIENCE_S) as client:
            refused = client.get("/v1/models")
            client.headers["authorization"] = "Bearer sesame"
            body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
            answer = client.post("/v1/chat/completions", json=body)
            endless = {"prompt": [5] * 20, "max_tokens": 230, "stream": True}
            with client.stream("POST", "/v1/completions", json=endless) as response:
                child.send_signal(signal.SIGTERM)
                text = response.read().decode()
        code = child.wait(PATIENCE_S)

    assert listening["event"] == "listening"
    assert ready == {"event": "ready"}
    assert refused.status_code == 401
    assert answer.json()["model"] == "tiny"
    # A fast machine finishes the answer within the grace; no machine leaves it without an ending.
    assert "[DONE]" in text or '"code":"cancelled"' in text
    assert code == 0


def test_it_ends_when_standard_input_ends(model: Path) -> None:
    with process(model, "--exit-with-stdin") as child:
        line(child)
        assert child.stdin is not None
        child.stdin.close()

        assert child.wait(PATIENCE_S) == 0


def test_a_model_that_cannot_be_loaded_is_announced_and_the_server_stays(tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"NOPE" + bytes(60))
    with process(bad) as child:
        port = line(child)["port"]
        failed = line(child)
        health = httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False)

    assert failed["event"] == "failed"
    assert "bad.gguf" in failed["error"]
    assert (health.status_code, health.json()["status"]) == (503, "failed")


def test_a_port_that_is_taken_is_exit_code_1(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code = main(["serve", str(model), "--port", str(port)])

    assert code == 1
    assert f"port {port}" in capsys.readouterr().err
