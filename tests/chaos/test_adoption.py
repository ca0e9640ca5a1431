"""A data folder of an earlier release, whose coordinator is killed while it announces collections.

The node and its open transactions live through it: announcing ends nothing.
"""

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa

from broker.client import Client, connect
from broker.coordinator.json_records import encode_fields
from broker.coordinator.records import COLLECTION_ID_KEY, collection_key, encode_number
from broker.core.naming import control_channel, pchannel_names, vchannel_name
from broker.data_folder import DataFolder
from broker.meta.sqlite import SqliteMetaStore
from broker.model.ids import CollectionId
from broker.model.message import MessageType
from schemas.arrow.columns import encode_schema
from schemas.encoding.base64_text import read_base64
from schemas.generated.milvus.proto import messages
from tests.broker_process import free_port
from tests.roles_processes import RoleProcess, until

OLD = 400
"""Every fourth one has a schema. The last name is that of the one that is written to."""
KILLED_AT = (50, 80)
"""The first coordinators are killed once they have announced so many."""
PCHANNELS = pchannel_names("by-dev", 4)
CONTROL = control_channel(PCHANNELS[0])
SCHEMA = pa.schema([("k", pa.int64())])
WRITTEN = f"old{OLD - 1:04}"


def has_rows(number: int) -> bool:
    return number % 4 == 3


async def make_old(folder: Path) -> None:
    """The metadata as the release before the master wrote it."""
    schema = {"arrow": b64encode(encode_schema(SCHEMA)).decode(), "widths": [1]}
    async with await SqliteMetaStore.open(DataFolder(folder).metadata) as store:
        for number in range(OLD):
            id = CollectionId(100 + number)
            places = [PCHANNELS[(number + at) % 4] for at in range(2)]
            name = f"old{number:04}"
            record = {
                "name": name,
                "id": id,
                "vchannels": [vchannel_name(it, id, at) for at, it in enumerate(places)],
                "created_ms": 1_700_000_000_000,
                "schema": schema if has_rows(number) else None,
            }
            await store.write({collection_key(name): encode_fields(record)})
        await store.write({COLLECTION_ID_KEY: encode_number(100 + OLD)})


class Coordinators:
    """One coordinator process after another, at the same address over the same data folder."""

    def __init__(self, folder: Path) -> None:
        self.listen = f"127.0.0.1:{free_port()}"
        self._folder = str(folder)
        self._stack = ExitStack()

    async def start(self) -> RoleProcess:
        arguments = ("coordinator", "--data-dir", self._folder, "--listen", self.listen)
        process = RoleProcess(*arguments, pchannels="4", node_lease_s="60")
        self._stack.enter_context(process)
        await process.ready()
        return process

    def node(self) -> RoleProcess:
        arguments = ("--coordinator", self.listen, "--data-dir", self._folder)
        process = RoleProcess("node", "--node-id", "1", *arguments, "--listen", "127.0.0.1:0")
        return self._stack.enter_context(process)

    def __enter__(self) -> "Coordinators":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


async def figure(log: Client, name: str) -> int:
    """What the adopter of this coordinator says of itself."""
    actors = {it.path: it.extra for it in await log.admin.actors()}
    return int(actors.get("/root/master/adopter", {}).get(name, 0))


async def announced(log: Client, pchannels: Iterable[str]) -> Counter[tuple[str, int]]:
    """How often readers see the announcement of each collection on each channel."""
    found: Counter[tuple[str, int]] = Counter()
    for name in pchannels:
        created = log.read(name, until="now", types=[MessageType.CREATE_COLLECTION])
        async for it in created.messages():
            header = messages.CreateCollectionMessageHeader.parse(read_base64(it.tags["_h"]))
            found[it.vchannel, header.collection_id] += 1
    return found


def rows(first: int) -> Any:
    return pa.table({"k": [first, first + 1]}, schema=SCHEMA)


async def check(log: Client) -> None:
    """Announced once, where it belongs; with parts; and the rows are counted from then on."""
    expected: Counter[tuple[str, int]] = Counter()
    for number in range(OLD):
        found = await log.master.describe_collection(f"old{number:04}")
        assert (found.id, found.created_tick > 0) == (100 + number, True)
        places = found.vchannels if has_rows(number) else ()
        expected.update((it, found.id) for it in (CONTROL, *places))
    assert await announced(log, PCHANNELS) == expected
    for name in ("old0000", WRITTEN):
        await log.master.create_partition(name, "p")
        await log.master.create_alias(name, f"{name}_alias")
        assert (await log.master.describe_collection(f"{name}_alias")).partitions == 2
    read = [batch async for batch in log.read_arrow(WRITTEN, until="now")]
    keys = [k for batch in read for k in batch.column("k").to_pylist()]
    assert sorted(keys) == [*range(10), *(k for it in KILLED_AT for k in (it, it + 1))]


async def test_each_collection_is_announced_once_and_what_is_open_goes_on(tmp_path: Path) -> None:
    with Coordinators(tmp_path / "data") as processes:
        assert (await processes.start()).terminate() == 0
        await make_old(tmp_path / "data")
        node, process = processes.node(), await processes.start()
        await node.ready()
        async with connect(processes.listen) as log:
            shard = (await log.collections.get(WRITTEN)).vchannels[0]
            await log.append_arrow(shard, rows(0))
            async with log.txn(shard, keepalive_s=600) as txn, log.stage(WRITTEN, 1, 0) as stage:
                await txn.append_arrow(rows(2))
                await stage.append_arrow(shard, rows(4))
                for at_least in KILLED_AT:

                    async def so_far(at_least: int = at_least) -> bool:
                        return await figure(log, "adopted") >= at_least

                    await until(so_far)
                    process.process.kill()
                    process.process.wait()
                    process = await processes.start()
                    # It renews the lease: a loaded machine takes long to start a coordinator.
                    await txn.append_arrow(rows(at_least))

                async def done() -> bool:
                    return await figure(log, "done") == 1

                await until(done)
                await txn.append_arrow(rows(6))
                await stage.append_arrow(shard, rows(8))
                part = await stage.seal()
            await log.commit_batch(WRITTEN, 1, [part])
            await check(log)
        assert process.terminate() == 0
