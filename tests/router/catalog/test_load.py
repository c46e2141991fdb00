"""Every problem of a providers.yaml is found, placed and explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.catalog.load import load_catalog, parse_catalog
from router.errors import ConfigurationError, ConfigurationProblem

FIT = "{chat: 0.5, code: 0.5, build: 0.5, long: 0.5}"
GOOD = f"""\
judge: {{candidates: [cloud/big]}}
entrypoints:
  auto: {{description: a}}
  chat: {{description: c, candidates: [cloud/big, home/small]}}
  code: {{description: c, candidates: [cloud/big]}}
  build: {{description: b, candidates: cloud/big}}
  long: {{description: l, candidates: [cloud/big]}}
providers:
  cloud: {{kind: openai, base_url: "https://api.example.com/v1/", key_env: CLOUD_API_KEY}}
  home: {{kind: engine, engine: {{model: models/some.gguf, context_tokens: 4096}}}}
candidates:
  - id: cloud/big
    provider: cloud
    model: big
    context_tokens: 100_000
    max_output_tokens: 8000
    price: {{input: 0.0605, output: 2}}
    task_fit: {FIT}
  - id: home/small
    provider: home
    model: small
    context_tokens: 4096
    max_output_tokens: 2048
    price: {{free: true}}
    task_fit: {FIT}
"""


def problems_of(text: str | bytes) -> tuple[ConfigurationProblem, ...]:
    with pytest.raises(ConfigurationError) as caught:
        parse_catalog(text.encode() if isinstance(text, str) else text, "p.yaml")
    return caught.value.problems


def test_a_good_file_loads() -> None:
    catalog = parse_catalog(GOOD.encode())

    assert catalog.providers["cloud"].base_url == "https://api.example.com/v1"
    assert catalog.providers["home"].local
    assert catalog.deployments["cloud/big"].price.input_micros == 60_500
    assert catalog.deployments["cloud/big"].context_tokens == 100_000
    assert catalog.entrypoints["build"].candidates == ("cloud/big",)
    assert catalog.judge is not None


JUDGE = "judge: {candidates: [cloud/big]}"
CHAT = "candidates: [cloud/big, home/small]"
PRICE = "price: {input: 0.0605, output: 2}"
ZERO_WEIGHTS = "{health: 0, task_fit: 0, context_slack: 0, cost: 0, expected_time: 0, load: 0}"


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        ("judge:", "jugde:", "1:1", "did you mean 'judge'?"),
        ("description: a}", "descripton: a}", "3:10", "did you mean 'description'?"),
        ("  auto: {description: a}\n", "", "3:3", "'auto' is missing"),
        (CHAT, "candidates: [clod/big]", "4:39", "did you mean 'cloud/big'?"),
        (CHAT, "candidates: []", "4:38", "no candidates"),
        ("code: {description: c, candidates: [cloud/big]}", "code: {description: c}", "5:9", "no candidates"),
        ("[cloud/big, home/small]", "[cloud/big, cloud/big]", "4:50", "listed twice"),
        (JUDGE, "judge: {candidates: [home/small]}", "1:22", "local provider"),
        (JUDGE, "judge: {candidates: [chat]}", "1:22", "through entrypoint 'chat'"),
        (JUDGE, "judge: {candidates: [auto]}", "1:22", "through entrypoint 'auto'"),
        (JUDGE, "judge: {candidates: [cloud/big, chat]}", "1:33", "'home/small' (through entrypoint"),
        (JUDGE, "judge: {candidates: [nobody]}", "1:22", "no candidate 'nobody'"),
        ("home: {kind: engine,", "home: {kind: engine, local: false,", "10:31", "always local"),
        ("kind: openai", "kind: openia", "9:17", "did you mean 'openai'?"),
        ('base_url: "https://api.example.com/v1/", ', "", "9:10", "needs base_url"),
        ("https://api.example.com/v1/", "api.example.com", "9:35", "not an http or https address"),
        ("https://api.example.com/v1/", "https://a.example/v1/chat/completions", "9:35", "leave"),
        ("https://api.example.com/v1/", "https://a.example/v1?x=1", "9:35", "query"),
        ("https://api.example.com/v1/", "https://a.example:99999/v1", "9:35", "not an http"),
        ("{model: models/some.gguf, ", "{", "10:32", "'model' is missing"),
        ("kind: engine,", "kind: engine, script: a.yaml,", "10:9", "must not have script"),
        ("kind: engine,", "kind: engine, base_url: 'https://a.example',", "10:9", "must not have base_url"),
        ("key_env: CLOUD_API_KEY", "key_env: cloud key", "9:75", "name of an environment variable"),
        ("key_env: CLOUD_API_KEY", "headers: {Authorization: x}", "9:76", "credentials do not belong"),
        ("  - id: home/small", "  - id: cloud/big", "19:9", "stands twice (first in line 12)"),
        ("  - id: home/small", "  - id: chat", "19:9", "also an entrypoint's name"),
        ("provider: home", "provider: hoem", "20:15", "did you mean 'home'?"),
        ("context_tokens: 100_000", 'context_tokens: "100000"', "15:21", "whole number, not text"),
        ("context_tokens: 100_000", "context_tokens: -5", "15:21", "at least 1"),
        ("context_tokens: 100_000", "context_tokens: 1e9", "15:21", "whole number"),
        ("context_tokens: 100_000", "context_tokens: 99999999999", "15:21", "at most"),
        ("max_output_tokens: 8000", "max_output_tokens: 200000", "16:24", "whole window of 100000"),
        ("max_output_tokens: 8000", "max_output_tokens:", "16:5", "not empty"),
        ("max_output_tokens: 2048", "max_prompt_tokens: 5000\n    max_output_tokens: 9", "23:24", "window"),
        ("context_tokens: 4096\n", "context_tokens: 8192\n", "22:21", "engine of provider 'home'"),
        (PRICE, "price: {input: 0, output: 0}", "17:12", "write free: true"),
        (PRICE, "price: {input: 1}", "17:12", "needs input and output"),
        (PRICE, "price: {input: -1, output: 2}", "17:20", "at least 0"),
        (PRICE, "price: {input: .nan, output: 2}", "17:20", "finite"),
        (PRICE, "price: {input: 1, output: 5000}", "17:31", "at most 2000"),
        (PRICE, "price: {input: 0.00000001, output: 2}", "17:20", "finer"),
        ("price: {free: true}", "price: {free: true, output: 2}", "24:12", "drop one"),
        ("price: {free: true}", 'price: {free: "yes"}', "24:19", "true or false"),
        (JUDGE, "limits: 3", "1:9", "should be a map, not a number"),
        (JUDGE, "limits: {max_attempts: 0}", "1:24", "at least 1"),
        ("description: l, ", "description: l, minimum_context_tokens: 200000, ", "7:71", "none below 200000"),
        ("description: l, ", "description: l, weights: " + ZERO_WEIGHTS + ", ", "7:35", "all 0"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(old: str, new: str, place: str, said: str) -> None:
    assert old in GOOD
    found = problems_of(GOOD.replace(old, new, 1))

    matching = [one for one in found if said in str(one)]
    assert matching, found
    assert str(matching[0].position) == f"p.yaml:{place}"
    assert all(one.fix for one in found)


def test_capabilities_are_checked_by_name() -> None:
    (problem,) = problems_of(GOOD.replace("model: big", "model: big\n    capabilities: [tools, visoin]"))

    assert "'visoin' is not known" in problem.message
    assert problem.fix == "did you mean 'vision'?"


def test_all_problems_are_reported_in_the_order_of_the_file() -> None:
    text = (
        GOOD.replace("judge:", "judeg:")
        .replace("provider: home", "provider: nobody")
        .replace("input", "inputs")
    )
    lines = [one.position.line for one in problems_of(text)]

    assert lines == sorted(lines, key=lambda line: line or 0)
    assert {1, 17, 20} <= set(lines)


def test_meaning_is_checked_even_where_the_schema_fails_elsewhere() -> None:
    text = GOOD.replace("max_output_tokens: 8000", "max_output_tokens: lots").replace(
        "[cloud/big, home", "[nope, home"
    )
    said = "\n".join(str(one) for one in problems_of(text))

    assert "whole number" in said
    assert "no candidate 'nope'" in said
    assert "no candidate 'cloud/big'" not in said  # it exists, though it is wrong


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("", "p.yaml", "is empty"),
        ("- a\n- b\n", "p.yaml:1:1", "should be a map"),
        ("a: [1, 2\nb: 3\n", "p.yaml:2:2", "not YAML"),
        ("a:\n\t- b\n", "p.yaml:2:1", "not YAML"),
        ("limits: {}\nlimits: {}\n", "p.yaml:2:1", "stands twice (first in line 1)"),
        ("limits: {max_attempts: 1, max_attempts: 2}\n", "p.yaml:1:27", "stands twice"),
        ("limits: {}\n---\njudge: {}\n", "p.yaml:2:1", "second YAML document"),
        ("limits: !!python/object:os.system {}\n", "p.yaml:1:9", "tag"),
        ("a: &a [*a]\n", "p.yaml:1:8", "contains itself"),
        ("a: *nothing\n", "p.yaml:1:4", "no anchor"),
        ("? [a, b]\n: c\n", "p.yaml:1:3", "cannot be a key"),
        ("a: " + "[" * 60 + "]" * 60 + "\n", "p.yaml:1:27", "nested deeper"),
        ("a: " + "[" * 60_000, "p.yaml:1:27", "nested deeper"),
    ],
)
def test_what_is_no_usable_yaml_is_refused(text: str, place: str, said: str) -> None:
    found = [one for one in problems_of(text) if said in one.message]

    assert found
    assert str(found[0].position) == place


def test_an_alias_bomb_is_refused_quickly() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]

    assert any("after expanding aliases" in one.message for one in problems_of("\n".join(lines)))


def test_a_huge_file_is_refused() -> None:
    (problem,) = problems_of(b"# " + b"x" * (2 << 20))

    assert "larger than" in problem.message


def test_bytes_that_are_not_utf8_are_placed() -> None:
    (problem,) = problems_of(b"limits: {}\nname: \xff\n")

    assert str(problem.position) == "p.yaml:2:7"


def test_anchors_and_merges_work() -> None:
    text = GOOD.replace(f"task_fit: {FIT}", f"task_fit: &fit {FIT}", 1)
    text = text[::-1].replace(f"task_fit: {FIT}"[::-1], "task_fit: {<<: *fit, long: 0.1}"[::-1], 1)[::-1]
    catalog = parse_catalog(text.encode())

    assert dict(catalog.deployments["home/small"].task_fit) == {
        "chat": 0.5,
        "code": 0.5,
        "build": 0.5,
        "long": 0.1,
    }


SECRETS = (
    "sk-proj-4fJ2kd83jsLLw02nxS9dkw",
    "sk-ant-api03-AbCdEfGh12345678_x",
    "sk-or-v1-0123456789abcdef0123456789abcdef",
    "gsk_A1b2C3d4E5f6G7h8I9j0K1l2",
    "csk-a1b2c3d4e5f6g7h8i9j0",
    "xai-A1b2C3d4E5f6G7h8I9j0",
    "AIzaSyA1b2C3d4E5f6G7h8I9j0K1l2M3n4",
    "nvapi-A1b2C3d4E5f6G7h8I9j0",
    "hf_A1b2C3d4E5f6G7h8I9j0",
    "0123456789abcdef0123456789abcdef",
    "0123456789abcdef0123456789abcdef.A1b2C3d4E5f6G7h8",
    "tgp_v1_A1b2C3d4E5f6G7h8I9j0",
)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("key_env: CLOUD_API_KEY", "key_env: SECRET"),
        ("key_env: CLOUD_API_KEY", "api_key: SECRET"),
        ("key_env: CLOUD_API_KEY", "headers: {X-Thing: SECRET}"),
        ("key_env: CLOUD_API_KEY", "SECRET: x"),
        ("provider: cloud", "provider: SECRET"),
        ("judge: {candidates: [cloud/big]}", "# my key is SECRET"),
        ("candidates: [cloud/big, home/small]", "candidates: [SECRET, SECRET]"),
    ],
)
def test_a_key_in_the_file_is_refused_and_never_repeated(secret: str, old: str, new: str) -> None:
    found = problems_of(GOOD.replace(old, new.replace("SECRET", secret), 1))

    assert any("a key stands in this file" in one.message for one in found)
    said = "\n".join(map(str, found))
    assert secret not in said
    assert secret[:16] not in said


def test_ordinary_names_are_no_keys() -> None:
    text = GOOD.replace(
        "model: big", "model: accounts/fireworks/models/deepseek-v4p1-flash-instruct-2507-fp8-long-context"
    )
    text = text.replace("models/some.gguf", f"/cache/snapshots/{'0123456789abcdef' * 3}/model.gguf")

    assert parse_catalog(text.encode()).version


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_catalog(tmp_path / "none.yaml")

    assert "none.yaml: cannot be read: No such file" in str(caught.value)


def test_relative_paths_are_meant_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "providers.yaml"
    path.write_text(GOOD + "# the end\n")
    engine = load_catalog(path).providers["home"].engine

    assert engine is not None
    assert engine.model == str(tmp_path / "models" / "some.gguf")
    assert (engine.longest_wait_s, engine.join_grace_s, engine.join_window_s) == (30, 10, 120)


def test_an_engines_waits_may_be_nothing_but_not_negative() -> None:
    said = "context_tokens: 4096, longest_wait_s: 0, join_grace_s: 0, join_window_s: 0}"
    engine = parse_catalog(GOOD.replace("context_tokens: 4096}", said).encode()).providers["home"].engine

    assert engine is not None
    assert (engine.longest_wait_s, engine.join_grace_s, engine.join_window_s) == (0, 0, 0)
    (problem,) = problems_of(GOOD.replace("context_tokens: 4096}", "context_tokens: 4096, join_grace_s: -1}"))
    assert "join_grace_s" in str(problem)


@pytest.mark.parametrize(
    ("url", "extra", "local"),
    [
        ("http://127.0.0.1:8000/v1", "", True),
        ("http://localhost:8000/v1", "", True),
        ("http://localhost:8000/v1", ", local: false", False),
        ("https://10.0.0.8/v1", ", local: true", True),
        ("https://api.example.com/v1", "", False),
    ],
)
def test_a_loopback_provider_is_local_unless_it_says_otherwise(url: str, extra: str, local: bool) -> None:
    text = GOOD.replace('"https://api.example.com/v1/", key_env: CLOUD_API_KEY', f'"{url}"{extra}')
    if local:
        assert any("local provider" in one.message for one in problems_of(text))
        return
    provider = parse_catalog(text.encode()).providers["cloud"]

    assert not provider.local
    assert not provider.needs_key


def test_the_version_follows_the_bytes() -> None:
    assert parse_catalog(GOOD.encode()).version == parse_catalog(GOOD.encode()).version
    assert parse_catalog(GOOD.encode()).version != parse_catalog(f"{GOOD}\n".encode()).version


@pytest.mark.parametrize(
    "address",
    [
        "http://localhost:8000/v1",
        "http://LOCALHOST./v1",
        "http://models.localhost/v1",
        "http://127.0.0.1:11434/v1",
        "http://127.8.9.1/v1",
        "http://127.1/v1",
        "http://0.0.0.0:80/v1",
        "http://[::1]:80/v1",
        "http://[::ffff:127.0.0.1]/v1",
        "http://host.docker.internal:8000/v1",
    ],
)
@pytest.mark.parametrize("judge", ["cloud/big", "code", "auto"])
def test_a_judge_on_this_machine_is_refused_by_whatever_name_it_goes(address: str, judge: str) -> None:
    text = GOOD.replace("https://api.example.com/v1/", address).replace(
        JUDGE, f"judge: {{candidates: [{judge}]}}"
    )

    found = [problem for problem in problems_of(text) if "local provider" in problem.message]

    assert any("'cloud/big'" in problem.message for problem in found)
    assert all("local slot" in problem.fix for problem in found)


def test_a_tunnel_to_another_machine_may_judge_where_the_file_says_so() -> None:
    tunnel = 'kind: openai, local: false, base_url: "http://127.0.0.1:4000/v1"'
    text = GOOD.replace('kind: openai, base_url: "https://api.example.com/v1/"', tunnel)

    catalog = parse_catalog(text.encode())

    assert catalog.judge is not None
    assert catalog.judge.candidates == ("cloud/big",)
