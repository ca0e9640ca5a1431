"""Commands that ask one question and print the answer as a table, a tree or JSON.

It owns the look of the tables. Next: broker/client/client.py
"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from broker.cli.session import FAILED, with_client
from broker.cli.stdout import until_nobody_reads
from broker.client import ActorInfo, BarrierView, Client, Collection

WIDE = 250
"""Columns where stdout is no terminal: a table in a file or a pipe is not folded."""

TICK_LOGICAL_BITS = 18


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
    _show(f"collection {name} dropped")


def show_collections(server: str, *, as_json: bool) -> None:
    """All of them."""

    async def ask(client: Client) -> list[Collection]:
        return await client.collections.list()

    _print_collections(with_client(server, ask), as_json=as_json)


def show_channels(server: str, *, as_json: bool) -> None:
    """One row a pchannel."""
    found = with_client(server, Client.channels)
    if as_json:
        return _print_json([asdict(it) for it in found])
    table = _table(
        "pchannel", "term", "state", "node", "address", "ids", "closed", "bytes", "shards"
    )
    for it in found:
        table.add_row(
            it.name + (" (control)" if it.is_control_host else ""),
            str(it.term),
            it.state,
            str(it.node_id),
            it.address,
            f"{it.first_id}..{it.next_id - 1}" if it.next_id > it.first_id else "none",
            _time(it.closed_tick >> TICK_LOGICAL_BITS),
            f"{it.size_bytes:,}",
            str(len(it.vchannels)),
        )
    return _show(table)


def show_barriers(server: str, *, as_json: bool) -> None:
    """One row a barrier."""
    found = with_client(server, Client.barriers)
    if as_json:
        return _print_json([asdict(it) | {"kind": _kind(it)} for it in found])
    table = _table("barrier", "kind", "passed", "peers", "waits for", "silent", "removed")
    for it in found:
        table.add_row(
            it.name,
            _kind(it),
            _time(it.tick >> TICK_LOGICAL_BITS),
            str(len(it.peers)),
            *("\n".join(names) or "-" for names in (it.waits_for, it.silent, it.removed)),
        )
    return _show(table)


def _kind(barrier: BarrierView) -> str:
    return barrier.kind.name.lower().replace("_", "-")


def show_health(server: str, *, as_json: bool) -> None:
    """Key and value; the exit code says whether the server is healthy."""
    found = with_client(server, Client.health)
    if as_json:
        _print_json(asdict(found))
    else:
        table = Table(show_header=False, box=None)
        for name, value in asdict(found).items():
            table.add_row(name, _time(value) if name == "started_ms" else str(value))
        _show(table)
    if found.state != "healthy":
        raise SystemExit(FAILED)


def show_actors(server: str, *, as_json: bool) -> None:
    """The tree as it stands under its supervisors."""
    found = with_client(server, Client.actors)
    if as_json:
        return _print_json([asdict(it) for it in found])
    branches: dict[str, Tree] = {}
    roots: list[Tree] = []
    for it in found:
        parent, _, name = it.path.rpartition("/")
        label = _actor_label(name, it)
        if parent in branches:
            branches[it.path] = branches[parent].add(label)
        else:
            branches[it.path] = Tree(label)
            roots.append(branches[it.path])
    return _show(*roots)


def _actor_label(name: str, it: ActorInfo) -> Text:
    label = Text(name, style="bold" if it.kind == "supervisor" else "")
    label.append(f"  term {it.term}", style="dim")
    label.append(f"  {it.state}", style="green" if it.state == "running" else "red")
    if it.kind == "actor":
        label.append(f"  mailbox {it.mailbox_depth}/{it.mailbox_bound}  handled {it.handled}")
    label.append(f"  restarts {it.restarts}", style="red" if it.restarts else "dim")
    extra = "  ".join(f"{key} {value}" for key, value in sorted(it.extra.items()))
    return label.append(f"  {extra}", style="dim") if extra else label


def _print_collections(found: Sequence[Collection], *, as_json: bool, alone: bool = False) -> None:
    if as_json:
        rows = [asdict(it) for it in found]
        return _print_json(rows[0] if alone else rows)
    table = _table("collection", "id", "shards", "vchannels", "created")
    for it in found:
        vchannels = "\n".join(it.vchannels)
        table.add_row(it.name, str(it.id), str(len(it.vchannels)), vchannels, _time(it.created_ms))
    return _show(table)


def _table(*columns: str) -> Table:
    return Table(*columns, header_style="bold", row_styles=("", "dim"))


def _time(unix_ms: int) -> str:
    if not unix_ms:
        return "never"
    moment = datetime.fromtimestamp(unix_ms / 1000, tz=UTC).astimezone()
    return moment.isoformat(sep=" ", timespec="milliseconds")


def _print_json(value: dict[str, Any] | Iterable[dict[str, Any]]) -> None:
    with until_nobody_reads():
        sys.stdout.write(json.dumps(value) + "\n")


def _show(*shown: RenderableType) -> None:
    """What people and servers named is shown as it is: `[red]` is no style, `:cat:` no cat."""
    width = None if sys.stdout.isatty() else WIDE
    console = _Console(width=width, markup=False, emoji=False, highlight=False)
    with until_nobody_reads():
        console.print(*shown, sep="\n")


class _Console(Console):
    """rich ends the program with code 1 when nobody reads; here that is no error."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError
