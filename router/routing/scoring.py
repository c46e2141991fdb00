"""How good a candidate is for one request: seven terms on fixed scales.

Pure arithmetic. Every scale is absolute, so that a score says the same whoever else takes part (with
min-max over the candidates a newcomer would reorder the others). Unknown is not zero: what was never
measured takes the deployment's priors from the catalog.

Terms, each in 0..1, more is better:

``health``         the success EWMA, times the ramp of a breaker that has just closed
``task_fit``       the catalog's quality for the kind of work
``context_slack``  1 up to four fifths of the window, then down to 0 at its end
``cost``           logarithmic between a hundredth of a cent and a dollar for the whole request
``expected_time``  wait + penalty + time to first token + tokens / speed; a half at 15 s
``load``           requests in flight; a half at four of them for each slot
``stickiness``     whether it served this conversation before: its prompt cache is warm there
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass

from router.catalog.catalog import Catalog, Deployment, Entrypoint, ProviderKind
from router.chat.features import RequestFeatures, TaskKind
from router.health.averages import prompt_size_bucket
from router.health.snapshot import DeploymentHealth
from router.routing.candidate import Score, ScoreTerm
from router.routing.eligibility import window_of
from router.routing.verdict import TaskNeed

__all__ = ["TERM_NAMES", "Scorer"]

TERM_NAMES = ("health", "task_fit", "context_slack", "cost", "expected_time", "load", "stickiness")

# What an answer is expected to take where the client set no bound, in tokens.
_EXPECTED_OUTPUT = {TaskKind.CHAT: 400, TaskKind.CODE: 900, TaskKind.BUILD: 600, TaskKind.LONG: 800}

# A long answer takes so many times as much, where the judge expects one.
_LONG_ANSWER = 4

_UNKNOWN_FIT = 0.5
# Fit of who cannot reason where the judge finds that it would help: a wish, so nobody is left out for it.
_UNREASONING_FIT = 0.75
_SLACK_FROM = 0.8
_CHEAP_MICROS, _DEAR_MICROS = 100.0, 1_000_000.0
_COST_SCALE = 1.0 / math.log(_DEAR_MICROS / _CHEAP_MICROS)
_HALF_TIME_S = 15.0
_HALF_LOAD = 4.0
_SLOWEST = 0.01
_CACHED_SHARE = 0.8
_CACHE_FULL_TOKENS = 32_000
# Stickiness has no weight of its own in the configuration: a share of the others' sum.
_STICKINESS_SHARE = 0.15

_Values = tuple[float, float, float, float, float, float, float]


@dataclass(slots=True)
class _Estimate:
    """What one candidate is expected to take; only made for explanations."""

    prompt_tokens: int
    output_tokens: int
    cost_micros: float
    ttft_s: float
    tokens_per_s: float
    total_s: float


class Scorer:
    """Scores candidates of one request at one entrypoint; made once per decision."""

    __slots__ = (
        "_catalog",
        "_expected_output",
        "_features",
        "_kind",
        "_previous",
        "_reasoning_history",
        "_total_weight",
        "_wants_reasoning",
        "_weights",
    )

    def __init__(
        self,
        features: RequestFeatures,
        entrypoint: Entrypoint,
        kind: TaskKind,
        catalog: Catalog,
        previous_deployment: str | None = None,
        reasoning_history: bool = False,
        wishes: Container[TaskNeed] = (),
    ) -> None:
        weights = entrypoint.weights
        sticky = weights.total * _STICKINESS_SHARE if previous_deployment is not None else 0.0
        self._weights: _Values = (
            weights.health,
            weights.task_fit,
            weights.context_slack,
            weights.cost,
            weights.expected_time,
            weights.load,
            sticky,
        )
        self._total_weight = sum(self._weights) or 1.0
        self._catalog = catalog
        self._features = features
        self._kind = kind
        self._previous = previous_deployment
        self._reasoning_history = reasoning_history
        self._wants_reasoning = TaskNeed.REASONING in wishes
        expected = _EXPECTED_OUTPUT[kind] * (_LONG_ANSWER if TaskNeed.LONG_ANSWER in wishes else 1)
        wanted = features.wanted_output_tokens
        self._expected_output = expected if wanted is None else min(expected, wanted)

    def score(self, deployment: Deployment, health: DeploymentHealth, prompt_tokens: int) -> Score:
        """Return the score of one candidate; its terms' texts are made only when read."""
        health_, fit, slack, cost, time_, load, stickiness = self._values(deployment, health, prompt_tokens)
        weight = self._weights
        total = (
            health_ * weight[0]
            + fit * weight[1]
            + slack * weight[2]
            + cost * weight[3]
            + time_ * weight[4]
            + load * weight[5]
            + stickiness * weight[6]
        ) / self._total_weight
        return _ScoreOf(total, self, deployment, health, prompt_tokens)

    def _values(self, deployment: Deployment, health: DeploymentHealth, prompt_tokens: int) -> _Values:
        output, longest = self._expected_output, deployment.max_output_tokens
        output = min(output, longest)
        used = (prompt_tokens + output) / window_of(deployment, health)
        sticks = deployment.id == self._previous
        in_flight: float = health.in_flight
        if in_flight:
            in_flight /= self._slots(deployment)
        return (
            health.health * health.ramp,
            self._fit(deployment),
            1.0 if used <= _SLACK_FROM else max(0.0, (1.0 - used) / (1.0 - _SLACK_FROM)),
            self._cost_value(deployment, prompt_tokens, output, sticks),
            _HALF_TIME_S / (_HALF_TIME_S + self._seconds(deployment, health, prompt_tokens, output)),
            _HALF_LOAD / (_HALF_LOAD + in_flight),
            self._stickiness(deployment, prompt_tokens) if sticks else 0.0,
        )

    def _fit(self, deployment: Deployment) -> float:
        fit = deployment.task_fit.get(self._kind, _UNKNOWN_FIT)
        if self._wants_reasoning and not deployment.capabilities.reasoning:
            fit *= _UNREASONING_FIT
        return fit

    def _slots(self, deployment: Deployment) -> float:
        provider = self._catalog.providers.get(deployment.provider)
        if provider is None or provider.kind is not ProviderKind.ENGINE:
            return 1.0
        # One slot serves one sequence: a single request in flight already fills it.
        return (provider.engine.slots if provider.engine is not None else 1) / _HALF_LOAD

    def _cost_micros(self, deployment: Deployment, prompt_tokens: int, output: int, sticks: bool) -> float:
        price = deployment.price
        if price.free:
            return 0.0
        input_price: float = price.input_micros
        cached = price.cached_input_micros
        if sticks and cached is not None and deployment.capabilities.prompt_cache:
            input_price = cached * _CACHED_SHARE + input_price * (1.0 - _CACHED_SHARE)
        return (prompt_tokens * input_price + output * price.output_micros) / 1e6

    def _cost_value(self, deployment: Deployment, prompt_tokens: int, output: int, sticks: bool) -> float:
        cost = self._cost_micros(deployment, prompt_tokens, output, sticks)
        if cost <= _CHEAP_MICROS:
            return 1.0
        value = 1.0 - math.log(cost / _CHEAP_MICROS) * _COST_SCALE
        return max(0.0, value)

    def _ttft(self, deployment: Deployment, health: DeploymentHealth, prompt_tokens: int) -> float:
        by_size = health.ttft_by_size_s
        if by_size:
            bucket = prompt_size_bucket(prompt_tokens)
            known = by_size[bucket] if bucket < len(by_size) else None
            if known is not None:
                return known
        elif health.ttft_s is not None:
            return health.ttft_s
        return deployment.expected_ttft_s

    def _seconds(
        self, deployment: Deployment, health: DeploymentHealth, prompt_tokens: int, output: int
    ) -> float:
        speed = health.tokens_per_s
        if speed is None:
            speed = deployment.expected_tokens_per_s
        first = self._ttft(deployment, health, prompt_tokens)
        return health.expected_wait_s + health.penalty_s + first + output / (speed or _SLOWEST)

    def _stickiness(self, deployment: Deployment, prompt_tokens: int) -> float:
        if self._reasoning_history:
            return 1.0
        if not deployment.capabilities.prompt_cache:
            return 0.5
        return 0.5 + 0.5 * min(1.0, prompt_tokens / _CACHE_FULL_TOKENS)

    def _estimate(self, deployment: Deployment, health: DeploymentHealth, prompt_tokens: int) -> _Estimate:
        output = min(self._expected_output, deployment.max_output_tokens)
        sticks = deployment.id == self._previous
        return _Estimate(
            prompt_tokens=prompt_tokens,
            output_tokens=output,
            cost_micros=self._cost_micros(deployment, prompt_tokens, output, sticks),
            ttft_s=self._ttft(deployment, health, prompt_tokens),
            tokens_per_s=deployment.expected_tokens_per_s
            if health.tokens_per_s is None
            else health.tokens_per_s,
            total_s=self._seconds(deployment, health, prompt_tokens, output),
        )

    def expected_s(self, deployment: Deployment, health: DeploymentHealth, prompt_tokens: int) -> float:
        """Return the seconds to the whole answer that the score counts with."""
        output = min(self._expected_output, deployment.max_output_tokens)
        return self._seconds(deployment, health, prompt_tokens, output)

    def terms(
        self, deployment: Deployment, health: DeploymentHealth, prompt_tokens: int
    ) -> tuple[ScoreTerm, ...]:
        """Return the terms that :meth:`score` adds up, each with what it was made from."""
        values = self._values(deployment, health, prompt_tokens)
        bases = self._bases(deployment, health, self._estimate(deployment, health, prompt_tokens))
        return tuple(
            ScoreTerm(name, value, weight, basis)
            for name, value, weight, basis in zip(TERM_NAMES, values, self._weights, bases, strict=True)
            if name != "stickiness" or self._previous is not None
        )

    def _bases(
        self, deployment: Deployment, health: DeploymentHealth, estimate: _Estimate
    ) -> tuple[str, ...]:
        window = window_of(deployment, health)
        seen = health.successes + health.failures
        ramp = "" if health.ramp >= 1.0 else f", ramping up at {health.ramp:.0%}"
        fit = deployment.task_fit.get(self._kind)
        lacks_reasoning = self._wants_reasoning and not deployment.capabilities.reasoning
        prior = "" if health.tokens_per_s is not None else " (prior)"
        waits = "".join(
            f" + {name} {value:.1f} s"
            for name, value in (("wait", health.expected_wait_s), ("penalty", health.penalty_s))
            if value > 0.0
        )
        return (
            (f"success EWMA {health.health:.2f} of {seen} seen" if seen else "nothing seen yet: the prior")
            + ramp,
            (f"{self._kind} quality {fit:.2f}" if fit is not None else f"no {self._kind} quality: the middle")
            + (", less for not reasoning" if lacks_reasoning else ""),
            f"{estimate.prompt_tokens} + {estimate.output_tokens} of {window} tokens",
            "free" if deployment.price.free else f"about {estimate.cost_micros / 1e6:.6f} USD",
            (
                f"TTFT {estimate.ttft_s:.2f} s + {estimate.output_tokens} tokens at "
                f"{estimate.tokens_per_s:.0f}/s{prior}{waits} = {estimate.total_s:.1f} s"
            ),
            f"{health.in_flight} in flight",
            self._served_before(deployment),
        )

    def _served_before(self, deployment: Deployment) -> str:
        reasoning = ", whose reasoning it carries" if self._reasoning_history else ""
        if deployment.id == self._previous:
            return "served this conversation before" + reasoning
        return "has not served this conversation" + reasoning


class _ScoreOf(Score):
    """One candidate's score, whose terms are made when they are read."""

    __slots__ = ("_deployment", "_health", "_prompt_tokens", "_scorer")

    def __init__(
        self,
        total: float,
        scorer: Scorer,
        deployment: Deployment,
        health: DeploymentHealth,
        prompt_tokens: int,
    ) -> None:
        # The base would add up terms that are not there yet.
        self._total = total
        self._terms = None
        self._scorer = scorer
        self._deployment = deployment
        self._health = health
        self._prompt_tokens = prompt_tokens

    @property
    def expected_s(self) -> float:
        return self._scorer.expected_s(self._deployment, self._health, self._prompt_tokens)

    def _explain(self) -> tuple[ScoreTerm, ...]:
        return self._scorer.terms(self._deployment, self._health, self._prompt_tokens)
