"""What `tidemark cursors` prints: one row for each cursor."""

from collections.abc import Sequence
from dataclasses import asdict

from broker.cli.counted import counted
from broker.cli.session import with_client
from broker.cli.show.output import TICK_LOGICAL_BITS, print_json, show, show_fitted
from broker.cli.show.tables import Column, moment, natural_order, short_moment
from broker.client import Client
from broker.client.cluster import CursorView

RETENTION = "Retention does not wait for cursors: set it longer than a reader may be away."


def show_cursors(server: str, *, as_json: bool) -> None:
    """Print one row for each cursor, sorted by name."""
    found = with_client(server, lambda client: client.cursors.list())
    if as_json:
        return print_json([asdict(it) for it in found])
    at = [it.tick >> TICK_LOGICAL_BITS for it in found]
    moved = [it.moved_ms for it in found]
    newest = max(moved, default=0)
    show_fitted(
        [
            Column("cursor", [it.name for it in found]),
            Column(
                "processed up to", list(map(moment, at)), [short_moment(it, newest) for it in at]
            ),
            Column("tick", [str(it.tick) for it in found], leaves=2),
            Column("lag ms", [f"{it.lag_ms:,}" for it in found]),
            Column("behind closed ms", [_behind(it) for it in found]),
            Column("moved", list(map(moment, moved)), leaves=1),
            Column("channels", ["\n".join(_channels(it.channels)) for it in found], leaves=3),
        ]
    )
    if found:
        show(RETENTION)
    return None


def move_cursor(server: str, name: str, tick: int, targets: Sequence[str]) -> None:
    """Move the cursor, and print where it is now."""

    async def move(client: Client) -> CursorView:
        return await client.cursor(name).move(tick, targets)

    moved = with_client(server, move)
    show(f"cursor {name} is at tick {moved.tick} on {counted(len(moved.channels), 'channel')}")


def drop_cursor(server: str, name: str) -> None:
    """Drop the cursor, and say so."""

    async def drop(client: Client) -> None:
        await client.cursor(name).drop()

    with_client(server, drop)
    show(f"cursor {name} dropped")


def _behind(cursor: CursorView) -> str:
    return f"{cursor.behind_ms:,}" if cursor.closed_tick else "unknown"


def _channels(names: Sequence[str]) -> list[str]:
    return sorted(names, key=natural_order)
