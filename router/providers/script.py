"""Scripts for a provider that does as it is told: a YAML text → what goes over the wire, byte for byte.

A file holds the script of one provider::

    seed: 7                # of the jitter; default 0
    jitter: 0.2            # every wait is scaled by a factor in 1 - 0.2 .. 1 + 0.2; default 0
    repeat: cycle          # after the last request: `last` (again and again; the default) or `cycle`
    requests:              # the first request gets the first list of steps, and so on
      - [{wait: 0.2}, {answer: "Hello there."}]
      - [{status: {code: 429, headers: {retry-after: 7}, body: {error: {message: slow down}}}}]
    models:                # other scripts for requests to these upstream models, with their own count
      broken: {requests: [[{role: assistant}, reset]]}

``steps: [...]`` is short for ``requests`` with one entry. The steps are described in
``docs/scripted-provider.md``; :data:`STEPS` names them. Pure: compiles once, plays nothing; whoever plays
the actions brings time and a connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from router.catalog.yaml_source import Located, PlainValue, locate, plain, read_yaml
from router.errors import ConfigurationError, ConfigurationProblem, SourcePosition
from router.providers.script_steps import STEPS, Action, BadStep, RequestCompiler

__all__ = ["STEPS", "ModelScript", "Repeat", "Script", "parse_script"]

_Path: TypeAlias = tuple[str | int, ...]
_MODEL_KEYS: Final = frozenset({"steps", "requests", "repeat"})
_TOP_KEYS: Final = _MODEL_KEYS | {"seed", "jitter", "models"}


class Repeat(StrEnum):
    """Which request follows the last one."""

    LAST = "last"
    CYCLE = "cycle"


@dataclass(frozen=True, slots=True)
class ModelScript:
    """What each request gets, in order."""

    requests: tuple[tuple[Action, ...], ...]
    repeat: Repeat = Repeat.LAST

    def actions(self, number: int) -> tuple[Action, ...]:
        """Return what request ``number`` (from 0) gets."""
        if number < len(self.requests):
            return self.requests[number]
        return self.requests[number % len(self.requests) if self.repeat is Repeat.CYCLE else -1]


@dataclass(frozen=True, slots=True)
class Script:
    """A whole file. ``default`` serves the models that have no script of their own."""

    default: ModelScript | None
    models: Mapping[str, ModelScript] = field(default_factory=dict)
    seed: int = 0
    jitter: float = 0.0

    def for_model(self, model: str) -> tuple[str, ModelScript] | None:
        """Return the script of an upstream model and the name under which its requests are counted."""
        if model in self.models:
            return model, self.models[model]
        return ("", self.default) if self.default is not None else None


def parse_script(text: str, file: str) -> Script:
    """Read a script; ``file`` is only used in messages.

    Raises
    ------
    ConfigurationError
        With every problem found: file, line, column, and what to do.

    """
    root, problems = read_yaml(text, file)
    if problems:
        raise ConfigurationError(problems)
    if root is None or not isinstance(root.value, dict):
        position = SourcePosition(file, 1, 1)
        raise ConfigurationError(
            (ConfigurationProblem("a script is a map", position, "see docs/scripted-provider.md"),)
        )
    reader = _ScriptReader(root, file)
    script = reader.script()
    if reader.problems:
        raise ConfigurationError(tuple(reader.problems))
    return script


class _ScriptReader:
    """Reads one tree; notes every problem and goes on."""

    def __init__(self, root: Located, file: str) -> None:
        self._root = root
        self._file = file
        self.problems: list[ConfigurationProblem] = []

    def script(self) -> Script:
        tree = plain(self._root)
        assert isinstance(tree, dict)  # noqa: S101 - the caller looked; for the type checker
        self._unknown_keys(tree, (), _TOP_KEYS)
        seed = tree.get("seed", 0)
        if not isinstance(seed, int) or isinstance(seed, bool):
            self._add(("seed",), "seed is not a whole number", "write a whole number")
            seed = 0
        jitter = tree.get("jitter", 0.0)
        if isinstance(jitter, bool) or not isinstance(jitter, int | float) or not 0 <= jitter <= 1:
            self._add(("jitter",), "jitter is not a share", "write a number from 0 to 1")
            jitter = 0.0
        models: dict[str, ModelScript] = {}
        listed = tree.get("models", {})
        if not isinstance(listed, dict):
            self._add(("models",), "models is not a map", "write the upstream model's name over its script")
            listed = {}
        for name, value in listed.items():
            if isinstance(value, dict):
                self._unknown_keys(value, ("models", name), _MODEL_KEYS)
                models[name] = self._model_script(value, ("models", name))
            else:
                self._add(
                    ("models", name), f"the script of {name} is not a map", "write steps: [...] below it"
                )
        has_default = "steps" in tree or "requests" in tree
        if not has_default and not listed:
            self._add((), "neither steps, requests nor models", "write at least one of them")
        default = self._model_script(tree, ()) if has_default else None
        return Script(default, models, seed, float(jitter))

    def _model_script(self, tree: dict[str, PlainValue], path: _Path) -> ModelScript:
        repeat = tree.get("repeat", Repeat.LAST.value)
        if repeat not in tuple(Repeat):
            self._add((*path, "repeat"), f"repeat: {repeat} is not known", "write last or cycle")
            repeat = Repeat.LAST
        if ("steps" in tree) == ("requests" in tree):
            self._add(path, "either steps or requests is needed", "keep one of them")
            return ModelScript(((),))
        if "steps" in tree:
            return ModelScript((self._request(tree["steps"], (*path, "steps")),), Repeat(repeat))
        requests = tree["requests"]
        if not isinstance(requests, list) or not requests:
            self._add(
                (*path, "requests"), "requests is not a list", "write one list of steps for each request"
            )
            return ModelScript(((),))
        compiled = tuple(
            self._request(steps, (*path, "requests", number)) for number, steps in enumerate(requests)
        )
        return ModelScript(compiled, Repeat(repeat))

    def _request(self, steps: PlainValue, path: _Path) -> tuple[Action, ...]:
        if not isinstance(steps, list):
            self._add(path, "not a list of steps", "write [{step: value}, ...]")
            return ()
        compiler = RequestCompiler()
        for number, step in enumerate(steps):
            name, value = _name_and_value(step)
            if name is None:
                self._add((*path, number), "a step has one name", f"write one of {', '.join(STEPS)}")
                continue
            try:
                compiler.add(name, value)
            except BadStep as error:
                self._add((*path, number), str(error), error.fix)
        return compiler.finish()

    def _unknown_keys(self, tree: dict[str, PlainValue], path: _Path, known: frozenset[str]) -> None:
        for name in tree:
            if name not in known:
                self._add((*path, name), f"{name} is not known", f"use one of {', '.join(sorted(known))}")

    def _add(self, path: _Path, message: str, fix: str) -> None:
        line, column = locate(self._root, path)
        self.problems.append(ConfigurationProblem(message, SourcePosition(self._file, line, column), fix))


def _name_and_value(step: PlainValue) -> tuple[str | None, PlainValue]:
    if isinstance(step, str):
        return step, None
    if isinstance(step, dict) and len(step) == 1:
        return next(iter(step.items()))
    return None, None
