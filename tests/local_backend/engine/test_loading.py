from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from local_backend.config import EngineConfig, KernelPreference
from local_backend.engine import loading
from local_backend.engine.events import Finished, Written
from local_backend.engine.loading import LoadedModel, load_model, public_name
from local_backend.engine.sampling import SamplingParameters
from local_backend.engine.sequence import GenerationRequest
from local_backend.errors import InvalidRequest, TooLargeForMemory, UnsupportedModel
from local_backend.plan.hardware import HardwareProfile
from tests.local_backend.tiny_gguf import ARCHITECTURES, CONTEXT, tiny_model, write_gguf, write_tiny_model

REFERENCE = EngineConfig(kernels=KernelPreference.REFERENCE)


def load(path: Path, config: EngineConfig = REFERENCE) -> LoadedModel:
    return load_model(str(path), config, lambda _: None)


def continue_greedily(model: LoadedModel, prompt: list[int], n: int, name: str = "r") -> list[int]:
    sampling = SamplingParameters(temperature=0.0)
    model.engine.submit(GenerationRequest(name, tuple(prompt), n, sampling, ignore_end=True))
    tokens: list[int] = []
    while not model.engine.idle:
        events = model.engine.step()
        tokens += [event.choice.token for event in events if isinstance(event, Written)]
        model.engine.check_integrity()
    return tokens


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_chunked_prefill_and_a_reused_prefix_change_no_token(tmp_path: Path, architecture: str) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path, architecture)
    whole = load(path)
    chunked = load(path, EngineConfig(kernels=KernelPreference.REFERENCE, prefill_chunk=3))
    prompt = whole.encode_text("hello the world, hello in the world")
    expected = continue_greedily(whole, prompt, 12)

    assert continue_greedily(chunked, prompt, 12) == expected
    assert continue_greedily(whole, prompt, 12) == expected
    longer = [*prompt, *expected[:6]]
    assert continue_greedily(whole, longer, 6) == expected[6:]


def test_a_chat_is_rendered_by_the_files_template(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path)
    model = load(path)
    tokens = model.render_chat([{"role": "user", "content": "hello"}], None, {})
    text = b"".join(model.token_bytes(token) for token in tokens).decode()

    assert text == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


def test_progress_rises_to_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path)
    shares: list[float] = []
    load_model(str(path), REFERENCE, shares.append)

    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_without_template_and_chatml_only_completions_are_refused(tmp_path: Path) -> None:
    model = tiny_model()
    model.metadata.pop("tokenizer.chat_template", None)
    model.metadata["tokenizer.ggml.tokens"] = [
        text.replace("im_start", "begin") for text in model.metadata["tokenizer.ggml.tokens"]
    ]
    path = tmp_path / "plain.gguf"
    write_gguf(path, model.metadata, model.tensors)
    loaded = load(path)

    assert loaded.encode_text("hello")
    with pytest.raises(InvalidRequest, match="chat"):
        loaded.render_chat([{"role": "user", "content": "hello"}], None, {})


def test_the_context_is_the_models_unless_asked_and_never_more(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path)

    assert load(path).engine.context_tokens == CONTEXT
    assert load(path, EngineConfig(context_tokens=32)).engine.context_tokens == 32
    with pytest.raises(InvalidRequest, match="257 tokens is more than the 256"):
        load(path, EngineConfig(context_tokens=CONTEXT + 1))


@pytest.mark.parametrize("context", [None, CONTEXT])
def test_what_does_not_fit_into_memory_is_refused_with_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: int | None
) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path)
    poor = HardwareProfile(
        total_bytes=1 << 29,
        available_bytes=1 << 28,
        limit_bytes=None,
        limit_left_bytes=None,
        swap_bytes=0,
        cores=1,
        machine="test",
        instruction_sets=(),
        memory_source="test",
    )
    monkeypatch.setattr(loading, "probe", lambda: poor)

    with pytest.raises(TooLargeForMemory, match=r"needs .* are there"):
        load(path, EngineConfig(context_tokens=context))


def test_a_model_that_fails_to_load_leaves_its_file_closed(tmp_path: Path) -> None:
    model: Any = tiny_model()
    model.metadata["general.architecture"] = "mystery"
    path = tmp_path / "mystery.gguf"
    write_gguf(path, model.metadata, model.tensors)

    with pytest.raises(UnsupportedModel, match=r"mystery.*llama"):
        load(path)
    path.unlink()


@pytest.mark.parametrize(
    ("model", "name"),
    [("/a/b/Qwen3-30B.Q4_K_M.gguf", "Qwen3-30B.Q4_K_M"), ("builtin:smollm2", "smollm2"), ("x", "x")],
)
def test_the_public_name_is_known_before_loading(model: str, name: str) -> None:
    assert public_name(model) == name


def test_the_end_of_a_sequence_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path)
    engine = load(path).engine
    engine.submit(GenerationRequest("r", (5, 6), 3, SamplingParameters(seed=1), ignore_end=True))
    ends = 0
    while not engine.idle:
        ends += sum(isinstance(event, Finished) for event in engine.step())

    assert ends == 1
