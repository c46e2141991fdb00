"""Who may judge at all, and the exact bound of a call, with providers in the test's hand."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from router.catalog.catalog import Capabilities, Catalog, Entrypoint, JudgeSettings, Weights
from router.chat.features import TaskKind, read_features
from router.chat.types import ChatRequest
from router.errors import UpstreamStatus, UpstreamUnreachable
from router.judge.lane import Judge
from router.judge.members import KeyTurns, members_of
from router.providers.base import ProviderStatus
from router.providers.offline import Network
from router.routing.verdict import TaskVerdict, VerdictSource
from tests.fakes.clock import LoopClock, VirtualTimeLoop
from tests.fakes.provider import (
    HANG,
    FakeProvider,
    finish,
    make_catalog,
    make_deployment,
    make_request,
    text,
    usage,
)

pytestmark = pytest.mark.anyio

VERDICT = '{"seal": "5ea1", "task": "code"}'
WEIGHTS = Weights(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
GOOD = (text(VERDICT), finish(), usage(prompt=400, completion=30))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualTimeLoop}


def judging(catalog: Catalog, *candidates: str, **fields: Any) -> Catalog:
    return replace(catalog, judge=JudgeSettings(candidates, **fields))


def judge_of(catalog: Catalog, provider: FakeProvider, network: Network | None = None) -> Judge:
    statuses = {name: ProviderStatus(configured=True, ready=True) for name in catalog.providers}
    return Judge(
        catalog,
        dict.fromkeys(catalog.providers, provider),
        statuses=lambda: statuses,
        clock=LoopClock(),
        rng=random.Random(1),  # noqa: S311 - jitter
        network=network,
        make_mark=lambda: "5ea1",
    )


async def named(judge: Judge, request: ChatRequest | None = None) -> TaskVerdict:
    request = request or make_request()
    return await judge.name_task(request, read_features(request))


async def test_the_calls_tokens_and_their_price_are_told() -> None:
    provider = FakeProvider(GOOD)
    judge = judge_of(judging(make_catalog(make_deployment("a", "cloud")), "a"), provider)

    verdict = await named(judge)

    assert (verdict.kind, verdict.source) == (TaskKind.CODE, VerdictSource.JUDGE)
    assert verdict.call is not None
    assert verdict.call.usage is not None
    assert (verdict.call.usage.prompt_tokens, verdict.call.usage.completion_tokens) == (400, 30)
    assert verdict.call.cost_micros == 460
    assert verdict.call.outcome == "success"


async def test_an_answer_without_a_count_is_estimated_and_says_so() -> None:
    provider = FakeProvider((text(VERDICT), finish()))
    judge = judge_of(judging(make_catalog(make_deployment("a", "cloud")), "a"), provider)

    verdict = await named(judge)

    assert verdict.call is not None
    assert verdict.call.usage is not None
    assert verdict.call.usage.estimated
    assert verdict.call.usage.prompt_tokens > 300


@pytest.mark.parametrize("timeout_s", [0.5, 3.0, 7.0])
async def test_a_call_ends_by_the_configured_time(timeout_s: float) -> None:
    provider = FakeProvider((text("{"), HANG))
    catalog = judging(make_catalog(make_deployment("a", "cloud")), "a", timeout_s=timeout_s)

    verdict = await named(judge_of(catalog, provider))

    assert asyncio.get_running_loop().time() == pytest.approx(timeout_s, abs=0.01)
    assert verdict.why == "timed_out"
    assert provider.open_streams == 0
    assert provider.calls[0][1].total_s == timeout_s


async def test_a_local_candidate_never_judges_even_where_a_catalog_names_it() -> None:
    provider = FakeProvider(GOOD)
    catalog = make_catalog(make_deployment("a", "home"), local=("home",))

    verdict = await named(judge_of(judging(catalog, "a"), provider))

    assert (verdict.source, verdict.why) == (VerdictSource.HEURISTIC, "no_judge")
    assert provider.calls == []


async def test_prompts_are_not_shown_to_those_whom_an_entrypoint_forbids() -> None:
    provider = FakeProvider(GOOD)
    tagged = make_deployment("a", "cloud", tags=("may-train-on-prompts",))
    catalog = make_catalog(
        tagged, make_deployment("b", "cloud"), make_deployment("off", "cloud", enabled=False)
    )
    entrypoint = Entrypoint("code", "", ("b",), WEIGHTS, forbidden_tags=("may-train-on-prompts",))
    catalog = replace(judging(catalog, "a", "off", "b"), entrypoints={"code": entrypoint})

    await named(judge_of(catalog, provider))

    assert [call[0] for call in provider.calls] == ["b"]


async def test_a_model_that_reasons_is_asked_to_reason_little() -> None:
    provider = FakeProvider(GOOD)
    thinker = make_deployment("a", "cloud", capabilities=Capabilities(reasoning=True))

    await named(judge_of(judging(make_catalog(thinker), "a"), provider))

    assert provider.requests[0].body["reasoning_effort"] == "low"


class Outage:
    """A network that is found to be gone, until told otherwise."""

    def __init__(self) -> None:
        self.is_gone = False
        self.is_proved = False
        self.comes_back = False

    def heard(self) -> None:
        self.is_proved, self.is_gone = True, False

    def suspect(self) -> None:
        """Nothing to look into."""

    async def is_there(self) -> bool:
        self.is_gone = not self.comes_back
        return self.comes_back


async def test_without_a_network_the_judge_costs_half_a_second_once_and_is_back_with_it() -> None:
    provider, outage = FakeProvider((HANG,), GOOD), Outage()
    judge = judge_of(judging(make_catalog(make_deployment("a", "cloud")), "a"), provider, outage)

    first = await named(judge)
    found_out = asyncio.get_running_loop().time()
    second = await named(judge)
    outage.heard()
    third = await named(judge)

    assert found_out < 0.5
    assert (first.why, second.why) == ("no_network", "no_network")
    assert asyncio.get_running_loop().time() == found_out
    assert third.source is VerdictSource.JUDGE
    assert len(provider.calls) == 2


async def test_a_refused_connection_is_the_candidates_fault_where_the_network_is_there() -> None:
    provider, network = FakeProvider((UpstreamUnreachable("refused"),), GOOD), Outage()
    network.comes_back = True
    catalog = make_catalog(make_deployment("a", "cloud"), make_deployment("b", "cloud"))
    judge = judge_of(judging(catalog, "a", "b"), provider, network)

    first, second = await named(judge), await named(judge)

    assert (first.why, second.source) == ("unreachable", VerdictSource.JUDGE)
    assert [call[0] for call in provider.calls] == ["a", "b"]


async def test_a_refused_key_gives_way_to_the_providers_next_one() -> None:
    refused = UpstreamStatus("bad key", upstream_status=401)
    provider = FakeProvider((refused,), GOOD, (refused,), GOOD)
    catalog = judging(make_catalog(make_deployment("a", "cloud")), "a", cache_s=0.0)
    statuses = {"cloud": ProviderStatus(configured=True, ready=True)}
    judge = Judge(
        catalog,
        {"cloud": provider},
        statuses=lambda: statuses,
        key_labels={"cloud": ["KEY_ONE", "KEY_TWO"]},
        clock=LoopClock(),
        rng=random.Random(1),  # noqa: S311 - jitter
        make_mark=lambda: "5ea1",
    )

    first = await named(judge)
    await asyncio.sleep(40)
    second = await named(judge)

    assert first.why == "bad_credentials"
    assert second.source is VerdictSource.JUDGE
    assert [call[2] for call in provider.calls] == ["KEY_ONE", "KEY_TWO"]


def test_a_key_that_several_calls_saw_refused_is_passed_over_once() -> None:
    turns = KeyTurns({"many": ["a", "b", "c"], "one": ["a"]})

    assert turns.refused("many", "a")
    assert turns.refused("many", "a")
    assert turns.label("many") == "b"
    assert turns.label("one") is None
    assert not turns.refused("one", None)


def test_who_may_not_judge_is_told_with_the_reason() -> None:
    tagged = make_deployment("tagged", "cloud", tags=("may-train-on-prompts",))
    off = make_deployment("off", "cloud", enabled=False)
    catalog = make_catalog(tagged, off, make_deployment("near", "home"), local=("home",))
    entrypoint = Entrypoint("code", "", ("off",), WEIGHTS, forbidden_tags=("may-train-on-prompts",))
    catalog = replace(judging(catalog, "tagged", "off", "near", "gone"), entrypoints={"code": entrypoint})

    assert dict(members_of(catalog).left_out) == {
        "tagged": "an entrypoint forbids may-train-on-prompts",
        "off": "switched off",
        "near": "on this machine",
        "gone": "not in the catalog",
    }


@pytest.mark.parametrize(
    "defect", [RuntimeError("a defect"), asyncio.CancelledError()], ids=["error", "stray"]
)
@pytest.mark.parametrize("step", ["at once", "within its answer"])
async def test_a_defect_in_an_adapter_is_nobodys_end(defect: BaseException, step: str) -> None:
    provider = FakeProvider((defect,) if step == "at once" else (text('{"seal"'), defect))
    judge = judge_of(judging(make_catalog(make_deployment("a", "cloud")), "a"), provider)

    first, second = await named(judge), await named(judge)

    assert (first.why, second.why) == ("gateway_defect", "judge_unavailable")
    assert provider.open_streams == 0
    assert judge.status().lane.in_flight == 0
