"""Files, folders and identifiers are called what they are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.architecture.source_tree import ROOT, Module, modules, native_sources, tracked_files

EMPTY_NAMES = {
    "utils",
    "util",
    "helpers",
    "helper",
    "common",
    "misc",
    "core",
    "base_utils",
    "manager",
    "managers",
}
# Versions of wire formats are not versions of ours, so only whole words of an identifier count.
AGED = re.compile(r"(^|_)(new|legacy|v[2-9])(_|$)|[a-z]V[2-9]([A-Z_]|$)")


def definitions(module: Module) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of every function, method and class."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name


def given_names(module: Module) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of what the module itself names; what libraries call theirs is not its choice."""
    yield from definitions(module)
    for node in ast.walk(module.tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name


def test_no_file_or_folder_is_a_grab_bag() -> None:
    wrong = {
        path.relative_to(ROOT).as_posix()
        for path in tracked_files()
        for part in path.relative_to(ROOT).parts
        if part.rsplit(".", 1)[0].lower() in EMPTY_NAMES
    }

    assert not wrong, "named for nothing in particular: " + ", ".join(sorted(wrong))


def test_no_file_is_named_for_its_age() -> None:
    wrong = [
        path.name
        for path in tracked_files()
        if path.suffix in {".py", ".cpp", ".h"} and AGED.search(path.stem)
    ]

    assert not wrong, ", ".join(wrong)


def test_nothing_is_named_for_its_age() -> None:
    wrong = [
        module.at(line, name)
        for module in modules()
        for line, name in definitions(module)
        if AGED.search(name)
    ]

    assert not wrong, "\n".join(wrong)


def test_no_function_has_a_twin_of_the_other_colour() -> None:
    wrong = []
    for module in modules():
        scopes = [n for n in ast.walk(module.tree) if isinstance(n, ast.Module | ast.ClassDef)]
        for scope in scopes:
            names = {n.name: n for n in scope.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
            wrong += [
                module.at(node.lineno, f"{twin} is the twin of {name}")
                for name, node in names.items()
                for twin in (f"a{name}", f"async_{name}", f"{name}_async", f"sync_{name}", f"{name}_sync")
                if twin in names
                and isinstance(names[twin], ast.AsyncFunctionDef) != isinstance(node, ast.AsyncFunctionDef)
            ]

    assert not wrong, "\n".join(wrong)


def test_the_engine_says_gating_and_never_router() -> None:
    wrong = [
        module.at(line, name)
        for module in modules()
        if module.name.startswith("local_backend")
        for line, name in given_names(module)
        if re.search(r"(^|_)router?(_|$)|Router", name)
    ]
    wrong += [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in native_sources()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\brouter\b|_router\b|\brouter_", line, re.IGNORECASE)
    ]

    assert not wrong, "\n".join(wrong)


def test_nobody_says_a_bare_gate() -> None:
    wrong = [
        module.at(line, name)
        for module in modules()
        if module.name.startswith("local_backend")
        for line, name in given_names(module)
        if name.lower() == "gate"
    ]
    wrong += [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in native_sources()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\bgate\b", line.split("//")[0])
    ]

    assert not wrong, "\n".join(wrong)


TENSOR_NAMES = re.compile(
    r"\bblk\.|\btoken_embd\b|\boutput_norm\.|\bffn_(gate|up|down)|\battn_(q|k|v|output|norm)\b"
)


def test_tensor_names_of_the_file_format_stand_in_one_module() -> None:
    wrong = [
        module.at(node.lineno, repr(node.value))
        for module in modules()
        if module.name != "local_backend.model.tensor_names" and TENSOR_NAMES.search(module.text)
        for node in strings_that_are_not_prose(module)
        if TENSOR_NAMES.search(node.value)
    ]

    assert not wrong, "\n".join(wrong)


def strings_that_are_not_prose(module: Module) -> list[ast.Constant]:
    """Return the string constants that are not a statement of their own, as docstrings are."""
    prose = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Expr)}
    return [
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    ]


def test_the_pattern_for_age_spares_words_that_only_contain_it() -> None:
    assert AGED.search("new_breaker")
    assert AGED.search("BreakerV2")
    assert AGED.search("lowest_rpm_v2")
    assert not AGED.search("renew_lease")
    assert not AGED.search("newest")
    assert not AGED.search("threshold")
