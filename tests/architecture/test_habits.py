"""Habits that the packages keep, read off their syntax trees."""

from __future__ import annotations

import ast
import re

from tests.architecture.source_tree import Module, modules

ENVIRONMENT_READERS = {"router.settings", "local_backend.config"}
MUTABLE_CALLS = {"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict"}
# Where JSON of the wire comes in or goes out, or a YAML file is read: there a dict is what it is.
EDGES = (
    "router.api",
    "router.catalog",
    "router.chat",
    "router.providers",
    "router.recording",
    "router.storage",
    "router.installation",
    "router.commands",
    "router.settings",
    "local_backend.server",
    "local_backend.commands",
    "local_backend.gguf",
    "local_backend.model",
    "local_backend.engine.loading",  # hands a conversation to the template as the wire had it
)


def is_mutable(node: ast.expr | None) -> bool:
    """Say whether an expression makes a value that can change."""
    if isinstance(node, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
        return True
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name in MUTABLE_CALLS
    return False


def functions(module: Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [n for n in ast.walk(module.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_the_environment_is_read_in_two_modules() -> None:
    wrong = []
    for module in modules():
        if module.name in ENVIRONMENT_READERS:
            continue
        for node in ast.walk(module.tree):
            match node:
                case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "environb" | "getenv" as name):
                    wrong.append(module.at(node.lineno, f"os.{name}"))
                case ast.ImportFrom(module="os", names=names):
                    taken = {alias.name for alias in names} & {"environ", "environb", "getenv"}
                    wrong += [module.at(node.lineno, f"from os import {name}") for name in taken]

    assert not wrong, "\n".join(wrong)


def test_no_except_catches_everything_unnamed() -> None:
    wrong = [
        module.at(node.lineno, "bare except")
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]

    assert not wrong, "\n".join(wrong)


def test_no_argument_has_a_mutable_default() -> None:
    wrong = [
        module.at(node.lineno, node.name)
        for module in modules()
        for node in functions(module)
        if any(is_mutable(default) for default in [*node.args.defaults, *node.args.kw_defaults])
    ]

    assert not wrong, "\n".join(wrong)


def test_no_module_holds_state_that_changes() -> None:
    """A module's own lists and dicts are constants: named in capitals, and nobody declares them global."""
    wrong = []
    for module in modules():
        for node in module.tree.body:
            if isinstance(node, ast.Assign):
                targets, value = node.targets, node.value
            elif isinstance(node, ast.AnnAssign) and node.value:
                targets, value = [node.target], node.value
            else:
                continue
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            wrong += [
                module.at(node.lineno, f"{name} can change")
                for name in names
                if is_mutable(value) and not re.fullmatch(r"_?[A-Z][A-Z0-9_]*|__\w+__", name)
            ]
        wrong += [module.at(n.lineno, "global") for n in ast.walk(module.tree) if isinstance(n, ast.Global)]

    assert not wrong, "\n".join(wrong)


def stray_tasks(module: Module) -> list[str]:
    """Return where tasks are started that no task group owns."""
    owners = [
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and any(getattr(inner, "id", getattr(inner, "attr", "")) == "TaskGroup" for inner in ast.walk(node))
    ]
    owned = {id(inner) for owner in owners for inner in ast.walk(owner)}
    wrong = []
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="asyncio"), attr="create_task" | "ensure_future")
            ):
                wrong.append(module.at(node.lineno, "a task without a task group"))
            case ast.Call(func=ast.Attribute(attr="create_task")) if id(node) not in owned:
                wrong.append(module.at(node.lineno, "a task outside of what owns a task group"))
    return wrong


def test_every_task_belongs_to_a_task_group() -> None:
    wrong = [text for module in modules() for text in stray_tasks(module)]

    assert not wrong, "\n".join(wrong)


def test_inside_the_edges_no_dict_stands_for_an_object() -> None:
    loose = re.compile(r"\b(dict|Dict|Mapping|MutableMapping)\[str, (Any|object)\]")
    wrong = [
        module.at(node.lineno, f"{node.name}: {ast.unparse(annotation)}")
        for module in modules()
        if not any(module.name == edge or module.name.startswith(edge + ".") for edge in EDGES)
        for node in functions(module)
        if not node.name.startswith("_")
        for annotation in [
            node.returns,
            *(a.annotation for a in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]),
        ]
        if annotation is not None and loose.search(ast.unparse(annotation))
    ]

    assert not wrong, "\n".join(wrong)


def test_the_scan_tells_owned_tasks_from_stray_ones() -> None:
    text = (
        "class Owner:\n    def __init__(self, group: TaskGroup): self.group = group\n"
        "    def go(self): self.group.create_task(work())\n"
        "def stray(loop): loop.create_task(work())\n"
    )
    module = Module(modules()[0].path, "router.x", text, ast.parse(text))

    assert [line.rsplit(":", 2)[1] for line in stray_tasks(module)] == ["4"]
