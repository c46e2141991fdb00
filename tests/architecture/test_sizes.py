"""One file owns one noun, and one function one thought: both have a largest size."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.architecture.source_tree import ROOT, native_sources, tracked_files

LINES_OF_A_FILE = 400
LINES_OF_A_FUNCTION = 60


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_files() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".py"]


def test_no_file_is_longer_than_its_bound() -> None:
    files = [
        *python_files(),
        *native_sources(),
        *(p for p in tracked_files() if p.suffix in {".wgsl", ".js"}),
    ]
    ours = [path for path in files if not {"vendor", "static"} & set(path.parts)]
    long = [
        f"{place(p)}: {n} lines" for p in ours if (n := len(p.read_text().splitlines())) > LINES_OF_A_FILE
    ]

    assert not long, "\n".join(long)


def test_no_python_function_is_longer_than_its_bound() -> None:
    long = [
        f"{place(path)}:{node.lineno}: {node.name} has {lines} lines"
        for path in python_files()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > LINES_OF_A_FUNCTION
    ]

    assert not long, "\n".join(long)


def long_native_functions(text: str) -> list[tuple[int, int]]:
    """Return (line, length) of each function body at the left margin that is too long.

    The C++ here is laid out so that a function starts and ends in the first column; namespaces, types and
    initialised tables do too, and are told apart by how they start.
    """
    found, start = [], None
    for number, line in enumerate(text.splitlines(), 1):
        opens = line.endswith("{") and not re.match(
            r"\s|namespace\b|extern\b|struct\b|class\b|enum\b|union\b", line
        )
        if start is None and opens and not line.rstrip("{ ").endswith("="):
            start = number
        elif line.startswith("}") and start is not None:
            if number - start + 1 > LINES_OF_A_FUNCTION:
                found.append((start, number - start + 1))
            start = None
    return found


def test_no_native_function_is_longer_than_its_bound() -> None:
    long = [
        f"{place(path)}:{line}: a function of {lines} lines"
        for path in native_sources()
        for line, lines in long_native_functions(path.read_text())
    ]

    assert not long, "\n".join(long)


def test_the_scan_tells_a_long_native_function_from_a_long_namespace() -> None:
    body = "  work();\n" * 70

    assert long_native_functions(f"void f() {{\n{body}}}\n") == [(1, 72)]
    assert long_native_functions(f"namespace n {{\n{body}}}\n") == []
