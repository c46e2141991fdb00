"""What needs two places of providers.yaml to be judged: names that refer to each other, the judge, sizes.

Takes what the schema let through (single blocks may be missing because they were wrong) and reports
every problem it can still see. Knows no YAML and no files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from router.catalog.catalog import ProviderKind
from router.catalog.problems import ProblemList, did_you_mean, quoted
from router.catalog.schema import CandidateSpec, EntrypointSpec, JudgeSpec, ProviderSpec

__all__ = ["ENTRYPOINT_NAMES", "JUDGED_ENTRYPOINT", "Blocks", "check", "entrypoint_candidates", "is_local"]

ENTRYPOINT_NAMES: Final = ("auto", "chat", "code", "build", "long")
JUDGED_ENTRYPOINT: Final = "auto"

# What a machine calls itself, and what a container calls the machine that it runs on.
_OWN_NAMES: Final = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "host.docker.internal"})
# Short forms that resolvers take for an address of IPv4, and the library does not.
_SHORT_LOOPBACK: Final = re.compile(r"127(?:\.\d+){1,2}|0")
_CREDENTIAL_HEADERS: Final = ("authorization", "key", "token", "secret", "cookie")


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks that passed the schema; the sets of names also hold those of blocks that did not.

    ``candidates`` maps the position in the file's list to the block.
    """

    providers: Mapping[str, ProviderSpec]
    candidates: Mapping[int, CandidateSpec]
    entrypoints: Mapping[str, EntrypointSpec]
    judge: JudgeSpec | None
    provider_names: frozenset[str]
    candidate_ids: Mapping[str, int]


def check(blocks: Blocks, problems: ProblemList) -> None:
    """Report every contradiction between blocks."""
    _check_providers(blocks, problems)
    _check_candidates(blocks, problems)
    _check_entrypoints(blocks, problems)
    _check_judge(blocks, problems)


def is_local(provider: ProviderSpec) -> bool:
    """Whether the provider runs on this machine: as it says, else by its kind and address."""
    if provider.kind is ProviderKind.ENGINE:
        return True
    if provider.local is not None:
        return provider.local
    host = urlsplit(provider.base_url).hostname if provider.base_url else None
    return host is not None and _is_this_machine(host)


def _is_this_machine(host: str) -> bool:
    name = host.rstrip(".").lower()
    if name in _OWN_NAMES or name.endswith(".localhost") or _SHORT_LOOPBACK.fullmatch(name):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_unspecified


def entrypoint_candidates(name: str, entrypoints: Mapping[str, EntrypointSpec]) -> tuple[str, ...]:
    """Candidate ids of one entrypoint; the judged one without a list has those of all others, in order."""
    spec = entrypoints.get(name)
    if spec is None:
        return ()
    if spec.candidates is None and name == JUDGED_ENTRYPOINT:
        others = [entrypoints[other] for other in ENTRYPOINT_NAMES if other in entrypoints and other != name]
        return tuple(dict.fromkeys(one for other in others for one in other.candidates or ()))
    return tuple(spec.candidates or ())


def _check_providers(blocks: Blocks, problems: ProblemList) -> None:
    for name, provider in blocks.providers.items():
        if provider.kind is ProviderKind.ENGINE and provider.local is False:
            problems.add(
                ("providers", name, "local"),
                "an engine runs on this machine and is always local",
                "leave local out; the judge needs a cloud candidate",
            )
        for header in provider.headers or {}:
            if any(word in header.lower() for word in _CREDENTIAL_HEADERS):
                problems.add(
                    ("providers", name, "headers", header),
                    "credentials do not belong in the file",
                    "name the environment variable in key_env; the key is sent from there",
                    key=True,
                )


def _check_candidates(blocks: Blocks, problems: ProblemList) -> None:
    for position, candidate in blocks.candidates.items():
        path = ("candidates", position)
        first = blocks.candidate_ids.get(candidate.id, position)
        if first != position:
            line = problems.line_of(("candidates", first, "id"))
            problems.add(
                (*path, "id"),
                f"{quoted(candidate.id)} stands twice (first in line {line})",
                "give it another id",
            )
        if candidate.id in ENTRYPOINT_NAMES:
            problems.add(
                (*path, "id"),
                f"{quoted(candidate.id)} is also an entrypoint's name",
                f"write provider/name, for example {quoted(f'{candidate.provider}/{candidate.id}')}",
            )
        if candidate.provider not in blocks.provider_names:
            problems.add(
                (*path, "provider"),
                f"there is no provider {quoted(candidate.provider)}",
                did_you_mean(candidate.provider, blocks.provider_names),
            )
        _check_sizes(position, candidate, blocks, problems)


def _check_sizes(position: int, candidate: CandidateSpec, blocks: Blocks, problems: ProblemList) -> None:
    path = ("candidates", position)
    if candidate.max_output_tokens > candidate.context_tokens:
        problems.add(
            (*path, "max_output_tokens"),
            f"{candidate.max_output_tokens} is more than the whole window of {candidate.context_tokens}",
            "the window holds prompt and answer together; check both numbers",
        )
    prompt = candidate.max_prompt_tokens
    if prompt is not None and prompt > candidate.context_tokens:
        problems.add(
            (*path, "max_prompt_tokens"),
            f"{prompt} is more than the whole window of {candidate.context_tokens}",
            "lower it, or leave it out: the window bounds the prompt anyway",
        )
    provider = blocks.providers.get(candidate.provider)
    engine = provider.engine if provider is not None else None
    if engine is not None and candidate.context_tokens > engine.context_tokens:
        problems.add(
            (*path, "context_tokens"),
            f"is more than the engine of provider {quoted(candidate.provider)} is started with",
            f"write at most {engine.context_tokens}, or raise the engine's context_tokens",
        )


def _check_entrypoints(blocks: Blocks, problems: ProblemList) -> None:
    for name, spec in blocks.entrypoints.items():
        path = ("entrypoints", name)
        if spec.candidates is None and name != JUDGED_ENTRYPOINT:
            problems.add(path, "has no candidates", "list candidate ids under candidates")
        elif spec.candidates is not None and not spec.candidates:
            problems.add((*path, "candidates"), "has no candidates", "list at least one candidate id")
        for number, candidate_id in enumerate(spec.candidates or ()):
            _check_entry(blocks, name, number, candidate_id, problems)


def _check_entry(blocks: Blocks, name: str, number: int, candidate_id: str, problems: ProblemList) -> None:
    path = ("entrypoints", name, "candidates", number)
    spec = blocks.entrypoints[name]
    if candidate_id in (spec.candidates or [])[:number]:
        problems.add(path, f"{quoted(candidate_id)} is listed twice", "remove one")
        return
    position = blocks.candidate_ids.get(candidate_id)
    if position is None:
        problems.add(
            path,
            f"there is no candidate {quoted(candidate_id)}",
            did_you_mean(candidate_id, blocks.candidate_ids),
        )
        return
    candidate = blocks.candidates.get(position)
    if candidate is None or candidate.context_tokens >= spec.minimum_context_tokens:
        return
    problems.add(
        path,
        f"{quoted(candidate_id)} has a window of {candidate.context_tokens} tokens, and this entrypoint "
        f"takes none below {spec.minimum_context_tokens}",
        "remove it here, or lower minimum_context_tokens",
    )


def _check_judge(blocks: Blocks, problems: ProblemList) -> None:
    if blocks.judge is None:
        return
    known = {*blocks.candidate_ids, *ENTRYPOINT_NAMES}
    for number, name in enumerate(blocks.judge.candidates):
        path = ("judge", "candidates", number)
        if name not in known:
            problems.add(path, f"there is no candidate {quoted(name)}", did_you_mean(name, sorted(known)))
            continue
        members = entrypoint_candidates(name, blocks.entrypoints) if name in ENTRYPOINT_NAMES else (name,)
        for member in members:
            position = blocks.candidate_ids.get(member)
            candidate = blocks.candidates.get(position) if position is not None else None
            provider = blocks.providers.get(candidate.provider) if candidate is not None else None
            if provider is not None and is_local(provider):
                through = f" (through entrypoint {quoted(name)})" if member != name else ""
                problems.add(
                    path,
                    f"the judge may not run on a local provider: {quoted(member)}{through}",
                    "the judge must not compete for the local slot; name a fast cloud candidate instead",
                )
