"""Commands that ask one question and print the answer as a table, a tree or JSON.

It owns what the tables tell.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table

from broker.cli.session import FAILED, with_client
from broker.cli.show.tables import Column, fitted, moment, natural_order, short_moment, table_width
from broker.cli.stdout import until_nobody_reads
from broker.client import Client, Collection
from broker.client.cluster import BarrierView, ChannelInfo, Health

WIDE = 250
"""Columns where stdout is no terminal: a table in a file or a pipe is not folded."""

TICK_LOGICAL_BITS = 18

ASSIGNED = "assigned"


def create_collection(server: str, name: str, shards: int, *, as_json: bool) -> None:
    """Create it and print where its shards are."""

    async def create(client: Client) -> Collection:
        return await client.collections.create(name, shards=shards)

    created = with_client(server, create)
    _print_collections([created], as_json=as_json, alone=True)


def drop_collection(server: str, name: str) -> None:
    """Drop it and say so."""

    async def drop(client: Client) -> None:
        await client.collections.drop(name)

    with_client(server, drop)
    show(f"collection {name} dropped")


def show_collections(server: str, *, as_json: bool) -> None:
    """All of them."""

    async def ask(client: Client) -> list[Collection]:
        return await client.collections.list()

    _print_collections(with_client(server, ask), as_json=as_json)


def show_channels(server: str, *, as_json: bool) -> None:
    """One row a pchannel."""
    found = with_client(server, lambda client: client.admin.channels())
    if as_json:
        return print_json([asdict(it) for it in found])
    return show_fitted(_channel_columns(sorted(found, key=lambda it: natural_order(it.name))))


def _channel_columns(found: Sequence[ChannelInfo]) -> list[Column]:
    closed = [it.closed_tick >> TICK_LOGICAL_BITS for it in found]
    newest = max(closed, default=0)
    all_assigned = all(_state(it) == ASSIGNED for it in found)
    one_node = len({it.node_id for it in found}) < 2
    return [
        Column("pchannel", [it.name for it in found]),
        Column("term", [str(it.term) for it in found]),
        Column("state", [_state(it) for it in found], leaves=3 if all_assigned else 0),
        Column("node", [str(it.node_id) for it in found], leaves=4 if one_node else 0),
        Column("address", [it.address for it in found], leaves=5),
        Column("ids", [_ids(it) for it in found]),
        Column("closed", list(map(moment, closed)), [short_moment(it, newest) for it in closed]),
        Column("confirmed", [str(it.last_confirmed_id) for it in found], leaves=6),
        Column("open txns", [_txns(it) for it in found], leaves=7),
        Column("segments", [str(it.growing_segments) for it in found], leaves=8),
        Column("bytes", [f"{it.size_bytes:,}" for it in found], leaves=1),
        Column("shards", [_shards(it) for it in found], leaves=2),
    ]


def _state(channel: ChannelInfo) -> str:
    return f"{channel.state} read-only" if channel.read_only else channel.state


def _txns(channel: ChannelInfo) -> str:
    prepared = channel.prepared_txns
    return f"{channel.open_txns}, {prepared} prepared" if prepared else str(channel.open_txns)


def _ids(channel: ChannelInfo) -> str:
    if channel.next_id <= channel.first_id:
        return "none"
    return f"{channel.first_id}..{channel.next_id - 1}"


def _shards(channel: ChannelInfo) -> str:
    return f"{len(channel.vchannels)}{' + control' if channel.is_control_host else ''}"


def pause_consumption(server: str, *, paused: bool) -> None:
    """Pause or resume new consumers, and print which."""

    async def ask(client: Client) -> None:
        await (client.admin.pause_consumption() if paused else client.admin.resume_consumption())

    with_client(server, ask)
    show("new consumers wait until consumption is resumed" if paused else "consumption is resumed")


def show_streaming(server: str, at_least: int) -> None:
    """The version, after raising it when it was lower."""

    async def ask(client: Client) -> int:
        return await client.admin.streaming_version(at_least)

    version = with_client(server, ask)
    served = "channels take appends" if version else "channels are read-only"
    show(f"streaming version {version}: {served}")


def show_barriers(server: str, *, as_json: bool) -> None:
    """One row a barrier."""
    found = with_client(server, lambda client: client.barriers.list())
    if as_json:
        return print_json([asdict(it) | {"kind": _kind(it)} for it in found])
    passed = [it.tick >> TICK_LOGICAL_BITS for it in found]
    newest = max(passed, default=0)
    return show_fitted(
        [
            Column("barrier", [it.name for it in found]),
            Column("kind", list(map(_kind, found)), leaves=2),
            Column(
                "passed", list(map(moment, passed)), [short_moment(it, newest) for it in passed]
            ),
            Column("peers", [str(len(it.peers)) for it in found], leaves=1),
            Column("waits for", [_lines(it.waits_for) for it in found]),
            Column("silent", [_lines(it.silent) for it in found]),
            Column("removed", [_lines(it.removed) for it in found]),
        ]
    )


def _lines(names: Sequence[str]) -> str:
    return "\n".join(sorted(names, key=natural_order)) or "-"


def _kind(barrier: BarrierView) -> str:
    return barrier.kind.name.lower().replace("_", "-")


def show_health(server: str, *, as_json: bool) -> None:
    """Key and value; the exit code says whether the server is healthy."""
    found = with_client(server, lambda client: client.admin.health())
    if as_json:
        print_json(asdict(found))
    else:
        table = Table(show_header=False, box=None)
        shown = {**asdict(found), "started_ms": moment(found.started_ms)}
        for name in ("troubles", "damages", "damages_unlisted"):
            del shown[name]
        for name, value in shown.items():
            table.add_row(name.removesuffix("_ms"), str(value))
        show(table, *_troubles(found))
    if found.state != "healthy":
        raise SystemExit(FAILED)


def _troubles(found: Health) -> list[str]:
    lines = [f"{it.name} is {it.state}: {it.cause}" for it in found.troubles]
    for it in found.damages:
        met = "once" if it.times == 1 else f"{it.times:,} times"
        told = "readers were led around it" if it.skipped else "readers were refused"
        lines.append(f"{it.file}: damaged at byte {it.offset}: {it.reason}; met {met}, {told}")
    if found.damages_unlisted:
        lines.append(f"and damage in other places, met {found.damages_unlisted:,} times")
    return lines


def _print_collections(found: Sequence[Collection], *, as_json: bool, alone: bool = False) -> None:
    if as_json:
        rows = [asdict(it) for it in found]
        return print_json(rows[0] if alone else rows)
    created = [it.created_ms for it in found]
    return show_fitted(
        [
            Column("collection", [it.name for it in found]),
            Column("id", [str(it.id) for it in found], leaves=2),
            Column("shards", [str(len(it.vchannels)) for it in found], leaves=3),
            Column("vchannels", ["\n".join(it.vchannels) for it in found]),
            Column("created", list(map(moment, created)), leaves=1),
        ]
    )


def print_json(value: dict[str, Any] | Iterable[dict[str, Any]]) -> None:
    """One line of JSON; nobody needs to read it."""
    with until_nobody_reads():
        sys.stdout.write(json.dumps(value) + "\n")


def show(*shown: RenderableType) -> None:
    """Each on lines of its own."""
    with until_nobody_reads():
        _console().print(*shown, sep="\n")


def show_fitted(columns: Sequence[Column]) -> None:
    """Print a table that suits the terminal; see `tables`."""
    console = _console()
    table = fitted(columns, console)
    console.width = max(console.width, table_width(table, console))  # a terminal folds, rich cuts
    with until_nobody_reads():
        console.print(table)


def _console() -> Console:
    """What people and servers named is shown as it is: `[red]` is no style, `:cat:` no cat."""
    width = None if sys.stdout.isatty() else WIDE
    return _Console(width=width, markup=False, emoji=False, highlight=False)


class _Console(Console):
    """rich ends the program with code 1 when nobody reads; here that is no error."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError
