"""The gateway's own settings: flags first, then the environment, then defaults; frozen once read.

The only place that reads the environment, provider keys included. Knows nothing of what
``providers.yaml`` says: the names of the keys are handed in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType

import platformdirs

from router.errors import ConfigurationError, ConfigurationProblem, SourcePosition

__all__ = [
    "LogFormat",
    "LogLevel",
    "Secret",
    "Settings",
    "find_configuration",
    "installed_path",
    "is_loopback",
    "read_child_environment",
    "read_database_url",
    "read_gateway_key",
    "read_provider_keys",
    "read_settings",
    "set_library_environment",
]

_PREFIX = "ROUNDHOUSE_"
_KNOWN = frozenset(
    _PREFIX + name
    for name in (
        "HOST", "PORT", "CONFIG", "DATA_DIR", "DATABASE_URL", "LOG_FORMAT", "LOG_LEVEL",
        "NO_ENGINE", "ALLOW_OPEN", "API_KEY", "CORS_ORIGINS",
    )
)  # fmt: skip
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})


class LogFormat(StrEnum):
    """How a log line is written."""

    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    """From which severity on a line is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Secret:
    """A key or token that shows itself to nobody by accident: its repr and str are redacted."""

    _value: str = field(repr=False)

    def reveal(self) -> str:
        """Return the secret itself, for the one place that sends it."""
        return self._value

    def __str__(self) -> str:
        return "***"


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the process was told, checked. ``shutdown_grace_s`` is for streams in flight, seconds."""

    config_path: Path
    data_dir: Path
    database_url: str
    host: str = "127.0.0.1"
    port: int = 8080
    log_format: LogFormat = LogFormat.CONSOLE
    log_level: LogLevel = LogLevel.INFO
    start_engine: bool = True
    allow_open: bool = False
    api_key: Secret | None = None
    cors_origins: tuple[str, ...] = ()
    unknown_names: tuple[str, ...] = ()
    shutdown_grace_s: float = 5.0

    @property
    def database_is_embedded(self) -> bool:
        """Whether the database is a file of ours, which may be migrated without asking."""
        return self.database_url.startswith("sqlite")


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def installed_path(name: str) -> Path:
    """Return where ``migrations`` or ``providers.yaml`` lies: in the package, else in the checkout."""
    package = Path(__file__).resolve().parent
    shipped = package / "_installed" / name
    return shipped if shipped.exists() else package.parent / name


def find_configuration(flag: Path | None, environment: Mapping[str, str] | None = None) -> Path:
    """Find ``providers.yaml``: the flag, ``ROUNDHOUSE_CONFIG``, the current folder, ours.

    Raises
    ------
    ConfigurationError
        The file that was named, or every place that was looked at, does not exist.

    """
    named = (os.environ if environment is None else environment).get(_PREFIX + "CONFIG")
    for source, path in (("--config", flag), (_PREFIX + "CONFIG", Path(named) if named else None)):
        if path is not None:
            if not path.is_file():
                raise _refused(
                    str(path),
                    f"{source} names a file that does not exist",
                    "give the path of a providers.yaml",
                )
            return path
    places = (Path("providers.yaml"), installed_path("providers.yaml"))
    for path in places:
        if path.is_file():
            return path
    looked = ", ".join(str(path.absolute()) for path in places)
    raise _refused("providers.yaml", f"not found: {looked}", "pass --config FILE or set ROUNDHOUSE_CONFIG")


def read_settings(
    flags: Mapping[str, object] | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Read flags (by field name; ``None`` means not given) over the environment over defaults.

    Raises
    ------
    ConfigurationError
        A value cannot be used: it names the variable or flag, and what would do.

    """
    source = _Source(dict(flags or {}), dict(os.environ if environment is None else environment))
    config_flag = source.flags.get("config")
    config_path = find_configuration(Path(str(config_flag)) if config_flag else None, source.environment)
    data_dir, database_url = _data_places(source)
    origins = source.environment.get(_PREFIX + "CORS_ORIGINS", "")
    return Settings(
        config_path=config_path,
        data_dir=data_dir,
        database_url=database_url,
        host=source.text("host") or "127.0.0.1",
        port=source.port(),
        log_format=LogFormat(source.choice("log_format", LogFormat, LogFormat.CONSOLE)),
        log_level=LogLevel(source.choice("log_level", LogLevel, LogLevel.INFO)),
        start_engine=not source.flag("no_engine"),
        allow_open=source.flag("allow_open"),
        api_key=read_gateway_key(source.environment),
        cors_origins=tuple(origin.strip() for origin in origins.split(",") if origin.strip()),
        unknown_names=_misspelt(source.environment),
    )


def read_database_url(
    flags: Mapping[str, object] | None = None, environment: Mapping[str, str] | None = None
) -> str:
    """Return the URL that :func:`read_settings` would give; needs no ``providers.yaml``.

    Raises
    ------
    ConfigurationError
        The URL names a kind of database that is not supported.

    """
    source = _Source(dict(flags or {}), dict(os.environ if environment is None else environment))
    return _data_places(source)[1]


def read_provider_keys(
    names: Iterable[str], environment: Mapping[str, str] | None = None
) -> Mapping[str, Secret]:
    """Read the keys that ``providers.yaml`` names; a variable that is not set, or blank, is left out."""
    source = os.environ if environment is None else environment
    values = {name: source.get(name, "").strip() for name in names}
    return MappingProxyType({name: Secret(value) for name, value in values.items() if value})


def read_gateway_key(environment: Mapping[str, str] | None = None) -> Secret | None:
    """Read the key that clients of the gateway send, where one is set."""
    key = (os.environ if environment is None else environment).get(_PREFIX + "API_KEY", "").strip()
    return Secret(key) if key else None


def read_child_environment(
    secret_names: Iterable[str], environment: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """Return what a started engine gets: everything but the provider keys and what is meant for us."""
    source = os.environ if environment is None else environment
    kept_out = set(secret_names)
    return MappingProxyType(
        {
            name: value
            for name, value in source.items()
            if name not in kept_out and not name.startswith(_PREFIX)
        }
    )


def set_library_environment(
    wanted: Mapping[str, str], environment: MutableMapping[str, str] | None = None
) -> None:
    """Set what a library reads from the environment when it is imported; what is set already stays."""
    target = os.environ if environment is None else environment
    for name, value in wanted.items():
        target.setdefault(name, value)


@dataclass(frozen=True, slots=True)
class _Source:
    """Flags over environment, one reader for each kind of value."""

    flags: dict[str, object]
    environment: dict[str, str]

    def text(self, name: str) -> str | None:
        value = self.flags.get(name)
        if value is None:
            value = self.environment.get(_PREFIX + name.upper())
        return str(value).strip() or None if value is not None else None

    def named(self, name: str) -> str:
        """How the person wrote it: the flag where it was given, else the variable."""
        given = self.flags.get(name) is not None
        return f"--{name.replace('_', '-')}" if given else _PREFIX + name.upper()

    def flag(self, name: str) -> bool:
        if self.flags.get(name):
            return True
        value = self.environment.get(_PREFIX + name.upper(), "").strip().lower()
        if value not in _TRUE | _FALSE:
            raise _refused(_PREFIX + name.upper(), f"{value!r} is neither yes nor no", "set it to 1 or 0")
        return value in _TRUE

    def port(self) -> int:
        value = self.text("port") or "8080"
        if not value.isascii() or not value.isdigit() or not 0 <= int(value) <= 65535:  # noqa: PLR2004 - TCP's range
            raise _refused(
                self.named("port"), f"{value!r} is not a port", "use a number from 0 (any free one) to 65535"
            )
        return int(value)

    def choice(self, name: str, kinds: type[StrEnum], default: StrEnum) -> str:
        value = (self.text(name) or default.value).lower()
        allowed = [kind.value for kind in kinds]
        if value not in allowed:
            raise _refused(self.named(name), f"{value!r} is not known", f"use one of {', '.join(allowed)}")
        return value


def _misspelt(environment: Iterable[str]) -> tuple[str, ...]:
    """Return names that look like ours and are not; others (of the installation, of tests) have their own."""
    strangers = (name for name in environment if name.startswith(_PREFIX) and name not in _KNOWN)
    return tuple(sorted(name for name in strangers if get_close_matches(name, _KNOWN, n=1, cutoff=0.9)))


def _data_places(source: _Source) -> tuple[Path, str]:
    """Return the data directory and the database's URL, by default a file in it."""
    named = source.text("data_dir") or platformdirs.user_data_dir("roundhouse", appauthor=False)
    data_dir = Path(named).expanduser().absolute()
    return data_dir, _async_url(source.text("database_url") or f"sqlite:///{data_dir / 'roundhouse.sqlite3'}")


def _async_url(url: str) -> str:
    """Name the asynchronous driver where a person wrote the plain scheme."""
    for plain, driver in (
        ("postgresql://", "postgresql+asyncpg://"),
        ("postgres://", "postgresql+asyncpg://"),
        ("sqlite://", "sqlite+aiosqlite://"),
    ):
        if url.startswith(plain):
            return driver + url.removeprefix(plain)
    if not url.startswith(("sqlite+aiosqlite://", "postgresql+asyncpg://")):
        scheme = url.partition(":")[0] if ":" in url else "without a scheme"
        raise _refused(
            "database url",
            f"a database {scheme if '://' in url else 'without a scheme'} is not supported",
            "use sqlite:///FILE or postgresql://USER@HOST/NAME",
        )
    return url


def _refused(where: str, message: str, fix: str) -> ConfigurationError:
    return ConfigurationError((ConfigurationProblem(message, SourcePosition(where), fix),))
