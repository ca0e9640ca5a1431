"""What `tidemark cursors` prints: one row for each cursor."""

from collections.abc import Collection, Sequence
from dataclasses import asdict

from broker.cli.counted import counted
from broker.cli.session import with_client
from broker.cli.show.figures import size_text
from broker.cli.show.output import TICK_LOGICAL_BITS, print_json, show, show_fitted
from broker.cli.show.tables import Column, moment, natural_order, short_moment
from broker.cli.start_text import place_of
from broker.client import Client
from broker.client.cluster import CursorView
from broker.model.named_cursor import ChannelLag


def show_cursors(server: str, *, as_json: bool) -> None:
    """Print one row for each cursor, sorted by name."""
    found = with_client(server, lambda client: client.cursors.list())
    if as_json:
        return print_json([_fields(it) for it in found])
    moved = [it.moved_ms for it in found]
    newest = max(moved, default=0)
    show_fitted(
        [
            Column("cursor", [it.name for it in found]),
            Column(
                "processed up to",
                [_moment(it.tick) for it in found],
                [_short_moment(it.tick, newest) for it in found],
            ),
            Column("tick", [str(it.tick) for it in found], leaves=2),
            Column("lag ms", [f"{it.lag_ms:,}" for it in found], leaves=4),
            Column("behind closed ms", [_behind(it) for it in found]),
            Column("messages behind", [_rows(it.lags.values(), it.channels) for it in found]),
            Column("bytes behind", [_bytes(it.lags.values(), it.channels) for it in found]),
            Column("holds back", [_held(it) for it in found], leaves=5),
            Column("moved", list(map(moment, moved)), leaves=1),
            Column("channels", ["\n".join(_channels(it.channels)) for it in found], leaves=3),
        ]
    )
    for it in found:
        show(*_passed(it))
    return None


def show_cursor(server: str, name: str, *, as_json: bool) -> None:
    """Print one row for each vchannel of the cursor."""

    async def get(client: Client) -> CursorView:
        return await client.cursor(name).get()

    found = with_client(server, get)
    if as_json:
        return print_json(_fields(found))
    names = _channels(found.channels)
    places = [found.positions[it] for it in names]
    lags = [[found.lags[it]] if it in found.lags else [] for it in names]
    show_fitted(
        [
            Column("vchannel", names),
            Column("processed up to", [_moment(it.closed) for it in places]),
            Column("tick", [str(it.closed) for it in places], leaves=1),
            Column("closed tick", [str(found.closed_ticks[it]) for it in names], leaves=2),
            Column("messages behind", [_rows(it, ("",)) for it in lags]),
            Column("bytes behind", [_bytes(it, ("",)) for it in lags]),
        ]
    )
    return show(f"cursor {name} holds back {_held(found)} from retention", *_passed(found))


def reset_cursor(
    server: str, name: str, to: str, targets: Sequence[str], *, holds: bool | None
) -> None:
    """Reset the cursor, and print where it is now."""
    place = place_of(to, "reset to", ids=False)
    assert not isinstance(place, int)

    async def reset(client: Client) -> CursorView:
        return await client.cursor(name).reset(place, targets, holds=holds)

    found = with_client(server, reset)
    where = f"at tick {found.tick}" if found.tick else "at the beginning"
    show(f"cursor {name} is {where} on {len(found.channels)} channels")


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


def _held(cursor: CursorView) -> str:
    return size_text(cursor.held_bytes) if cursor.holds else "never"


def _passed(cursor: CursorView) -> list[str]:
    """What it has lost, of each pchannel."""
    return [
        f"cursor {cursor.name} was passed by retention on {pchannel}: {why}; reset or drop it"
        for pchannel, why in sorted(cursor.passed.items())
    ]


def _behind(cursor: CursorView) -> str:
    return f"{cursor.behind_ms:,}" if cursor.closed_tick else "unknown"


def _fields(cursor: CursorView) -> dict[str, object]:
    totals = {"rows_behind": cursor.rows_behind, "bytes_behind": cursor.bytes_behind}
    return asdict(cursor) | totals | {"exact": cursor.exact}


def _moment(tick: int) -> str:
    return moment(tick >> TICK_LOGICAL_BITS) if tick else "the beginning"


def _short_moment(tick: int, newest_ms: int) -> str:
    return short_moment(tick >> TICK_LOGICAL_BITS, newest_ms) if tick else "the beginning"


def _rows(lags: Collection[ChannelLag], channels: Sequence[str]) -> str:
    return _number([it.rows for it in lags], lags, channels)


def _bytes(lags: Collection[ChannelLag], channels: Sequence[str]) -> str:
    return _number([it.bytes for it in lags], lags, channels)


def _number(each: list[int], lags: Collection[ChannelLag], channels: Sequence[str]) -> str:
    """The sum, marked where it was estimated; unknown while a channel has no owner."""
    if len(each) < len(channels):
        return "unknown"
    return f"{'' if all(it.exact for it in lags) else '~'}{sum(each):,}"


def _channels(names: Sequence[str]) -> list[str]:
    return sorted(names, key=natural_order)
