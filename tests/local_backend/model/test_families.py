"""A tiny model of every family continues as llama.cpp continues it, with the log-probabilities it gives.

``data/families.json`` was written by ``record_families.py``. This is the right value of metadata, tensor
roles and shapes together: a swapped role or a wrong rotation changes every token.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from local_backend.engine.forward import compute, last_logits, prepare
from local_backend.kernels.base import FloatArray, Kernels
from local_backend.kernels.native import NativeKernels
from local_backend.kernels.reference import ReferenceKernels
from local_backend.kv_cache.sequence_cache import SequenceCache
from local_backend.model.loader import open_model
from tests.local_backend.model.family_variants import variants
from tests.local_backend.model.record_families import PARTS_OF_CHARACTERS

FAMILIES: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "families.json").read_text("utf-8"))[
    "families"
]
TIE = 0.02  # logits closer than this may come in either order on another machine
NEAR = 0.005  # llama.cpp keeps 16 bits of keys and values, and of its table of GELU


def log_softmax(logits: FloatArray) -> FloatArray:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


@pytest.mark.parametrize("make", [ReferenceKernels, NativeKernels], ids=["reference", "native"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_tiny_model_continues_as_in_llama_cpp(
    tmp_path: Path, name: str, make: Callable[[], Kernels]
) -> None:
    path = variants()[name].write(tmp_path / "m.gguf")
    recorded = FAMILIES[name]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == recorded["sha256"], (
        "record_families.py must run again"
    )
    model = open_model(path)
    kernels = make()
    context = prepare(model.specification, model.weights, kernels, lambda _: None)

    for record in recorded["records"]:
        cache = SequenceCache(model.specification, 64)
        tokens = record["prompt"]
        for expected, logprob in zip(record["greedy"], record["logprobs"], strict=True):
            logits = last_logits(context, compute(context, tokens, cache, lambda: False))
            assert log_softmax(logits)[expected] == pytest.approx(logprob, abs=NEAR)
            logits[[*model.vocabulary.end_tokens, *PARTS_OF_CHARACTERS]] = -np.inf
            best = int(np.argmax(logits))
            assert best == expected or logits[best] - logits[expected] < TIE
            tokens = [expected]
    kernels.close()


def test_every_variant_is_recorded_and_differs_from_the_others() -> None:
    assert set(FAMILIES) == set(variants())
    answers = [str(recorded["records"]) for recorded in FAMILIES.values()]
    assert len(set(answers)) == len(answers)
