"""``docs/configuration.md``, written from the schema: ``python -m router.catalog.documentation [FILE]``.

Everything a field says of itself (type, default, bounds, description) stands in
:mod:`router.catalog.schema` alone; here are only the words around it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from router.catalog.schema import (
    CandidateSpec,
    CapabilityName,
    DefaultsSpec,
    EngineSpec,
    EntrypointSpec,
    EntrypointsSpec,
    JudgeSpec,
    LimitsSpec,
    PriceSpec,
    ProvidersFile,
    ProviderSpec,
    TaskFitSpec,
    WeightsSpec,
)

__all__ = ["EXAMPLE", "configuration_page", "main"]

EXAMPLE: Final = """\
judge:
  candidates: [groq/gpt-oss-20b]

entrypoints:
  auto: {description: The judge names the task}
  chat: {description: Conversation, candidates: [groq/gpt-oss-20b, local/smollm2]}
  code: {description: Code, candidates: [groq/gpt-oss-20b, local/smollm2]}
  build: {description: Agents, candidates: [groq/gpt-oss-20b, local/smollm2]}
  long: {description: Long documents, candidates: [groq/gpt-oss-20b, local/smollm2]}

providers:
  local:
    kind: engine
    engine: {model: "builtin:smollm2"}
  groq:
    kind: openai
    base_url: https://api.groq.com/openai/v1
    key_env: GROQ_API_KEY
    defaults: {expected_ttft_s: 0.3, expected_tokens_per_s: 450}

candidates:
  - id: local/smollm2
    provider: local
    model: smollm2-135m-instruct
    context_tokens: 8192
    max_output_tokens: 4096
    price: {free: true}
    task_fit: {chat: 0.06, code: 0.03, build: 0.01, long: 0.02}
  - id: groq/gpt-oss-20b
    provider: groq
    model: openai/gpt-oss-20b
    context_tokens: 131072
    max_output_tokens: 65536
    price: {input: 0.075, output: 0.30}
    capabilities: [tools, json_schema, reasoning]
    task_fit: {chat: 0.66, code: 0.62, build: 0.58, long: 0.35}
"""

_INTRODUCTION: Final = """\
# Configuration: providers.yaml

<!-- Written by `python -m router.catalog.documentation docs/configuration.md` from schema.py -->

One file says who can answer, who is asked first, and what it costs. `roundhouse check` reads it and reports
every problem at once, each with file, line and column and what to do; `roundhouse check --schema` prints its
JSON Schema for editors.

- **Keys never stand in the file.** `key_env` names the environment variable that holds the key. A provider
  whose variable is empty is *unconfigured*: shown, never tried. Anything in the file that looks like a key
  (comments too) is refused, and never repeated in a message.
- **Nothing is guessed.** An unknown field, a name that refers to nothing, a number in quotes, a price of 0
  without `free: true`, a duplicate key or id: all are errors. Numbers may be grouped (`1_000_000`).
- **YAML** is version 1.2: `yes`, `no`, `on` and `off` are text. Anchors, aliases and `<<` merges work. Not
  more than 1 MiB, 24 levels and 50,000 values.
- **Version.** The first 12 hex digits of the SHA-256 of the file's bytes; every recorded request carries it.

## A small file that works
"""

_SECTIONS: Final[tuple[tuple[str, type[BaseModel]], ...]] = (
    ("The file", ProvidersFile),
    ("`limits`", LimitsSpec),
    ("`judge`", JudgeSpec),
    ("`entrypoints`", EntrypointsSpec),
    ("`entrypoints.NAME`", EntrypointSpec),
    ("`entrypoints.NAME.weights`", WeightsSpec),
    ("`providers.NAME`", ProviderSpec),
    ("`providers.NAME.engine`", EngineSpec),
    ("`providers.NAME.defaults`", DefaultsSpec),
    ("`candidates[]`", CandidateSpec),
    ("`candidates[].price`", PriceSpec),
    ("`candidates[].task_fit`", TaskFitSpec),
)
_BOUNDS: Final = (
    ("exclusiveMinimum", "> {:,}"),
    ("minimum", "≥ {:,}"),
    ("maximum", "≤ {:,}"),
    ("maxLength", "at most {:,} characters"),
)


def configuration_page() -> str:
    """Return the whole page as Markdown."""
    parts = [_INTRODUCTION, f"```yaml\n{EXAMPLE}```\n"]
    parts += [_section(title, model) for title, model in _SECTIONS]
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Write the page into the file named, or to the standard output."""
    if arguments:
        Path(arguments[0]).write_text(configuration_page(), encoding="utf-8")
    else:
        sys.stdout.write(configuration_page())
    return 0


def _section(title: str, model: type[BaseModel]) -> str:
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})
    required = set(schema.get("required", ()))
    rows = [f"## {title}", "", (model.__doc__ or "").strip().replace("``", "`"), ""]
    rows += ["| field | type | default | what it is |", "|---|---|---|---|"]
    for name, field in schema.get("properties", {}).items():
        default = "**required**" if name in required else _default(field)
        rows.append(
            f"| `{name}` | {_type(field, definitions)} | {default} | {field.get('description', '')} |"
        )
    return "\n".join(rows) + "\n"


def _default(field: dict[str, Any]) -> str:
    if field.get("default") is None:
        return "none"
    return f"`{json.dumps(field['default'])}`"


def _type(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[-1]
        target = definitions.get(name, {})
        return _type(target, definitions) if "enum" in target else "map, see below"
    if "anyOf" in field:
        kinds = [_type(kind, definitions) for kind in field["anyOf"] if kind.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in field:
        values = [str(value) for value in field["enum"]]
        return "a capability" if values == list(CapabilityName) else " · ".join(f"`{one}`" for one in values)
    kind = field.get("type")
    if kind == "array":
        return f"list of {_type(field.get('items', {}), definitions)}"
    if kind == "object":
        return f"map of {_type(field.get('additionalProperties', {}), definitions)}"
    word = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true/false"}
    bounds = [text.format(field[name]) for name, text in _BOUNDS if name in field]
    return ", ".join([word.get(str(kind), "map, see below"), *bounds])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
