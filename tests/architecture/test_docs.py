"""What is written about the project agrees with what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT, tracked_files

WORDS = (
    *("entrypoint", "provider", "deployment", "candidate", "exclusion", "score", "routing decision", "judge"),
    *("attempt", "outcome", "fallback", "retry", "commit boundary", "breaker", "permit", "principal", "slot"),
    *("prefill", "decode", "sequence", "KV cache", "layer", "block", "expert", "gating", "tier", "residency"),
    *("placement", "prefetch", "pin", "TTFT", "TPOT"),
)
SCHEMES = ("http:", "https:", "mailto:")


def documents() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".md"]


def anchors(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as its readers' tools make them."""
    headings = re.findall(r"^#+ +(.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.strip().replace(" ", "-") for heading in plain}


def broken_links(path: Path) -> list[str]:
    """Return the links of a document that lead to nothing in the tree."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    broken = []
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose):
        if target.startswith(SCHEMES):
            continue
        name, _, anchor = target.partition("#")
        place = (path.parent / name).resolve() if name else path
        if not place.exists() or (anchor and place.suffix == ".md" and anchor not in anchors(place)):
            broken.append(f"{path.relative_to(ROOT)}: {target}")
    return broken


def test_every_link_leads_somewhere() -> None:
    broken = [link for path in documents() for link in broken_links(path)]

    assert not broken, "\n".join(broken)


def test_a_broken_link_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.architecture.test_docs.ROOT", tmp_path)
    document = tmp_path / "a.md"
    document.write_text(
        "# One two\n[x](#one-two) [y](b.md) [z](#three) `[code](c.md)` [w](https://example.org)\n"
    )

    assert broken_links(document) == ["a.md: b.md", "a.md: #three"]


@pytest.mark.parametrize("word", WORDS)
def test_the_glossary_explains(word: str) -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").lower()

    assert f"**{word.lower()}**" in glossary


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    unlisted = [path.name for path in sorted(folder.glob("0*.md")) if path.name not in index]

    assert not unlisted, ", ".join(unlisted)


def test_files_named_in_the_architecture_page_exist() -> None:
    """The page names modules as ``package/module`` in its two flows."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    folders = {
        p.name for package in ("router", "local_backend") for p in (ROOT / package).iterdir() if p.is_dir()
    }
    named = {
        m for m in re.findall(r"(?<![\w/.])([a-z_]+/[a-z_]+)(?![\w/])", text) if m.split("/")[0] in folders
    }
    missing = [
        name
        for name in sorted(named)
        if not any(
            (ROOT / package / f"{name}.py").exists() or (ROOT / package / name).is_dir()
            for package in ("router", "local_backend")
        )
    ]

    assert not missing, ", ".join(missing)
