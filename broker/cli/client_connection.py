"""Where a command connects to: from flags, else the environment, else files, else defaults.

For each setting the first of these that has it: `--server` and `--token-file`, the profile of
`--profile`, `TIDEMARK_SERVER`, the profile of `TIDEMARK_PROFILE`, `TIDEMARK_TOKEN_FILE`,
`TIDEMARK_CLUSTER` and the three of TLS, `[client]` of the configuration file. `TIDEMARK_TOKEN` goes
before a file that neither an option nor a chosen profile names.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from broker.cli.global_options import chosen
from broker.client import DEFAULT_SERVER, Deadlines, Tls
from broker.config_file import (
    CLIENT_TABLE,
    CONFIG_FILE,
    BadConfig,
    ClientConfig,
    client_config,
    is_server,
    read_config,
)

DEFAULT_CLUSTER: Final = "by-dev"
DEADLINES: Final = ("connect_s", "open_s", "append_s", "call_s")
TLS: Final = ("tls_ca", "tls_cert", "tls_key")
PROFILES: Final = "profiles.toml"
FLAG: Final = "--token-file"


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """How to call `connect`; `origins` says of each setting where it came from."""

    server: str
    cluster: str
    deadlines: Deadlines
    tls: Tls | None
    origins: Mapping[str, str]
    token: str = field(default="", repr=False)
    token_file: str | None = None


def connection(server: str = "", profile: str | None = None) -> ClientConnection:
    """The connection of this command; `server` is its flag, `profile` stands for `--profile`.

    Raises BadConfig for an address that is none, a file that is wrong, an unknown profile.
    """
    if server and not is_server(server):
        raise BadConfig(
            f"{server!r} is not a server address; use HOST:PORT, such as {DEFAULT_SERVER}, or"
            " HOST:PORT,HOST:PORT for coordinators that stand by for each other"
        )
    values: dict[str, Any] = {"server": DEFAULT_SERVER, "cluster": DEFAULT_CLUSTER}
    origins = dict.fromkeys([it.name for it in fields(ClientConfig)], "default")
    # The most important one last.
    for origin, config in reversed([*_sources(server, profile or chosen().profile)]):
        if config.tls is None and (config.tls_ca or config.tls_cert):
            # `tls = false` of a less important place must not send in clear what this one secures.
            values.pop("tls", None)
            origins["tls"] = "default"
        for name in origins:
            value = getattr(config, name)
            if value is not None:
                values[name], origins[name] = value, origin
    deadlines = Deadlines(**{name: values[name] for name in DEADLINES if name in values})
    tls = _tls(values, origins)
    token = _token(values, origins, profile or chosen().profile)
    called = values["server"], values["cluster"], deadlines, tls, origins
    return ClientConnection(*called, token, values.get("token_file"))


def _token(values: Mapping[str, Any], origins: Mapping[str, str], profile: str | None) -> str:
    """The token to show; "" for none. Raises BadConfig for a file that cannot be read."""
    file, origin = values.get("token_file"), origins["token_file"]
    named = origin == FLAG or (profile and origin == f"profile {profile}")
    if not named and (token := os.environ.get("TIDEMARK_TOKEN")):
        return token.strip()
    if file is None:
        return ""
    try:
        token = Path(file).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it holds no token"
        raise BadConfig(
            f"token_file ({origin}): cannot read {file}: {why}; name the file of a token of yours"
            " with --token-file"
        ) from None
    if not token:
        raise BadConfig(f"token_file ({origin}): {file} is empty; it must hold a token")
    return token


def _tls(values: Mapping[str, Any], origins: Mapping[str, str]) -> Tls | None:
    """How to connect with TLS. Raises BadConfig for a contradiction."""
    ca, cert, key = (values.get(name) for name in TLS)
    if values.get("tls") is False:
        return None
    if (cert is None) != (key is None):
        given, missing = ("tls_cert", "tls_key") if key is None else ("tls_key", "tls_cert")
        raise BadConfig(f"{given} ({origins[given]}) is set without {missing}; set both or none")
    return Tls(ca, cert, key) if values.get("tls") or ca or cert else None


def _sources(server: str, profile: str | None) -> Iterator[tuple[str, ClientConfig]]:
    """Every place that may say where to connect to, the most important one first."""
    if server:
        yield "--server", ClientConfig(server=server)
    if chosen().token_file is not None:
        yield FLAG, ClientConfig(token_file=str(chosen().token_file))
    if profile:
        yield f"profile {profile}", read_profile(profile)
    if from_environment := os.environ.get("TIDEMARK_SERVER"):
        if not is_server(from_environment):
            raise BadConfig(f"TIDEMARK_SERVER must be HOST:PORT, not {from_environment!r}")
        yield "TIDEMARK_SERVER", ClientConfig(server=from_environment)
    elif (named := os.environ.get("TIDEMARK_PROFILE")) and not profile:
        yield f"profile {named}", read_profile(named)
    # The server's own variables: where they name the cluster and its certificates, commands mean
    # the same ones.
    for name in ("cluster", "token_file", *TLS):
        variable = f"TIDEMARK_{name.upper()}"
        if value := os.environ.get(variable):
            yield variable, client_config({name: value}, "the environment")
    file = config_file()
    where = f"[{CLIENT_TABLE}] of {file or CONFIG_FILE}"
    yield where, client_config(read_config(file).get(CLIENT_TABLE, {}), where)


def config_file() -> Path | None:
    """The configuration file that was named, by an option or the environment."""
    named = os.environ.get("TIDEMARK_CONFIG")
    return chosen().config or (Path(named) if named else None)


def profiles_path() -> Path:
    """The file of profiles, in the user's folder of configurations as the system has it."""
    from platformdirs import user_config_path

    return user_config_path("tidemark", appauthor=False) / PROFILES


def profiles() -> dict[str, ClientConfig]:
    """Every profile of the user, by name; none without a file. Raises BadConfig."""
    path = profiles_path()
    try:
        content = tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadConfig(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path} is not valid TOML: {error}") from None
    return {name: client_config(it, f"[{name}] of {path}") for name, it in content.items()}


def read_profile(name: str) -> ClientConfig:
    """The profile of this name. Raises BadConfig, which says what there is."""
    found = profiles()
    if name in found:
        return found[name]
    near = get_close_matches(name, found, n=1)
    if near:
        advice = f"did you mean {near[0]!r}?"
    elif found:
        advice = f"there are {', '.join(sorted(found))}"
    else:
        advice = f'add a table to it: [{name}] with server = "HOST:PORT"'
    raise BadConfig(f"there is no profile {name!r} in {profiles_path()}; {advice}")
