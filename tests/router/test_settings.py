from __future__ import annotations

from pathlib import Path

import pytest

from router.errors import ConfigurationError
from router.settings import (
    LogFormat,
    Secret,
    find_configuration,
    is_loopback,
    read_provider_keys,
    read_settings,
    set_library_environment,
)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "providers.yaml"
    path.write_text("version: 1\n")
    return str(path)


def test_a_flag_wins_over_its_variable_and_a_variable_over_the_default(file: str) -> None:
    environment = {"ROUNDHOUSE_CONFIG": file, "ROUNDHOUSE_PORT": "9000", "ROUNDHOUSE_LOG_FORMAT": "json"}

    settings = read_settings({"port": "9001"}, environment)

    assert (settings.port, settings.log_format, settings.host) == (9001, LogFormat.JSON, "127.0.0.1")


@pytest.mark.parametrize(
    ("flags", "environment", "named"),
    [
        ({}, {"ROUNDHOUSE_PORT": "eighty"}, "ROUNDHOUSE_PORT"),
        ({"port": "70000"}, {}, "--port"),
        ({"port": "-1"}, {}, "--port"),
        ({}, {"ROUNDHOUSE_LOG_LEVEL": "loud"}, "ROUNDHOUSE_LOG_LEVEL"),
        ({"log_format": "xml"}, {}, "--log-format"),
        ({}, {"ROUNDHOUSE_NO_ENGINE": "maybe"}, "ROUNDHOUSE_NO_ENGINE"),
        ({"database_url": "mysql://db/x"}, {}, "database url"),
    ],
)
def test_a_bad_value_is_refused_by_name(
    file: str, flags: dict[str, str], environment: dict[str, str], named: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_settings({"config": file, **flags}, environment)

    assert str(caught.value).startswith(named)
    assert " -> " in str(caught.value)


def test_a_misspelt_variable_of_ours_is_noticed(file: str) -> None:
    settings = read_settings({"config": file}, {"ROUNDHOUSE_PROT": "9000", "ROUNDHOUSE_SKIP_NATIVE": "1"})

    assert settings.unknown_names == ("ROUNDHOUSE_PROT",)


def test_a_plain_database_scheme_gets_its_driver(file: str) -> None:
    assert read_settings({"config": file, "database_url": "postgresql://me@db/x"}, {}).database_url == (
        "postgresql+asyncpg://me@db/x"
    )
    assert read_settings({"config": file, "data_dir": "/d"}, {}).database_url == (
        "sqlite+aiosqlite:////d/roundhouse.sqlite3"
    )


def test_a_file_that_was_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--config names a file that does not exist"):
        find_configuration(tmp_path / "none.yaml", {})
    with pytest.raises(ConfigurationError, match="ROUNDHOUSE_CONFIG names a file"):
        find_configuration(None, {"ROUNDHOUSE_CONFIG": str(tmp_path / "none.yaml")})


def test_the_file_of_the_current_folder_comes_before_the_installed_one(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(file).parent)

    assert find_configuration(None, {}) == Path("providers.yaml")


def test_a_secret_shows_itself_to_nobody_by_accident() -> None:
    secret = Secret("sk-very-secret-indeed")

    assert "very" not in f"{secret} {secret!r} {[secret]}"
    assert secret.reveal() == "sk-very-secret-indeed"


def test_a_blank_key_is_no_key() -> None:
    keys = read_provider_keys(["A_KEY", "B_KEY", "C_KEY"], {"A_KEY": " x ", "B_KEY": "  "})

    assert {name: key.reveal() for name, key in keys.items()} == {"A_KEY": "x"}


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104 - asked about, not bound
        ("box", False),
    ],
)
def test_loopback_is_this_machine_only(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_a_librarys_environment_is_set_where_the_person_has_said_nothing() -> None:
    environment = {"LITELLM_MODE": "DEV"}

    wanted = {"LITELLM_MODE": "PRODUCTION", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    set_library_environment(wanted, environment)

    assert environment == {"LITELLM_MODE": "DEV", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
