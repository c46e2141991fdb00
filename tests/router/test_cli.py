"""The command line as a person uses it, in this process."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from router.cli import main
from tests.fakes.roundhouse import house_file

GOOD = "steps: [{answer: hi}]"
KEYED = "{kind: openai, base_url: 'http://up.test/v1', key_env: A_KEY}"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROUNDHOUSE_CONFIG", "ROUNDHOUSE_PORT", "ROUNDHOUSE_HOST", "ROUNDHOUSE_API_KEY", "A_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(house_file(tmp_path, {"first": GOOD, "keyless": KEYED}))


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith("roundhouse 0.")


@pytest.mark.parametrize("command", ["serve", "check", "explain", "migrate"])
def test_every_command_has_help_with_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])

    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert "examples:" in shown
    assert f"roundhouse {command}" in shown


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])

    shown = capsys.readouterr().out
    assert all(
        f"    {name} " in shown for name in ("serve", "check", "explain", "migrate", "version", "engine")
    )


def test_a_good_file_is_said_to_be_good(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", file]) == 0
    assert "2 providers, 2 candidates, 5 entrypoints, no problem" in capsys.readouterr().out


def test_every_problem_is_a_line_with_its_place_and_its_fix(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(file)
    text = path.read_text().replace("context_tokens: 100000", "context_tokens: many", 1)
    path.write_text(text.replace("provider: keyless", "provider: keyles", 1))

    assert main(["check", file]) == 1
    lines = capsys.readouterr().err.splitlines()
    number = next(at for at, line in enumerate(path.read_text().splitlines(), start=1) if "many" in line)
    assert any(line.startswith(f"{file}:{number}:") and " -> " in line for line in lines)
    assert any("keyles" in line and "did you mean" in line for line in lines)
    assert lines[-1] == f"{file}: 2 problems"


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "none.yaml")]) == 1
    assert "none.yaml" in capsys.readouterr().err


def test_the_schema_is_json_for_an_editor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert {"providers", "candidates", "entrypoints"} <= set(schema["properties"])


def test_explain_shows_each_candidate_with_its_terms_and_who_is_left_out(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--config", file, "--model", "code", "hello there"]) == 0
    shown = capsys.readouterr().out
    assert "first/model" in shown
    assert "task_fit" in shown
    assert "no key: set A_KEY" in shown


def test_explain_names_the_task_as_the_gateway_would(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = "```python\ndef f(x):\n    return x\n```\nTraceback (most recent call last): why, in main.py?"

    assert main(["explain", "--config", file, prompt]) == 0
    assert "judged as code" in capsys.readouterr().out


def test_explain_reads_a_body_and_prints_json(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "sk-something-secret")
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"model": "chat", "messages": [{"role": "user", "content": "x"}]}))

    assert main(["explain", "--config", file, "--file", str(body), "--json"]) == 0
    shown = capsys.readouterr().out
    assert len(json.loads(shown)["candidates"]) == 2
    assert "secret" not in shown


def test_explain_names_the_line_of_a_body_that_is_not_json(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = tmp_path / "body.json"
    body.write_text('{\n "model": chat}')

    assert main(["explain", "--config", file, "--file", str(body)]) == 1
    assert "body.json:2:" in capsys.readouterr().err


def test_explain_says_that_no_gateway_answers(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        code = main(["explain", "--config", file, "--url", f"http://127.0.0.1:{port}", "hello"])

    assert code == 1
    assert "no gateway answers there" in capsys.readouterr().err


def test_serve_says_that_the_port_is_in_use(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code = main(["serve", "--config", file, "--port", str(port), "--data-dir", str(tmp_path)])

    assert code == 1
    assert capsys.readouterr().err == (
        f"roundhouse serve: 127.0.0.1:{port}: the port is in use by another program -> "
        "stop that one, or pass --port N\n"
    )


def test_serve_refuses_other_machines_without_a_key(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--config", file, "--host", "0.0.0.0"]) == 1  # noqa: S104 - refused
    shown = capsys.readouterr().err
    assert "ROUNDHOUSE_API_KEY" in shown
    assert "--allow-open" in shown


def test_serve_refuses_a_bad_file_with_every_problem(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(file).write_text("candidates: [")

    assert main(["serve", "--config", file]) == 1
    assert f"{file}:" in capsys.readouterr().err


def test_migrate_makes_a_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["migrate", "--data-dir", str(tmp_path / "data")]

    assert main(options) == 0
    assert (tmp_path / "data" / "roundhouse.sqlite3").is_file()
    assert main([*options, "--to", "nonsense"]) == 1
    assert "no revision 'nonsense'" in capsys.readouterr().err
