"""What `tidemark broadcasts` prints: a row for each broadcast, or for each holder of keys."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from broker.cli.session import with_client
from broker.cli.show.output import print_json, show, show_fitted
from broker.cli.show.tables import Column
from broker.client import Client, ResourceKey
from broker.client.cluster import BroadcastInfo, LockInfo


def show_broadcasts(server: str, *, quarantine_only: bool, as_json: bool) -> None:
    """Print one row for each broadcast."""

    async def ask(client: Client) -> list[BroadcastInfo]:
        return await client.broadcast.list(quarantine_only=quarantine_only)

    found = with_client(server, ask)
    if as_json:
        return print_json([asdict(it) | {"keys": _as_json(it.keys)} for it in found])
    return show_fitted(
        [
            Column("broadcast", [it.name or "-" for it in found]),
            Column("state", [it.state for it in found]),
            Column("type", [str(it.type) for it in found], leaves=1),
            Column("appended", [f"{it.appended}/{it.vchannels}" for it in found], leaves=2),
            Column("acked", [f"{it.acked}/{it.vchannels}" for it in found]),
            Column("by", [it.acked_by or "-" for it in found], leaves=2),
            Column("keys", [_lines(it.keys) for it in found]),
            Column("failures", [str(it.failures) for it in found], leaves=3),
            Column("cause", [it.poison or it.last_error or "-" for it in found]),
        ]
    )


def show_locks(server: str, *, as_json: bool) -> None:
    """Print one row for each broadcast that holds keys or waits for them."""

    async def ask(client: Client) -> list[LockInfo]:
        return await client.broadcast.locks()

    found = with_client(server, ask)
    if as_json:
        return print_json([asdict(it) | {"keys": _as_json(it.keys)} for it in found])
    return show_fitted(
        [
            Column("broadcast", [it.owner or "-" for it in found]),
            Column("state", ["holds" if it.held else "waits" for it in found]),
            Column("keys", [_lines(it.keys) for it in found]),
        ]
    )


def leave_quarantine(server: str, name: str, *, skip: bool) -> None:
    """Skip or retry the broadcast, and print which."""

    async def leave(client: Client) -> None:
        await (client.broadcast.skip(name) if skip else client.broadcast.retry(name))

    with_client(server, leave)
    show(f"broadcast {name} {'skipped' if skip else 'is retried'}")


def _lines(keys: Iterable[ResourceKey]) -> str:
    return "\n".join(map(str, keys))


def _as_json(keys: Iterable[ResourceKey]) -> list[dict[str, Any]]:
    return [{"domain": it.domain.name.lower(), "key": it.key, "shared": it.shared} for it in keys]
