"""Reads what is there of definitions when all is over: the logs, message by message, and the table.

A change is decoded from its message, with the vchannels that its broadcast names.
"""

from collections import defaultdict
from typing import Final

import anyio

from broker.client import Client, Received, TidemarkError
from broker.client.errors import NoSuchVChannel
from broker.codec.read_ddl import read_change
from broker.core.naming import pchannel_of
from broker.master.ddl.ddl_callbacks import DDL_TYPES
from broker.model.ids import VChannelName
from schemas.encoding.entries import write_entry
from schemas.encoding.varint import varint
from schemas.properties.broadcast_header import BroadcastHeader, read_broadcast_header
from schemas.properties.keys import BROADCAST
from tests.chaos.storm.ddl_history import Change, DdlHistory, Defined, Table

PAYLOAD: Final = b"\x12"
PROPERTY: Final = b"\x1a"


async def read_definitions(log: Client, ddl: DdlHistory) -> None:
    """Fill the history. Raises TidemarkError; the caller sets the deadline."""
    control = await log.master.get_dd_channel()
    ddl.control = [change_of(it) for it in await _changes_on(log, control)]
    table = ddl.table = await read_table(log)
    named = {it for change in ddl.control for it in change.vchannels}
    named |= {it for each in table.values() for it in each.vchannels}

    failures: list[TidemarkError] = []

    async def read(pchannel: str) -> None:
        found: dict[str, list[int]] = defaultdict(list)
        try:
            for message in await _changes_on(log, pchannel):
                found[message.vchannel].append(header_of(message).broadcast_id)
        except TidemarkError as error:
            failures.append(error)
            return
        # At once, and anew: the caller repeats what did not end in time.
        ddl.copies.update({name: found[name] for name in named & found.keys()})

    # Not vchannel by vchannel: half an hour of definitions names hundreds of a few pchannels.
    async with anyio.create_task_group() as tasks:
        for pchannel in sorted({pchannel_of(it) for it in named}):
            tasks.start_soon(read, pchannel)
    if failures:
        raise failures[0]


async def read_table(log: Client) -> Table:
    """Every collection of the default database as the master describes it."""
    found: Table = {}
    for name in await log.master.show_collections():
        it = await log.master.describe_collection(name)
        partitions = {
            each: int(id) for each, id in (await log.master.show_partitions(name)).items()
        }
        found[name] = Defined(it.id, it.vchannels, partitions, it.partitions, {*it.aliases})
    return found


async def _changes_on(log: Client, channel: str) -> list[Received]:
    """A vchannel that no message has named has none."""
    try:
        reader = log.read(channel, until="now", types=list(DDL_TYPES))
        return [it async for it in reader.messages() if BROADCAST.key in it.tags]
    except NoSuchVChannel:
        return []


def change_of(message: Received) -> Change:
    """What the message means, with its broadcast."""
    header = header_of(message)
    body = b"".join(
        [
            PAYLOAD + varint(len(message.payload)) + message.payload,
            *(write_entry(PROPERTY, key, value) for key, value in message.tags.items()),
        ]
    )
    vchannels = tuple(VChannelName(it) for it in header.vchannels)
    change = read_change(message.type, body, vchannels)
    assert change is not None, message
    others = tuple(it for it in vchannels if it != message.vchannel)
    return Change(header.broadcast_id, message.tick, change, others)


def header_of(message: Received) -> BroadcastHeader:
    """Of the broadcast that the message is a copy of."""
    return read_broadcast_header(message.tags[BROADCAST.key])
