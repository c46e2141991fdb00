"""The built-in heuristic behind ``auto``: which kind of work a request is.

Reads structure, never instructions: fences, the density of code's punctuation, names of tools, length.
A sentence in the prompt that says what to answer ("answer: build") is no signal, so it cannot steer.
Pure; the text of the last turn is looked at and not kept. Bounded: at most eight thousand characters
are read, whatever the prompt's size.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from router.chat.features import RequestFeatures, TaskKind
from router.routing.verdict import TaskVerdict

__all__ = ["task_of", "task_verdict"]

_LOOK = 4_000

# Tools that act on a working tree or a machine: whoever hands these over is an agent at work.
_AGENT_TOOL = re.compile(
    r"(?:^|[_.\-/])(?:bash|shell|terminal|exec(?:ute)?(?:_?command)?|run_?(?:command|terminal|shell|tests?)|"
    r"edit|multi_?edit|write|apply_?(?:patch|diff)|patch|str_?replace|replace_in_file|create_?file|"
    r"read_?file|write_?file|edit_?file|list_?(?:dir|files)|grep|glob|codebase_search|todo_?write)(?:$|[_.\-/])",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_AGENT_TOOLS_LEAST = 2
_MANY_TOOLS = 6
_LONG_RUN_MESSAGES = 12

# Characters of a prompt from which reading it is the work, whatever is asked of it.
_LONG_CHARACTERS = 120_000

_FENCE = re.compile(r"```|~~~")
_SYNTAX_LINES = re.compile(
    r"^\s*(?:def \w+\s*\(|class \w+\s*[(:{]|import [\w.]+|from [\w.]+ import |#include\s*[<\"]|"
    r"(?:export |pub |async |static |public |private )*(?:function|fn|func|struct|enum|interface|impl) \w+|"
    r"(?:const|let|var|val) \w+\s*[:=]|return\b.*[;)]?$|[}\])]+[;,]?$|@\w+(?:\(|$)|"
    r"(?:SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE TABLE|ALTER TABLE) .*|"
    r"diff --git |[+-]{3} [ab]/|@@ -\d+)",
    re.MULTILINE,
)
_TRACE = re.compile(
    r"^\s*(?:Traceback \(most recent call last\)|File \"[^\"\n]+\", line \d+|at [\w$.<>]+\([\w.]+:\d+\)|"
    r"\w*(?:Error|Exception)\b:|error(?:\[E\d+\])?: |panicked at |Segmentation fault|"
    r"[\w./\\-]+\.\w{1,4}:\d+(?::\d+)?: )",
    re.MULTILINE,
)
_FILE_NAME = re.compile(
    r"(?<![\w.])[\w\-/]*\w\.(?:py|pyi|ts|tsx|js|jsx|mjs|rs|go|java|kt|c|cc|cpp|h|hpp|cs|rb|php|swift|scala|"
    r"sql|sh|css|scss|html|vue|svelte|toml|ya?ml|json|ipynb|lua|dart|ex|exs|hs|zig|cmake|gradle)\b"
)
_CALL = re.compile(r"\b\w+\([^()\n]{0,60}\)|\w+::\w+|->|=>|[!=]=|&&|\|\||\w\[\w+\]")

# Words of the trade in the languages that most prompts come in; a weak signal each.
_WORDS = re.compile(
    r"\b(?:function|method|bug|compil\w+|refactor\w*|regex\w*|stack ?trace|unit tests?|pytest|debug\w*|"
    r"python|javascript|typescript|rust|golang|java|kotlin|c\+\+|bash script|sql|docker\w*|git|api endpoint|"
    r"algorithm\w*|recursi\w+|async|null pointer|segfault|linter|type ?script|dataframe|"
    r"funktion|fehlermeldung|quellcode|fonction|bogue|función|código|programm?a\w*|função|"
    r"код\w*|функци\w+|скрипт\w*|ошибк\w+ компиляц\w+)\b|"
    r"(?:代码|函数|编译|报错|脚本|算法|调试|重构|コード|関数|バグ|デバッグ|코드|함수|버그)",
    re.IGNORECASE,
)
_CODE_AT = 3.0


def task_of(
    features: RequestFeatures,
    *,
    last_user_text: str = "",
    tool_names: Sequence[str] = (),
    tool_results: int = 0,
) -> TaskKind:
    """Return the kind of work; see :func:`task_verdict`."""
    return task_verdict(
        features, last_user_text=last_user_text, tool_names=tool_names, tool_results=tool_results
    ).kind


def task_verdict(
    features: RequestFeatures,
    *,
    last_user_text: str = "",
    tool_names: Sequence[str] = (),
    tool_results: int = 0,
) -> TaskVerdict:
    """Name the kind of work of a request.

    ``last_user_text`` is the text of the last turn by the user, ``tool_names`` the names of the tools
    handed over, ``tool_results`` how many results of tools the conversation already holds. Everything
    but ``features`` is optional: the less is known, the plainer the verdict, ``chat`` last.
    """
    agent = _agent_basis(features, tool_names, tool_results)
    if agent is not None:
        return TaskVerdict(TaskKind.BUILD, agent)
    if features.prompt_characters >= _LONG_CHARACTERS:
        return TaskVerdict(TaskKind.LONG, f"{features.prompt_characters} characters to read")
    points, basis = _code_points(last_user_text)
    if points >= _CODE_AT:
        return TaskVerdict(TaskKind.CODE, basis)
    return TaskVerdict(TaskKind.CHAT, "neither tools at work, nor length, nor code")


def _agent_basis(features: RequestFeatures, tool_names: Sequence[str], tool_results: int) -> str | None:
    if not (features.needs_tools or tool_names):
        return None
    agent_tools = sum(1 for name in tool_names[:100] if _AGENT_TOOL.search(_CAMEL.sub("_", name[:80])))
    if agent_tools >= _AGENT_TOOLS_LEAST:
        return f"{agent_tools} tools that act on files or a machine"
    if len(tool_names) >= _MANY_TOOLS:
        return f"{len(tool_names)} tools"
    if tool_results >= _AGENT_TOOLS_LEAST + 1:
        return f"{tool_results} results of tools so far"
    if features.needs_tools and features.message_count >= _LONG_RUN_MESSAGES:
        return f"tools over {features.message_count} messages"
    return None


def _code_points(text: str) -> tuple[float, str]:
    """Return how much of the text looks like code, and the signals behind it."""
    seen = text if len(text) <= 2 * _LOOK else f"{text[:_LOOK]}\n{text[-_LOOK:]}"
    if not seen:
        return 0.0, ""
    counts = (
        ("fences", _count(_FENCE, seen), 1.5, 3.0),
        ("lines of code", _count(_SYNTAX_LINES, seen), 1.0, 4.0),
        ("error traces", _count(_TRACE, seen), 1.5, 4.0),
        ("file names", _count(_FILE_NAME, seen), 1.0, 2.0),
        ("calls and operators", _count(_CALL, seen), 0.4, 2.0),
        ("words of the trade", _count(_WORDS, seen), 1.0, 3.0),
    )
    points = sum(min(most, count * each) for _, count, each, most in counts)
    return points, ", ".join(f"{count} {name}" for name, count, _, _ in counts if count)


def _count(pattern: re.Pattern[str], text: str, most: int = 20) -> int:
    count = 0
    for _ in pattern.finditer(text):
        count += 1
        if count >= most:
            break
    return count
