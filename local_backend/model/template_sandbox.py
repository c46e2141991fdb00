"""A Jinja sandbox that ends: loops and calls are counted, strings cannot grow without bound.

A template comes with a model file from anywhere. The sandbox keeps it from the process, the counting keeps
it from running for ever. Knows Jinja; not messages, vocabularies or models.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

__all__ = ["StepBudget", "TemplateTooLong", "bounded_template", "render_bounded"]

_MOST_STEPS = 300_000
_STEPS_PER_CALL = 3  # a call takes several times as long as a turn of a loop
_MOST_CHARACTERS = 1 << 23
_MOST_PADDING = 1 << 12
_MOST_POWER = 64
# No template can spell a name that begins with a digit, so none can replace these.
_BUDGET = "0budget"
_COUNTED = "0counted"
_JOINED = "0joined"
_WIDE_FORMAT = re.compile(r"\*|\d{5,}")


class TemplateTooLong(jinja2.TemplateRuntimeError):
    """The template took too many steps or wrote too much."""


class StepBudget:
    """What one rendering may still do."""

    def __init__(self) -> None:
        self._steps_left = _MOST_STEPS

    def spend(self, steps: int = 1) -> None:
        """Count steps. Raises :class:`TemplateTooLong` when there are none left."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise TemplateTooLong(f"more than {_MOST_STEPS} steps")

    def counted(self, items: Iterable[Any]) -> Iterator[Any]:
        """Pass items on, one step each."""
        for item in items:
            self.spend()
            yield item


def bounded_template(source: str) -> jinja2.Template:
    """Compile a template whose loops, calls and joins are counted. Raises ``jinja2.TemplateError``."""
    environment = _BoundedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation], autoescape=False
    )
    environment.filters["tojson"] = _to_json
    environment.filters["indent"] = _bounded_indent
    del environment.filters["center"]
    tree = environment.parse(source)
    for loop in list(tree.find_all(nodes.For)):
        loop.iter = _call(_COUNTED, [cast("nodes.Expr", loop.iter)], loop.lineno)
    return environment.from_string(_count_joins(tree))


def render_bounded(template: jinja2.Template, variables: dict[str, Any]) -> str:
    """Render within the bounds. Raises whatever the template raises, and :class:`TemplateTooLong`."""
    budget = StepBudget()
    hidden = {_BUDGET: budget, _COUNTED: budget.counted, _JOINED: _join}
    pieces: list[str] = []
    size = 0
    for piece in template.generate(variables | hidden):
        size += len(piece)
        if size > _MOST_CHARACTERS:
            raise TemplateTooLong(f"more than {_MOST_CHARACTERS} characters")
        pieces.append(piece)
    return "".join(pieces)


class _BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Counts calls and checks the operators that can make something large out of something small."""

    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def call(self, context: Context, obj: object, /, *args: object, **kwargs: object) -> object:
        budget = context.resolve_or_missing(_BUDGET)
        if isinstance(budget, StepBudget):
            budget.spend(_STEPS_PER_CALL)
        # Jinja wraps str.format; the method it wraps knows its string.
        owner = getattr(getattr(obj, "__wrapped__", obj), "__self__", None)
        if isinstance(owner, str):
            _check_string_call(owner, (*args, *kwargs.values()))
        return _checked(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        if operator == "*" and not _both_numbers(left, right):
            _check_size(_size(left) * _size(right))
        if operator == "+" and not _both_numbers(left, right):
            _check_size(_size(left) + _size(right))
        if operator == "**" and isinstance(right, int | float) and abs(right) > _MOST_POWER:
            raise TemplateTooLong(f"a power above {_MOST_POWER}")
        if operator == "%" and isinstance(left, str) and _WIDE_FORMAT.search(left):
            raise TemplateTooLong("a format with a very large width")
        return super().call_binop(context, operator, left, right)


class _Generation(Extension):
    """``{% generation %}`` marks what an assistant wrote, for training; here it only holds its body."""

    tags = {"generation"}  # noqa: RUF012 - the interface is Jinja's

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _call(name: str, arguments: list[nodes.Expr], line: int) -> nodes.Call:
    return nodes.Call(nodes.Name(name, "load"), arguments, [], None, None, lineno=line)


def _count_joins(tree: nodes.Template) -> nodes.Template:
    """Turn every ``a ~ b`` into a call, so that it is counted and its result measured."""

    def visit(node: nodes.Node) -> None:
        for name, value in list(node.iter_fields()):
            if isinstance(value, list):
                setattr(node, name, [replaced(item) for item in value])
            else:
                setattr(node, name, replaced(value))

    def replaced(value: object) -> object:
        if not isinstance(value, nodes.Node):
            return value
        visit(value)
        return _call(_JOINED, value.nodes, value.lineno) if isinstance(value, nodes.Concat) else value

    visit(tree)
    return tree


def _join(*parts: object) -> str:
    texts = [str(part) for part in parts]
    _check_size(sum(map(len, texts)))
    return "".join(texts)


def _both_numbers(left: object, right: object) -> bool:
    return isinstance(left, int | float) and isinstance(right, int | float)


def _size(value: object) -> int:
    if isinstance(value, int | float):
        return max(0, int(value))
    return len(value) if hasattr(value, "__len__") else 1


def _check_size(size: int) -> None:
    if size > _MOST_CHARACTERS:
        raise TemplateTooLong(f"a value of more than {_MOST_CHARACTERS} characters")


def _checked(value: object) -> object:
    if isinstance(value, str | list | tuple):
        _check_size(len(value))
    return value


def _check_string_call(owner: str, arguments: tuple[Any, ...]) -> None:
    """Refuse paddings and format widths that make a huge string of a short one."""
    if any(isinstance(argument, int) and abs(argument) > _MOST_CHARACTERS for argument in arguments):
        raise TemplateTooLong("a string method with a very large number")
    if "{" in owner and arguments and _WIDE_FORMAT.search(owner):
        raise TemplateTooLong("a format with a very large width")


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as templates expect it: without HTML escapes, in the order given."""
    if indent is not None and indent > _MOST_PADDING:
        raise TemplateTooLong("a very wide indent")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _bounded_indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    if isinstance(width, int) and width > _MOST_PADDING:
        raise TemplateTooLong("a very wide indent")
    return jinja2.filters.do_indent(text, width, first, blank)
