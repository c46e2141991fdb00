"""What is under version control names no index, no machine and no secret."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT, tracked_files

# Written in pieces, so that this file is not what it looks for.
INDEX_HOSTS = tuple(
    "".join(pieces)
    for pieces in (
        ("py", "pi", r"\.", "org"),
        ("python", "hosted"),
        ("npm", "js", r"\.", "(org|com)"),
        ("registry", r"\.", "yarn"),
        ("crates", r"\.", "io"),
        ("deb", r"\.", "debian"),
        ("proxy", r"\.", "golang"),
        ("conda", r"\.", "anaconda"),
    )
)
HOME_FOLDERS = tuple(
    "".join(pieces)
    for pieces in ((r"(?<![\w.])/", "work", "/[a-z.]"), (r"(?<![\w.])/", "root", "/"), ("/ho", "me/[a-z]"))
)
SECRETS = (
    r"\bsk-(?:proj-|ant-)?[A-Za-z0-9]{32,}",
    r"\bAKIA[A-Z0-9]{16}\b",
    "-----BEGIN [A-Z ]*PRIVATE " + "KEY",
)
LARGEST_BYTES = 1_000_000
ROOT_ENTRIES = {
    *("router", "local_backend", "migrations", "tests", "docs", "bench", ".ci"),
    *("bootstrap.py", "compose.yaml", "providers.yaml", "pyproject.toml", "requirements.lock"),
    *("CHANGELOG.md", "LICENSE", "README.md", ".gitignore"),
}


def lines_matching(patterns: tuple[str, ...]) -> list[str]:
    pattern = re.compile("|".join(patterns))
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if pattern.search(text):
            place = path.relative_to(ROOT)
            found += [
                f"{place}:{n}: {line.strip()[:120]}"
                for n, line in enumerate(text.splitlines(), 1)
                if pattern.search(line)
            ]
    return found


@pytest.mark.parametrize("patterns", [INDEX_HOSTS, HOME_FOLDERS, SECRETS], ids=["index", "machine", "secret"])
def test_no_file_names(patterns: tuple[str, ...]) -> None:
    found = lines_matching(patterns)

    assert not found, "\n".join(found)


def test_the_patterns_match_what_they_are_for() -> None:
    assert re.search("|".join(INDEX_HOSTS), "https://" + "py" + "pi.org/simple")
    assert re.search("|".join(HOME_FOLDERS), "see /" + "root/.cache")
    assert not re.search("|".join(HOME_FOLDERS), "router/" + "root/page")


def test_no_file_is_huge() -> None:
    large = [str(path.relative_to(ROOT)) for path in tracked_files() if path.stat().st_size > LARGEST_BYTES]

    assert not large, ", ".join(large)


def test_the_top_of_the_tree_holds_what_was_agreed() -> None:
    entries = {Path(path.relative_to(ROOT)).parts[0] for path in tracked_files()}

    assert entries <= ROOT_ENTRIES


def idle_lines(text: str) -> list[int]:
    """Return the lines of a test file that sleep without saying why, or assert nothing."""
    lines, found = text.splitlines(), []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="time"), attr="sleep")):
                if "#" not in lines[node.lineno - 1]:
                    found.append(node.lineno)
            case ast.Assert(test=ast.Constant()):
                found.append(node.lineno)
    return found


def test_no_test_sleeps_without_a_reason_or_asserts_nothing() -> None:
    tests = [p for p in tracked_files() if p.name.startswith("test_") and p.suffix == ".py"]
    found = [f"{path.relative_to(ROOT)}:{line}" for path in tests for line in idle_lines(path.read_text())]

    assert not found, "\n".join(found)


def test_an_idle_line_is_seen() -> None:
    sleep = "time" + ".sleep"

    assert idle_lines(f"assert True\n{sleep}(1)\n{sleep}(2)  # what is measured\nassert x\n") == [1, 2]
