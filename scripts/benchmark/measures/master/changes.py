"""Measures changes of definitions: one at a time beside bare broadcasts, and of many callers.

A broker of its own: what changes leave behind is not in the way of other subjects.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from served_broker import killed, served_broker

from benchmark import names
from benchmark.measures.master.stored_collections import TABLE
from benchmark.measures.master.together import Values
from benchmark.results.figures import MESSAGES, RATE, quantiles
from broker.client import Client, ResourceKey, connect
from broker.client.cluster.targets import NewVChannel
from broker.codec.milvus_schemas import table_schema, user_schema
from broker.core.naming import pchannel_of, vchannel_name
from broker.model.ids import CollectionId

SHARDS = 4
TIMES, WARM_UP = 80, 10
CALLERS = 64
SLICE_S, SLICES = 0.8, 2
RUN_S_MAX = 90
FOREIGN = 1_000_000_000
"""Beyond the ids of all collections: vchannels that belong to none."""


class Changes:
    """Starts a broker for each round, with its data below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def measure(self) -> Mapping[str, Values]:
        """Both comparisons, one after the other."""
        with (
            TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as data,
            served_broker(Path(data) / "changes", stop=killed) as broker,
        ):
            return uvloop.run(asyncio.wait_for(_measured(broker.address), RUN_S_MAX))


async def _measured(address: str) -> dict[str, Values]:
    async with connect(address) as log:
        return await creations_and_broadcasts(log, TIMES) | await rates(log, SLICE_S)


async def creations_and_broadcasts(log: Client, times: int) -> dict[str, Values]:
    """Create collections, and broadcast as much to the same pchannels, in turn."""
    control = await log.master.get_dd_channel()
    took_s: dict[str, list[float]] = {names.MASTER_BROADCAST: [], names.MASTER_CREATE: []}
    for turn in range(WARM_UP + times):
        name = f"made_{turn}"
        schema = user_schema(table_schema(name, TABLE.fields).milvus)
        began_s = time.perf_counter()
        made = await log.master.create_collection(name, shards=SHARDS, milvus_schema=schema)
        created_s = time.perf_counter() - began_s
        # New vchannels, as those of the collection were.
        places = [
            NewVChannel(vchannel_name(pchannel_of(it), CollectionId(FOREIGN + made.id), shard))
            for shard, it in enumerate(made.vchannels)
        ]
        began_s = time.perf_counter()
        await log.broadcast.append(
            [NewVChannel(control), *places], schema, keys=[ResourceKey.collection(f"other_{turn}")]
        )
        if turn >= WARM_UP:
            took_s[names.MASTER_CREATE].append(created_s)
            took_s[names.MASTER_BROADCAST].append(time.perf_counter() - began_s)
    return {it: quantiles(seconds) | {MESSAGES: times} for it, seconds in took_s.items()}


async def rates(log: Client, slice_s: float) -> dict[str, Values]:
    """Partitions created and dropped by 64 callers: of a collection each, and of one collection."""
    collections = [f"changed_{it}" for it in range(CALLERS)]
    for it in collections:
        await log.master.create_collection(it)
    targets = {names.MASTER_NAMES: collections, names.MASTER_NAME: collections[:1] * CALLERS}
    done, took_s = dict.fromkeys(targets, 0), dict.fromkeys(targets, 0.0)
    for _ in range(SLICES):
        for it, chosen in targets.items():
            began_s = time.perf_counter()
            done[it] += await _changed(log, chosen, began_s + slice_s)
            took_s[it] += time.perf_counter() - began_s
    return {it: {RATE: done[it] / took_s[it], MESSAGES: done[it]} for it in targets}


async def _changed(log: Client, collections: Sequence[str], until_s: float) -> int:
    """Change each of these from a caller of its own until then; the number of changes."""

    async def caller(number: int, collection: str) -> int:
        done = 0
        while time.perf_counter() < until_s:
            await log.master.create_partition(collection, f"of_{number}")
            await log.master.drop_partition(collection, f"of_{number}")
            done += 2
        return done

    async with asyncio.TaskGroup() as tasks:
        callers = [tasks.create_task(caller(*it)) for it in enumerate(collections)]
    return sum(it.result() for it in callers)
