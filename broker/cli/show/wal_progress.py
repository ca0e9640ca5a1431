"""What `tidemark wal alter`, `status` and `abort` print."""

from dataclasses import asdict
from typing import Final

import anyio

from broker.cli.session import fail, with_client
from broker.cli.show.output import print_json, show, show_fitted
from broker.cli.show.tables import Column
from broker.client import Client
from broker.client.cluster import ChannelSwitched, WalStatus

POLL_S: Final = 0.5
SEGMENTED: Final = "segmented"
"""How the log in segment files is called on the command line."""


def alter_wal(server: str, target: str, *, leave_history: bool, wait: bool) -> None:
    """Begin a switch; then show its progress until it has ended."""

    async def ask(client: Client) -> WalStatus:
        asked = "" if target == SEGMENTED else target
        status = await client.admin.alter_wal(asked, leave_history=leave_history)
        show(f"switching the log from {_place(status.source)} to {_place(status.target)}")
        return await _until_ended(client, status) if wait else status

    status = with_client(server, ask)
    if not wait:
        show("it goes on in the background; see `tidemark wal status`")
    elif status.stage != "done":
        fail(f"the switch has ended: {status.stage}; the log is in {_place(status.place)}")
    else:
        show(f"done: the log is in {_place(status.place)}")


def show_status(server: str, *, as_json: bool) -> None:
    """Print where the log is, and one row for each pchannel while it is switched."""
    status = with_client(server, _status)
    if as_json:
        return print_json({**asdict(status), "under_way": status.under_way})
    if not status.under_way:
        ended = f"; the newest switch: {status.stage}" if status.stage else ""
        return show(f"the log is in {_place(status.place)}{ended}")
    show(_line(status), f"from {_place(status.source)} to {_place(status.target)}")
    rows = status.channels
    return show_fitted(
        [
            Column("pchannel", [it.pchannel for it in rows]),
            Column("copied", [_share(it.copied_id, it.next_id) for it in rows]),
            Column("compared", [_share(it.checked_id, it.next_id) for it in rows]),
            Column("appends go to", [_appends(it, status) for it in rows]),
            Column("trouble", [it.trouble or "-" for it in rows]),
        ]
    )


def abort_wal(server: str) -> None:
    """Turn a switch back, and wait until the copy is gone."""

    async def ask(client: Client) -> WalStatus:
        return await _until_ended(client, await client.admin.abort_wal())

    status = with_client(server, ask)
    show(f"{status.stage}: the log is in {_place(status.place)}")


async def _until_ended(client: Client, status: WalStatus) -> WalStatus:
    """Print a line for each change, until nothing is left to do."""
    printed = ""
    while status.under_way:
        line = _line(status)
        if line != printed:
            show(line)
        printed = line
        await anyio.sleep(POLL_S)
        status = await client.admin.wal_status()
    return status


async def _status(client: Client) -> WalStatus:
    return await client.admin.wal_status()


def _line(status: WalStatus) -> str:
    channels = status.channels
    total = sum([it.next_id for it in channels])
    checked = sum([it.checked_id for it in channels])
    moved = sum([it.switched for it in channels])
    line = (
        f"{status.stage}: {_share(checked, total)} copied and compared, {moved} of"
        f" {len(channels)} pchannels switched"
    )
    troubles = sorted({it.trouble for it in channels if it.trouble})
    return "\n".join([line, *(f"  waits: {it}" for it in troubles)])


def _share(done: int, total: int) -> str:
    return f"{100 * done / total:.0f} %" if total else "-"


def _appends(channel: ChannelSwitched, status: WalStatus) -> str:
    return _place(status.target if channel.switched else status.source)


def _place(url: str) -> str:
    return url.partition("?")[0] if url else "segment files"
