"""providers.yaml, as a file or as bytes → :class:`~router.catalog.catalog.Catalog`, or every problem in it.

One validator for start, command line, API and page. Knows no environment: whether a key is set is not
its business.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from router.catalog.build import build_catalog
from router.catalog.catalog import Catalog
from router.catalog.problems import ProblemList, schema_problems
from router.catalog.schema import CandidateSpec, EntrypointSpec, JudgeSpec, ProvidersFile, ProviderSpec
from router.catalog.secret_scan import find_secrets, without_secrets
from router.catalog.semantics import Blocks, check
from router.catalog.yaml_source import MAXIMUM_BYTES, Located, plain, read_yaml
from router.errors import ConfigurationError, ConfigurationProblem, SourcePosition

__all__ = ["catalog_version", "load_catalog", "parse_catalog"]

_VERSION_LENGTH: Final = 12

_Block = TypeVar("_Block", bound=BaseModel)
_Key = TypeVar("_Key")


def load_catalog(path: Path) -> Catalog:
    """Read ``path`` and return its catalog; relative paths inside are meant relative to it.

    Raises
    ------
    ConfigurationError
        With every problem found, each with file, line and column where it has one.

    """
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MAXIMUM_BYTES else b" " * (MAXIMUM_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        _fail(str(path), f"cannot be read: {reason}", "name another file, or create this one")
    return parse_catalog(data, str(path), directory=path.absolute().parent)


def parse_catalog(data: bytes, file: str = "providers.yaml", *, directory: Path | None = None) -> Catalog:
    """Return the catalog that ``data`` describes. ``file`` is what problems call it.

    Raises
    ------
    ConfigurationError
        With every problem found, in the order of the file.

    """
    text = _decoded(data, file)
    problems = [
        ConfigurationProblem(
            "a key stands in this file",
            SourcePosition(file, line, column),
            "remove it (and revoke it where the file was shared), name its environment variable in key_env",
        )
        for line, column in find_secrets(text)
    ]
    root, syntax = read_yaml(text, file)
    problems += [_redacted(problem) for problem in syntax]
    if root is None or not isinstance(root.value, dict):
        if not syntax:
            problems.append(_not_a_map(root, file))
        raise ConfigurationError(_in_order(problems))
    collected = ProblemList(file, root)
    parsed = _parsed(root, collected)
    problems += collected.items
    if problems or parsed is None:
        raise ConfigurationError(_in_order(problems))
    return build_catalog(parsed, catalog_version(data), directory)


def catalog_version(data: bytes) -> str:
    """Return the version of a file with these bytes: the first 12 hex digits of their SHA-256."""
    return hashlib.sha256(data).hexdigest()[:_VERSION_LENGTH]


def _fail(file: str, message: str, fix: str, line: int | None = None, column: int | None = None) -> NoReturn:
    raise ConfigurationError((ConfigurationProblem(message, SourcePosition(file, line, column), fix),))


def _decoded(data: bytes, file: str) -> str:
    if len(data) > MAXIMUM_BYTES:
        _fail(file, f"is larger than {MAXIMUM_BYTES} bytes", "this is no providers.yaml, or it needs pruning")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        _fail(file, "is not UTF-8 text", "save the file as UTF-8", line, column)


def _redacted(problem: ConfigurationProblem) -> ConfigurationProblem:
    return ConfigurationProblem(without_secrets(problem.message), problem.position, problem.fix)


def _not_a_map(root: Located | None, file: str) -> ConfigurationProblem:
    if root is None or root.value is None:
        return ConfigurationProblem(
            "is empty", SourcePosition(file), "start from the providers.yaml that came along"
        )
    return ConfigurationProblem(
        "should be a map with providers, candidates and entrypoints",
        SourcePosition(file, root.line, root.column),
        "start from the providers.yaml that came along",
    )


def _in_order(problems: Iterable[ConfigurationProblem]) -> tuple[ConfigurationProblem, ...]:
    unique = dict.fromkeys(problems)
    return tuple(sorted(unique, key=lambda one: (one.position.line or 0, one.position.column or 0)))


def _parsed(root: Located, problems: ProblemList) -> ProvidersFile | None:
    """Validate; where the whole is wrong, check the meaning of those blocks that are right all the same."""
    data = plain(root)
    parsed: ProvidersFile | None = None
    try:
        parsed = ProvidersFile.model_validate(data)
    except ValidationError as error:
        schema_problems(error, problems)
    check(_blocks(data if isinstance(data, dict) else {}), problems)
    return parsed


def _blocks(data: Mapping[str, Any]) -> Blocks:
    providers = _map(data.get("providers"))
    entrypoints = _map(data.get("entrypoints"))
    listed = data.get("candidates")
    candidates = listed if isinstance(listed, list) else []
    identifiers: dict[str, int] = {}
    for position, item in enumerate(candidates):
        if isinstance(item, dict) and isinstance(item.get("id"), str):
            identifiers.setdefault(item["id"], position)
    return Blocks(
        providers=_all_valid(ProviderSpec, providers.items()),
        candidates=_all_valid(CandidateSpec, enumerate(candidates)),
        entrypoints=_all_valid(EntrypointSpec, entrypoints.items()),
        judge=_valid(JudgeSpec, data.get("judge")),
        provider_names=frozenset(providers),
        candidate_ids=identifiers,
    )


def _all_valid(model: type[_Block], items: Iterable[tuple[_Key, Any]]) -> dict[_Key, _Block]:
    found = ((key, _valid(model, item)) for key, item in items)
    return {key: block for key, block in found if block is not None}


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _valid(model: type[_Block], value: object) -> _Block | None:
    try:
        return model.model_validate(value)
    except ValidationError:
        return None
