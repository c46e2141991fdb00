from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from local_backend.cli import build_parser, main
from local_backend.commands import inspect_model
from local_backend.gguf.format import GGMLType
from tests.local_backend.tiny_gguf import ARCHITECTURES, gguf_bytes, tiny_model, write_tiny_model


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path, "qwen3moe")
    return str(path)


def run_json(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, object]:
    assert main(argv) == 0
    result: dict[str, object] = json.loads(capsys.readouterr().out)
    return result


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_generate_prints_token_ids_for_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], architecture: str
) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path, architecture)
    argv = ["generate", str(path), "--tokens", "5,6,7", "--n", "6", "--greedy", "--json", "--ignore-end"]
    first = run_json(capsys, *argv, "--logprobs", "3")
    again = run_json(capsys, *argv)

    assert first["prompt_tokens"] == [5, 6, 7]
    assert isinstance(first["tokens"], list)
    assert len(first["tokens"]) == 6
    assert first["finish_reason"] == "length"
    assert again["tokens"] == first["tokens"]
    assert isinstance(first["logprobs"], list)
    for token, step in zip(first["tokens"], first["logprobs"], strict=True):
        assert step["token"] == step["top"][0]["token"] == token
        assert step["logprob"] == pytest.approx(step["top"][0]["logprob"])
        assert len(step["top"]) == 3
    assert "logprobs" not in again


def test_generate_prints_text_as_it_comes(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", model, "--chat", "hello", "--n", "4", "--seed", "1"]) == 0

    assert capsys.readouterr().out.endswith("\n")


def test_a_seed_makes_generate_repeatable(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["generate", model, "--prompt", "hello", "--n", "8", "--temperature", "3", "--json"]
    first, again = (run_json(capsys, *argv, "--seed", "4") for _ in range(2))

    assert first["tokens"] == again["tokens"]


def test_inspect_and_plan_know_the_model(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_json(capsys, "inspect", model, "--json")["architecture"] == "qwen3moe"
    assert run_json(capsys, "plan", model, "--json", "--context", "64")["context_tokens"] == 64
    assert main(["inspect", model]) == main(["plan", model]) == 0


def test_bench_refuses_rates_from_too_few_tokens(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = run_json(capsys, "bench", model, "--prompt-tokens", "40", "--n", "8", "--runs", "2", "--json")

    assert report["prefill_tok_s"] is None
    assert "40 prompt tokens are too few" in str(report["prefill_refused"])
    assert report["decode_tok_s"] is None
    assert report["n"] == 2
    assert isinstance(report["prefill_s"], list)
    assert len(report["prefill_s"]) == 2
    assert {"peak_rss_bytes", "load_s"} <= report.keys()


def test_bench_states_a_rate_from_enough_tokens(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = run_json(capsys, "bench", model, "--prompt-tokens", "20", "--n", "128", "--json")

    assert isinstance(report["decode_tok_s"], float)
    assert report["decode_refused"] is None
    assert main(["bench", model, "--prompt-tokens", "20", "--n", "4"]) == 0
    assert "no rate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "too short"),
        (b"NOPE" + bytes(60), "magic"),
        (gguf_bytes(tiny_model().metadata, tiny_model().tensors)[:-400], "tensor"),
        (gguf_bytes(tiny_model().metadata | {"general.architecture": "mystery"}), "mystery"),
    ],
)
@pytest.mark.parametrize("command", [["generate", "--prompt", "x"], ["bench"]])
def test_a_bad_file_is_one_line_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, words: str, command: list[str]
) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)

    assert main([command[0], str(path), *command[1:]]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert str(path) in captured.err
    assert words in captured.err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--prompt", "x", "--context", "999999"], "trained for"),
        (["--tokens", "1,999999"], "999999 at position 1"),
        (["--tokens", "5", "--n", "256"], "257"),
        (["--prompt", "x", "--temperature", "-1"], "temperature"),
    ],
)
def test_a_request_that_cannot_be_served_says_why(
    model: str, capsys: pytest.CaptureFixture[str], argv: list[str], words: str
) -> None:
    assert main(["generate", model, *argv]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["generate", "m"],
        ["generate", "m", "--prompt", "x", "--chat", "y"],
        ["generate", "m", "--tokens", "1,x"],
        ["generate", "m", "--prompt", "x", "--n", "0"],
        ["serve", "m", "--kernels", "fast"],
        ["serve", "m", "--activations", "12"],
        ["bench"],
    ],
)
def test_wrong_usage_is_exit_code_2_with_a_hint(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(argv)

    assert stopped.value.code == 2
    assert "usage: roundhouse engine" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["inspect", "plan", "generate", "serve", "bench"])
def test_every_command_explains_itself_with_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        build_parser().parse_args([command, "--help"])
    text = capsys.readouterr().out

    assert stopped.value.code == 0
    assert f"roundhouse engine {command}" in text
    assert "examples:" in text


def test_inspect_names_block_types_that_only_the_reference_computes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", "gemma3", GGMLType.Q4_1)
    monkeypatch.setattr(inspect_model, "computes", lambda kind: kind is GGMLType.F32)

    assert main(["inspect", str(path)]) == 0
    assert "yes, but slowly: there are no native kernels for Q4_1" in capsys.readouterr().out
    assert run_json(capsys, "inspect", str(path), "--json")["slow_types"] == ["Q4_1"]


def test_a_header_is_read_without_the_server_and_the_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"NOPE" + bytes(60))
    program = (
        "import sys; from local_backend.cli import main; code = main(['inspect', sys.argv[1]]); "
        "print(code, *({'fastapi', 'uvicorn', 'tokenizers', 'jinja2'} & sys.modules.keys()))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )

    assert done.stdout == "1\n"
    assert "not a GGUF file" in done.stderr
