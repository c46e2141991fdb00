from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from local_backend.engine.sampler import choose, distribution
from local_backend.engine.sampling import SamplingParameters
from local_backend.errors import EngineError

GREEDY = SamplingParameters(temperature=0.0)
PLAIN = SamplingParameters(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)

logits_arrays = arrays.arrays(
    np.float32, st.integers(1, 60), elements=st.floats(-30, 30, width=32, allow_nan=False)
)


def logits(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


def pick(values: NDArray[np.float32], parameters: SamplingParameters, seed: int = 0) -> int:
    return choose(values, parameters, frozenset(), {}, np.random.default_rng(seed)).token


@settings(deadline=None)
@given(logits_arrays)
def test_greedy_takes_the_first_of_the_highest(values: NDArray[np.float32]) -> None:
    highest = max(float(v) for v in values)

    assert pick(values, GREEDY) == [float(v) for v in values].index(highest)


@settings(deadline=None)
@given(
    logits_arrays,
    st.floats(0.05, 5.0),
    st.integers(0, 70),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
)
def test_filters_keep_what_their_definitions_say(
    values: NDArray[np.float32], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    parameters = SamplingParameters(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    ids, probabilities = distribution(values, parameters)

    exact = np.exp((values.astype(np.float64) - values.max()) / temperature)
    order = sorted(range(len(values)), key=lambda i: (-exact[i], i))
    kept = order[: top_k or len(order)]
    total = sum(exact[i] for i in kept)
    if top_p < 1.0:
        before = np.cumsum([exact[i] for i in kept]) - [exact[i] for i in kept]
        kept = [i for rank, i in enumerate(kept) if rank == 0 or before[rank] < top_p * total]
    if min_p > 0.0:
        kept = [i for rank, i in enumerate(kept) if rank == 0 or exact[i] >= min_p * exact[kept[0]]]

    assert probabilities.sum() == pytest.approx(1.0)
    assert set(ids.tolist()) == set(kept)
    expected = {i: exact[i] / sum(exact[k] for k in kept) for i in kept}
    assert dict(zip(ids.tolist(), probabilities.tolist(), strict=True)) == pytest.approx(expected)


@pytest.mark.parametrize("top_p", [0.3, 0.999999])
def test_top_p_over_a_large_vocabulary_equals_the_full_sort(top_p: float) -> None:
    values = np.random.default_rng(1).normal(size=5000).astype(np.float32)
    ids, _ = distribution(values, replace(PLAIN, top_p=top_p))
    weights = np.exp(values.astype(np.float64) - values.max())
    order = np.argsort(-weights, kind="stable")
    before = np.cumsum(weights[order]) - weights[order]

    np.testing.assert_array_equal(ids, order[before < top_p * weights.sum()])


def test_frequencies_follow_the_probabilities() -> None:
    rng = np.random.default_rng(7)
    values = np.log(logits(0.5, 0.3, 0.2))
    drawn = Counter(choose(values, PLAIN, frozenset(), {}, rng).token for _ in range(6000))

    assert [drawn[i] / 6000 for i in range(3)] == pytest.approx([0.5, 0.3, 0.2], abs=0.03)


def test_the_same_seed_draws_the_same_tokens() -> None:
    values = np.random.default_rng(2).normal(size=100).astype(np.float32)

    def run(seed: int) -> list[int]:
        rng = np.random.default_rng(seed)
        return [choose(values, PLAIN, frozenset(), {}, rng).token for _ in range(20)]

    assert run(5) == run(5)
    assert run(5) != run(6)


def test_a_token_of_no_probability_is_never_drawn() -> None:
    values = logits(-2000.0, 0.0, -2000.0)

    assert {pick(values, PLAIN, seed) for seed in range(50)} == {1}


def test_bias_forbids_and_forces() -> None:
    values = logits(1.0, 2.0, 3.0)

    assert pick(values, replace(GREEDY, logit_bias={2: -100.0})) == 1
    assert pick(values, replace(GREEDY, logit_bias={0: 100.0})) == 0


def test_repetition_penalty_lowers_positive_and_negative_logits_of_prompt_and_answer() -> None:
    rng = np.random.default_rng(0)
    parameters = replace(GREEDY, repetition_penalty=2.0)

    assert choose(logits(3.0, 2.0), parameters, frozenset({0}), {}, rng).token == 1
    assert choose(logits(3.0, 2.0), parameters, frozenset(), {0: 1}, rng).token == 1
    assert choose(logits(-1.0, -1.5), parameters, frozenset({0}), {}, rng).token == 1


def test_presence_and_frequency_count_the_answer_only() -> None:
    rng = np.random.default_rng(0)
    presence = replace(GREEDY, presence_penalty=1.5)
    frequency = replace(GREEDY, frequency_penalty=0.5)

    assert choose(logits(3.0, 2.0), presence, frozenset({0}), {}, rng).token == 0
    assert choose(logits(3.0, 2.0), presence, frozenset(), {0: 1}, rng).token == 1
    assert choose(logits(3.0, 2.0), frequency, frozenset(), {0: 1}, rng).token == 0
    assert choose(logits(3.0, 2.0), frequency, frozenset(), {0: 3}, rng).token == 1


def test_logprobs_are_the_models_own_whatever_the_sampling() -> None:
    values = np.log(logits(0.2, 0.5, 0.3))
    parameters = replace(GREEDY, logit_bias={0: 50.0}, top_logprobs=2)

    choice = choose(values, parameters, frozenset(), {}, np.random.default_rng(0))

    assert choice.token == 0
    assert choice.logprob == pytest.approx(np.log(0.2), abs=1e-6)
    assert [t.token for t in choice.top] == [1, 2]
    assert [t.logprob for t in choice.top] == pytest.approx(np.log([0.5, 0.3]), abs=1e-6)


def test_the_logits_are_left_alone() -> None:
    values = logits(1.0, 2.0)
    choose(values, replace(GREEDY, logit_bias={0: 5.0}), frozenset(), {}, np.random.default_rng(0))

    np.testing.assert_array_equal(values, logits(1.0, 2.0))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(EngineError, match="not finite"):
        pick(logits(0.0, bad), GREEDY)
