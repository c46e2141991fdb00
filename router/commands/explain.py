"""``roundhouse explain``: where a request would go, and why. Sends nothing to anybody who serves models.

Without ``--url`` it decides by the file and the keys that are set, as if everybody were well; a running
gateway decides with the health it has seen.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from router.catalog.catalog import Catalog
from router.catalog.load import load_catalog
from router.chat.features import read_features
from router.chat.openai_wire import read_chat_request
from router.errors import GatewayError, InvalidRequest
from router.health.snapshot import ProviderCondition
from router.health.tracker import HealthTracker
from router.judge.heuristic import heuristic_verdict
from router.routing.candidate import RoutingDecision
from router.routing.decide import decide
from router.routing.explanation import explain, explanation_table
from router.routing.resolve import resolve
from router.settings import find_configuration, read_gateway_key, read_provider_keys

__all__ = ["run"]

_ANSWER_WITHIN_S = 10.0


def run(options: argparse.Namespace) -> int:
    """Print the decision for the request that the options describe."""
    body = _body(options)
    if options.url:
        sys.stdout.write(_ask(options.url, body, as_json=options.json))
        return 0
    catalog = load_catalog(find_configuration(Path(options.config) if options.config else None))
    decision = _decide(catalog, body)
    if options.json:
        sys.stdout.write(json.dumps(explain(decision), indent=2) + "\n")
    else:
        sys.stdout.write(explanation_table(decision) + "\n")
    return 0


def _body(options: argparse.Namespace) -> bytes:
    """Return the request's body: the file's, or one around the prompt."""
    if options.file and options.prompt:
        raise InvalidRequest("give either a prompt or --file, not both")
    if not options.file:
        prompt = options.prompt if options.prompt is not None else "hello"
        return orjson.dumps(
            {"model": options.model or "auto", "messages": [{"role": "user", "content": prompt}]}
        )
    try:
        text = sys.stdin.buffer.read() if options.file == "-" else Path(options.file).read_bytes()
        value = orjson.loads(text)
    except OSError as error:
        raise InvalidRequest(f"{options.file}: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"{options.file}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from error
    if isinstance(value, dict):
        value["model"] = options.model or value.get("model", "auto")
    return orjson.dumps(value)


def _decide(catalog: Catalog, body: bytes) -> RoutingDecision:
    request = read_chat_request(body)
    keys = read_provider_keys(name for one in catalog.providers.values() for name in one.key_env)
    statuses: dict[str, ProviderCondition] = {}
    for name, entry in catalog.providers.items():
        has_key = not entry.needs_key or any(label in keys for label in entry.key_env)
        detail = "" if has_key else f"no key: set {' or '.join(entry.key_env)}"
        statuses[name] = ProviderCondition(configured=has_key, ready=has_key, detail=detail)
    rng = random.Random()  # noqa: S311 - breaks ties, guards nothing
    now = time.time()
    health = HealthTracker(catalog, rng=rng).snapshot(now, statuses)
    entrypoint = resolve(request.model, catalog)
    features = read_features(request)
    verdict = heuristic_verdict(request, features) if entrypoint.judged else None
    return decide(features, entrypoint, catalog, health, now=now, rng=rng, verdict=verdict)


def _ask(url: str, body: bytes, *, as_json: bool) -> str:
    """Have a running gateway explain."""
    if urlsplit(url).scheme not in {"http", "https"}:
        raise InvalidRequest(f"--url {url}: give an address such as http://127.0.0.1:8080")
    headers = {
        "content-type": "application/json",
        "accept": "application/json" if as_json else "text/plain",
    }
    key = read_gateway_key()
    if key is not None:
        headers["authorization"] = f"Bearer {key.reveal()}"
    address = url.rstrip("/").removesuffix("/v1") + "/admin/explain"
    request = urllib.request.Request(address, body, headers)  # noqa: S310 - the scheme was checked
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_WITHIN_S) as answer:  # noqa: S310 - as above
            text: str = answer.read().decode()
            return text
    except urllib.error.HTTPError as error:
        raise GatewayError(f"{address}: {_message(error.read())}") from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise GatewayError(f"{address}: no gateway answers there ({reason})") from error


def _message(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["error"]["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")
