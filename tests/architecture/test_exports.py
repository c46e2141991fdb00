"""Every module says what it is for, and what of it others may use."""

from __future__ import annotations

import ast

from tests.architecture.source_tree import Module, modules


def exported(module: Module) -> list[str] | None:
    """Return the literal value of ``__all__``, or nothing where there is none."""
    for node in module.tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if (
            isinstance(target, ast.Name)
            and target.id == "__all__"
            and isinstance(node, ast.Assign | ast.AnnAssign)
        ):
            return list(ast.literal_eval(node.value)) if node.value else None
    return None


def bound_names(module: Module) -> set[str]:
    """Return every name that the module's own body binds."""
    names: set[str] = set()
    for node in ast.walk(module.tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {(alias.asname or alias.name).split(".")[0] for alias in aliases}
    return names


def test_every_module_lists_what_it_exports() -> None:
    wrong = [module.place for module in modules() if exported(module) is None and len(module.tree.body) > 1]

    assert not wrong, "no __all__ in: " + ", ".join(wrong)


def test_everything_exported_exists() -> None:
    wrong = [
        f"{module.place}: {name}"
        for module in modules()
        for name in set(exported(module) or []) - bound_names(module)
    ]

    assert not wrong, "\n".join(wrong)


def test_everything_public_is_exported() -> None:
    wrong = [
        module.at(node.lineno, node.name)
        for module in modules()
        for node in module.tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and node.name not in (exported(module) or [])
    ]

    assert not wrong, "public by name, yet not in __all__ (or give it a leading underscore):\n" + "\n".join(
        wrong
    )


def test_every_module_says_its_purpose_and_its_limits() -> None:
    wrong = []
    for module in modules():
        text = ast.get_docstring(module.tree) or ""
        first = text.split("\n")[0]
        if not first.endswith((".", ":")) and not text:
            wrong.append(f"{module.place}: no docstring")
        elif module.path.name not in {"__init__.py", "__main__.py"} and len(text.split()) < 6:
            wrong.append(f"{module.place}: the docstring says too little")

    assert not wrong, "\n".join(wrong)


def test_no_private_name_crosses_a_module() -> None:
    wrong = [
        module.at(node.lineno, f"from {node.module} import {alias.name}")
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").split(".")[0] in {"router", "local_backend"}
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__") and alias.name != "_native"
    ]

    assert not wrong, "\n".join(wrong)
