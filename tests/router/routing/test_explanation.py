from __future__ import annotations

import json
import random

from router.health.outcome import OutcomeKind
from router.health.snapshot import DeploymentHealth
from router.routing.candidate import RoutingDecision
from router.routing.decide import decide
from router.routing.explanation import explain, explanation_table
from router.routing.scoring import TERM_NAMES

from .conftest import NOW, catalog, deployment, features, snapshot


def made() -> RoutingDecision:
    everything = catalog(
        deployment("good"), deployment("fine"), deployment("late"), deployment("blind", enabled=False)
    )
    return decide(
        features(needs_tools=True),
        everything.entrypoints["auto"],
        everything,
        snapshot(
            late=DeploymentHealth(
                True, bench_until=NOW + 60, bench_kind=OutcomeKind.RATE_LIMITED, bench_reason="slow down"
            )
        ),
        now=NOW,
        rng=random.Random(2),  # noqa: S311 - breaks ties
        previous_deployment="fine",
    )


def test_everything_a_decision_holds_is_json() -> None:
    told = json.loads(json.dumps(explain(made())))

    assert told["entrypoint"] == "auto"
    assert told["judged_as"] == "chat"
    assert told["features"]["needs"] == ["tools"]
    assert [one["rank"] for one in told["candidates"]] == [1, 2]
    assert tuple(term["name"] for term in told["candidates"][0]["terms"]) == TERM_NAMES
    assert all(term["basis"] for one in told["candidates"] for term in one["terms"])
    by_id = {one["deployment_id"]: one for one in told["exclusions"]}
    assert by_id["late"]["until_text"] == "2027-01-01T00:01:00+00:00"
    assert by_id["late"]["bench_kind"] == "rate_limited"
    assert by_id["blind"]["reason"] == "disabled"


def test_a_table_for_a_person_names_every_candidate_term_and_reason() -> None:
    decision = made()
    table = explanation_table(decision)

    assert "auto, judged as chat: 2 candidates, 2 left out" in table
    assert "until 2027-01-01 00:01:00Z: slow down" in table
    for name in (*TERM_NAMES, "good", "fine", "late", "blind"):
        assert name in table
    assert all(len(line) < 160 for line in table.splitlines())
