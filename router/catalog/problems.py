"""What pydantic found → problems that a person can act on: file, line, column, field, fix.

Knows the schema only by walking it (for "did you mean"). Never repeats a value from the file, except
short names, and those without anything that looks like a key.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from router.catalog.catalog import ProviderKind
from router.catalog.schema import CapabilityName, ProvidersFile
from router.catalog.secret_scan import without_secrets
from router.catalog.yaml_source import Located, locate
from router.errors import ConfigurationProblem, SourcePosition

__all__ = ["Path", "ProblemList", "did_you_mean", "quoted", "schema_problems", "written"]

Path = tuple[str | int, ...]

_LONGEST_NAME: Final = 60


class ProblemList:
    """Collects problems of one file; knows where each path stands."""

    def __init__(self, file: str, root: Located) -> None:
        self._file = file
        self._root = root
        self.items: list[ConfigurationProblem] = []

    def add(self, path: Path, message: str, fix: str, *, key: bool = False) -> None:
        """Note a problem at ``path`` (at its key's place where ``key``); the path opens the message."""
        line, column = locate(self._root, path, key=key)
        text = f"{written(path)}: {message}" if path else message
        self.items.append(
            ConfigurationProblem(
                without_secrets(text), SourcePosition(self._file, line, column), without_secrets(fix)
            )
        )

    def line_of(self, path: Path) -> int:
        """Line of the value at ``path``."""
        return locate(self._root, path)[0]


def written(path: Path) -> str:
    """Return the path as people write it: ``candidates[3].price.input``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def quoted(name: object) -> str:
    """Return a name from the file fit to be shown: quoted, short, without keys."""
    text = without_secrets(str(name))
    return f"'{text[:_LONGEST_NAME]}…'" if len(text) > _LONGEST_NAME else f"'{text}'"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?``, or the list of what is known where nothing is near."""
    choices = list(known)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    if near:
        return f"did you mean {quoted(near[0])}?"
    shown = ", ".join(choices[:12]) + (", …" if len(choices) > 12 else "")  # noqa: PLR2004 - fits one line
    return f"known: {shown}" if choices else "none is known"


def schema_problems(error: ValidationError, problems: ProblemList) -> None:
    """Translate every finding of one validation."""
    for detail in error.errors(include_url=False, include_input=True):
        path: Path = detail["loc"]
        if detail["type"] == "extra_forbidden":
            fields = _fields_at(path[:-1])
            problems.add(
                path,
                "there is no such field",
                did_you_mean(str(path[-1]), fields) + " (or remove it)",
                key=True,
            )
            continue
        message, fix = _wording(detail)
        if detail["type"] == "missing":
            problems.add(path[:-1], f"{quoted(path[-1])} is missing", fix)
        elif path and path[-1] == "[key]":
            problems.add(path[:-1], message, fix, key=True)
        else:
            problems.add(path, message, fix)


def _wording(detail: ErrorDetails) -> tuple[str, str]:
    kind = detail["type"]
    context: dict[str, Any] = detail.get("ctx", {})
    table: dict[str, Callable[[], tuple[str, str]]] = {
        "missing": lambda: ("is missing", "add it"),
        "int_type": lambda: (
            f"should be a whole number, not {_kind_of(detail)}",
            "write digits, without quotes",
        ),
        "int_from_float": lambda: ("should be a whole number", "remove the fraction"),
        "float_type": lambda: (
            f"should be a number, not {_kind_of(detail)}",
            "write a number, without quotes",
        ),
        "string_type": lambda: (f"should be text, not {_kind_of(detail)}", "put it in quotes"),
        "bool_type": lambda: (f"should be true or false, not {_kind_of(detail)}", "write true or false"),
        "list_type": lambda: (
            f"should be a list, not {_kind_of(detail)}",
            "write [a, b] or one '- a' per line",
        ),
        "dict_type": lambda: (
            f"should be a map, not {_kind_of(detail)}",
            "write 'name: value' lines below it",
        ),
        "model_type": lambda: (
            f"should be a map, not {_kind_of(detail)}",
            "write 'name: value' lines below it",
        ),
        "model_attributes_type": lambda: (
            f"should be a map, not {_kind_of(detail)}",
            "write 'name: value' lines",
        ),
        "finite_number": lambda: ("should be a finite number", "write an ordinary number"),
        "greater_than": lambda: (f"should be more than {context['gt']:g}", "raise it"),
        "greater_than_equal": lambda: (f"should be at least {context['ge']:g}", "raise it"),
        "less_than_equal": lambda: (f"should be at most {context['le']:g}", "lower it (check the unit)"),
        "too_short": lambda: ("should not be empty", "list at least one"),
        "string_too_short": lambda: ("should not be empty", "write it out"),
        "string_too_long": lambda: (f"is longer than {context['max_length']} characters", "shorten it"),
        "string_pattern_mismatch": lambda: _pattern(detail),
    }
    if kind in table:
        return table[kind]()
    if kind in {"is_instance_of", "enum"}:
        values = [str(value) for value in _enum_values(detail)]
        value = detail["input"]
        near = did_you_mean(value, values) if isinstance(value, str) else f"known: {', '.join(values)}"
        return f"{quoted(value)} is not known", near
    return detail["msg"], _custom_fix(kind)


def _custom_fix(kind: str) -> str:
    return {
        "url": "write the provider's base URL, for example https://api.example.com/v1",
        "price": "see the provider's price page; prices are USD per million tokens",
        "kind": "keep only the fields of this kind",
    }.get(kind, "see docs/configuration.md for this field")


def _pattern(detail: ErrorDetails) -> tuple[str, str]:
    if "key_env" in detail["loc"]:
        return (
            "should be the name of an environment variable (A-Z, 0-9, _)",
            "write the name, for example OPENAI_API_KEY, and put the key itself into the environment",
        )
    if "tags" in detail["loc"]:
        return "should be a lower-case word with hyphens", "for example free-pool"
    return "is not a valid name", "use letters, digits and . _ : / @ + -, starting with a letter or digit"


def _kind_of(detail: ErrorDetails) -> str:
    value = detail["input"]
    names = {
        bool: "true/false",
        int: "a number",
        float: "a number",
        str: "text",
        dict: "a map",
        list: "a list",
    }
    return "empty" if value is None else names.get(type(value), "something else")


def _enum_values(detail: ErrorDetails) -> Iterable[str]:
    return list(CapabilityName) if "capabilities" in detail["loc"] else list(ProviderKind)


def _fields_at(path: Path) -> list[str]:
    """Names of the fields that the block at ``path`` may have; empty where the schema has no block there."""
    annotation: Any = ProvidersFile
    for step in path:
        inner = _without_wrapping(annotation)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            field = inner.model_fields.get(str(step))
            annotation = field.annotation if field is not None else None
        else:
            arguments = get_args(inner)
            annotation = arguments[-1] if arguments else None
    inner = _without_wrapping(annotation)
    return list(inner.model_fields) if isinstance(inner, type) and issubclass(inner, BaseModel) else []


def _without_wrapping(annotation: Any) -> Any:  # noqa: ANN401 - type expressions have no common static type
    """Return the type inside ``Annotated[…]`` and ``… | None``."""
    while True:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            annotation = arguments[0]
        elif origin in {Union, UnionType}:
            annotation = next(argument for argument in arguments if argument is not NoneType)
        else:
            return annotation
