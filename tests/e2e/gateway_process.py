"""A gateway as a process, as a user starts it: real port, real engine, its own data folder.

Used by the end-to-end tests alone; knows nothing of what they ask.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

__all__ = ["GatewayProcess", "running_gateway", "wait_for"]

ROOT = Path(__file__).parents[2]

# What a process needs to run at all; keys of the person who runs the tests stay out.
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def wait_for(condition: object, what: str, seconds: float = 60.0) -> Any:
    """Call ``condition`` until it returns something true, and return that; fail after ``seconds``."""
    assert callable(condition)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {seconds:g} s")


class GatewayProcess:
    """One started gateway; ``base`` is its address, ``log`` what it has written so far."""

    def __init__(self, process: subprocess.Popen[bytes], base: str, log: Path, data: Path) -> None:
        self.process, self.base, self._log, self.data = process, base, log, data

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", errors="replace")

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(self.base + path, timeout=5) as answer:  # noqa: S310
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"{}")
        except (urllib.error.URLError, OSError):
            return 0, {}

    def wait_ready(self, seconds: float = 30.0) -> None:
        wait_for(
            lambda: self.get("/health/ready")[0] == 200 or self._dead(), "the gateway's readiness", seconds
        )

    def wait_engine(self, seconds: float = 60.0) -> None:
        """Wait until the local model can be asked."""
        wait_for(
            lambda: self._candidate().get("state") == "healthy" or self._dead(),
            "the engine's readiness",
            seconds,
        )

    def engine_pids(self) -> list[int]:
        """Return the processes of the engine that this gateway started (Linux: read from /proc)."""
        pids = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            if b"local_backend" in words and parent == self.process.pid:
                pids.append(int(entry.name))
        return pids

    def _candidate(self) -> dict[str, Any]:
        candidates = self.get("/health/dashboard")[1].get("candidates", [])
        return next((one for one in candidates if one["provider"] == "local"), {})

    def _dead(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"the gateway ended with {self.process.returncode}:\n{self.log}")
        return False


@contextmanager
def running_gateway(folder: Path, *arguments: str, **environment: str) -> Iterator[GatewayProcess]:
    """Start a gateway on a free port with its data in ``folder``; stop it, by SIGTERM, in the end."""
    log = folder / "gateway.log"
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    command = [
        sys.executable,
        "-m",
        "router",
        "serve",
        "--port",
        "0",
        "--data-dir",
        str(folder / "data"),
        *arguments,
    ]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**kept, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        ) as process,
    ):
        try:
            base = wait_for(lambda: _announced(process, log), "the banner", 30)
            yield GatewayProcess(process, base, log, folder / "data")
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()


def _announced(process: subprocess.Popen[bytes], log: Path) -> str | None:
    text = log.read_text("utf-8", errors="replace")
    if process.poll() is not None:
        raise AssertionError(f"the gateway ended with {process.returncode}:\n{text}")
    for line in text.splitlines():
        if "is at http" in line:
            return line.rsplit(" ", 1)[1].strip()
    return None


def stream_of(gateway: GatewayProcess, body: dict[str, Any]) -> Iterator[str]:
    """POST ``body`` as a stream; yield the data of each SSE event as it comes."""
    with httpx.stream("POST", gateway.base + "/v1/chat/completions", json=body, timeout=120) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if line.startswith("data: "):
                yield line[6:]
