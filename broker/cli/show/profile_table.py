"""What `tidemark profile` prints."""

from dataclasses import asdict

from broker.cli.client_connection import (
    DEADLINES,
    TLS,
    ClientConnection,
    connection,
    profiles,
    profiles_path,
)
from broker.cli.session import USAGE, fail
from broker.cli.show.output import print_json, show, show_fitted
from broker.cli.show.tables import Column
from broker.config_file import BadConfig


def show_profiles(*, as_json: bool) -> None:
    """Print one row for each profile."""
    try:
        found = sorted(profiles().items())
    except BadConfig as error:
        fail(str(error), USAGE)
    if as_json:
        return print_json([{"name": name, **asdict(it)} for name, it in found])
    if not found:
        return show(f"there are no profiles; {profiles_path()} would hold them")
    return show_fitted(
        [
            Column("profile", [name for name, _ in found]),
            Column("server", [it.server or "" for _, it in found]),
            Column("cluster", [it.cluster or "" for _, it in found], leaves=1),
        ]
    )


def show_profile(name: str, *, as_json: bool) -> None:
    """Print the settings that commands use with this profile, or with none."""
    try:
        found = connection(profile=name or None)
    except BadConfig as error:
        fail(str(error), USAGE)
    values = _values(found)
    if as_json:
        rows = {key: {"value": values[key], "from": found.origins[key]} for key in values}
        return print_json(rows)
    return show_fitted(
        [
            Column("setting", list(values)),
            Column("value", [str(it) for it in values.values()]),
            Column("from", [found.origins[key] for key in values]),
        ]
    )


def _values(found: ClientConnection) -> dict[str, object]:
    deadlines = asdict(found.deadlines)
    return {
        "server": found.server,
        "cluster": found.cluster,
        "tls": found.tls is not None,
        **{name: getattr(found.tls, name.removeprefix("tls_"), None) for name in TLS},
        "token_file": found.token_file,
        **{name: deadlines[name] for name in DEADLINES},
    }
