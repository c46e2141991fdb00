"""The opencode CLI, from its registry, against the port: one question, one answer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.availability import need
from tests.e2e.gateway_process import GatewayProcess

pytestmark = [pytest.mark.e2e, pytest.mark.client, pytest.mark.model]

ROOT = Path(__file__).parents[3]


@pytest.fixture
def opencode() -> str:
    installed = ROOT / ".bootstrap" / "clients" / "node_modules" / ".bin" / "opencode"
    found = str(installed) if installed.exists() else shutil.which("opencode")
    need("the opencode CLI", found is not None, ".ci/clients installs it (npm package opencode-ai)")
    assert found
    return found


def test_opencode_gets_its_answer_through_the_port(
    gateway: GatewayProcess, opencode: str, tmp_path: Path
) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    config = {
        "$schema": "https://opencode.ai/config.json",
        "provider": {
            "roundhouse": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Roundhouse",
                "options": {"baseURL": gateway.base + "/v1", "apiKey": "none"},
                # The demo model can neither use tools nor hold opencode's own prompt with them in view.
                "models": {"chat": {"tool_call": False, "limit": {"context": 8192, "output": 64}}},
            }
        },
        "model": "roundhouse/chat",
        "small_model": "roundhouse/chat",
        "autoupdate": False,
        "share": "disabled",
        "agent": {"build": {"prompt": "Answer briefly.", "tools": {"*": False}}},
    }
    (project / "opencode.json").write_text(json.dumps(config))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_STATE_HOME": str(home / "state"),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "NO_COLOR": "1",
    }
    command = [opencode, "run", "--model", "roundhouse/chat", "What is the capital of France?"]

    done = subprocess.run(
        command,
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.strip(), done.stderr
    assert "error" not in done.stdout.lower()
