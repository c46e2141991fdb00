"""The project's own files, parsed once, for the tests that hold its laws."""

from __future__ import annotations

import ast
import functools
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PACKAGES", "ROOT", "Import", "Module", "modules", "native_sources", "tracked_files"]

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("router", "local_backend")


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, by its full dotted name, and where."""

    name: str
    line: int


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """A Python file of one of the packages; ``name`` is dotted, a package's is without ``__init__``."""

    path: Path
    name: str
    text: str
    tree: ast.Module

    @property
    def place(self) -> str:
        """The path from the root, as messages show it."""
        return self.path.relative_to(ROOT).as_posix()

    def at(self, line: int, what: str) -> str:
        """Return ``what`` with its place, for a message."""
        return f"{self.place}:{line}: {what}"

    def imports(self) -> tuple[Import, ...]:
        """Return everything imported anywhere in the file, also inside functions."""
        return _imports(self)

    def absolute(self, node: ast.ImportFrom) -> str:
        """Return the full name of the module that a ``from`` import names, also where it is relative."""
        if not node.level:
            return node.module or ""
        is_package = self.path.name == "__init__.py"
        parts = self.name.split(".")[: None if is_package and node.level == 1 else -node.level + is_package]
        return ".".join([*parts, *([node.module] if node.module else [])])


@functools.cache
def _imports(module: Module) -> tuple[Import, ...]:
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = module.absolute(node)
            # `from router import x` may name a module or what is in one: both are looked at
            found += [Import(base, node.lineno)]
            found += [Import(f"{base}.{alias.name}", node.lineno) for alias in node.names]
    return tuple(found)


@functools.cache
def tracked_files() -> tuple[Path, ...]:
    """Return every file under version control, and those about to be; all files where there is no git."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return tuple(path for name in listed.split("\0") if name and (path := ROOT / name).is_file())


@functools.cache
def modules() -> tuple[Module, ...]:
    """Return every module of the two packages."""
    found = []
    for path in tracked_files():
        relative = path.relative_to(ROOT)
        if path.suffix != ".py" or relative.parts[0] not in PACKAGES:
            continue
        parts = relative.with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        found.append(Module(path, name, text, ast.parse(text, str(path))))
    return tuple(found)


@functools.cache
def native_sources() -> tuple[Path, ...]:
    """Return every C++ file of the project's own."""
    return tuple(path for path in tracked_files() if path.suffix in {".cpp", ".h", ".hpp", ".cu"})
