"""What happens while the flights are loaded: definitions change, processes die."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from broker.client import Client
from broker.client.master import TickOrigin, TickPolicy
from broker.model.master.segment_meta import SegmentMeta, SegmentMetaState
from runs.master_demo import proxy
from runs.master_demo.cluster import Cluster
from runs.master_demo.flights import SCHEMA, SPEED, as_rows, partition_of
from runs.master_demo.flow import Flow
from runs.master_demo.proxy import COLLECTION

SHARDS = 4
PROXIES, WRITE_NODES = (1, 2), (11, 12)
KEY_TO_SEGMENT = "key_to_segment"
REHEARSAL, REHEARSED = "rehearsal", 5_000
MONTHS_AHEAD = 2
BATCHES_AFTER = 3
"""With two proxies, one of so many batches at least was begun after the kill."""
WAIT_S, LOOK_S = 60.0, 0.1

Say = Callable[[str], None]


@dataclass(slots=True)
class Scene:
    """What the story needs. `partitions`: the ids, by month; `rehearsal`: of the dropped one."""

    log: Client
    cluster: Cluster
    flow: Flow
    say: Say
    channels: tuple[str, ...] = ()
    id: int = 0
    partitions: dict[int, int] = field(default_factory=dict)
    rehearsal: int = 0


async def define(scene: Scene) -> None:
    """Create what is needed to begin: collections, proxies, and who promises time ticks."""
    master = scene.log.master
    made = await master.create_collection(COLLECTION, shards=SHARDS, schema=SCHEMA)
    scene.id, scene.channels = made.id, made.vchannels
    scene.say(f"collection {COLLECTION}: {len(SCHEMA)} columns, {SHARDS} shards, id {made.id}")
    ticked = await master.create_collection(KEY_TO_SEGMENT)
    for each in PROXIES:
        await proxy.join(scene.log, each)
    await master.set_time_ticks(TickOrigin.PROXIES, PROXIES, made.vchannels)
    policy = TickPolicy.MINIMUM
    await master.set_time_ticks(
        TickOrigin.WRITE_NODES, WRITE_NODES, ticked.vchannels, policy=policy
    )
    scene.say("two proxies and two write nodes are to report time ticks")


async def rehearse(scene: Scene, flights: pa.Table) -> None:
    """Append some flights to a partition that is dropped later."""
    master, some = scene.log.master, flights.slice(0, REHEARSED)
    scene.rehearsal = (await master.create_partition(COLLECTION, REHEARSAL)).id
    first_at = await master.alloc_timestamp(some.num_rows)
    rows = as_rows(some, await master.ids.alloc(some.num_rows), first_at, speed=False)
    await scene.log.append_arrow(COLLECTION, rows, key="flight", partition=REHEARSAL)
    scene.say(f"partition {REHEARSAL} has {some.num_rows:,} flights; it will be dropped")


async def open_months(scene: Scene) -> None:
    """Create the partition of each month shortly before its flights."""
    flow = scene.flow
    for at, month in enumerate(flow.months):
        if at >= MONTHS_AHEAD:
            await flow.reached(flow.before(flow.months[at - MONTHS_AHEAD + 1]))
        created = await scene.log.master.create_partition(COLLECTION, partition_of(month))
        scene.partitions[month] = created.id
        await flow.partition_created(month)
        scene.say(f"partition {partition_of(month)} created")


async def happen(scene: Scene) -> None:
    """Everything else, each thing at its share of the flights."""
    for share, event in (
        (0.15, partial(_kill_node, shard=0)),
        (0.30, _add_column),
        (0.40, _add_alias_and_index),
        (0.55, _kill_coordinator),
        (0.70, _drop_rehearsal),
        (0.80, partial(_kill_node, shard=SHARDS - 1)),
    ):
        await scene.flow.reached(share)
        await event(scene)


async def finish(scene: Scene) -> Sequence[SegmentMeta]:
    """Seal what is loaded; the flushed segments. Sets the end of the flow."""
    master = scene.log.master
    await master.seal_collection(scene.id)
    async with asyncio.timeout(WAIT_S):
        while True:
            segments = await master.show_segments(scene.id)
            counted = [it for it in segments if it.partition_id != scene.rehearsal]
            if all(it.state is SegmentMetaState.FLUSHED for it in counted):
                break
            await asyncio.sleep(LOOK_S)
    scene.say(f"{len(counted)} segments are sealed and flushed")
    scene.flow.end_tick = (await scene.log.cut(COLLECTION)).tick
    return counted


async def promised(scene: Scene) -> None:
    """Wait until the proxies' time ticks have passed everything that was appended."""
    last = await scene.log.master.alloc_timestamp()
    async with asyncio.timeout(WAIT_S):
        while True:
            view = await scene.log.master.describe_time_ticks(TickOrigin.PROXIES)
            if view.sent >= last:
                return
            await asyncio.sleep(LOOK_S)


async def _kill_node(scene: Scene, shard: int) -> None:
    owners = {it.name: it.node_id for it in await scene.log.admin.channels()}
    victim = owners[scene.channels[shard].rpartition("_")[0]]
    served = sum(owners[it.rpartition("_")[0]] == victim for it in scene.channels)
    process = scene.cluster.nodes[victim - 1]
    pid, began_s = process.process.pid, time.monotonic()
    process.kill()
    told = f"which served {served} of the {SHARDS} shards; it starts again"
    scene.say(f"[red]kill -9[/red] node {victim} (pid {pid}), {told}")
    await scene.flow.more(BATCHES_AFTER)
    scene.say(f"appends to all shards go on, {time.monotonic() - began_s:.1f} s after the kill")


async def _kill_coordinator(scene: Scene) -> None:
    process = scene.cluster.coordinator
    pid, began_s = process.process.pid, time.monotonic()
    process.kill()
    told = "with the master in it; it starts again"
    scene.say(f"[red]kill -9[/red] the coordinator (pid {pid}), {told}")
    await scene.flow.more(BATCHES_AFTER)
    scene.say(f"appends go on, {time.monotonic() - began_s:.1f} s after the kill")


async def _add_column(scene: Scene) -> None:
    await scene.log.collections.add_columns(COLLECTION, pa.schema([SPEED]))
    scene.flow.speed = True
    scene.say(f"column {SPEED.name} added; flights have it from here on")


async def _add_alias_and_index(scene: Scene) -> None:
    await scene.log.master.create_alias(COLLECTION, "departures")
    params = {"index_type": "HNSW", "metric_type": "L2", "M": "16"}
    await scene.log.master.create_index(COLLECTION, "profile", params, name="alike")
    found = await scene.log.master.describe_collection("departures")
    scene.say(f"alias departures for {found.name}; index alike described on its column profile")


async def _drop_rehearsal(scene: Scene) -> None:
    master = scene.log.master
    segments = [it.id for it in await master.show_segments(scene.id, scene.rehearsal)]
    await master.drop_partition(COLLECTION, REHEARSAL)
    async with asyncio.timeout(WAIT_S):
        while True:
            states = await master.get_segment_states(segments)
            if set(states.values()) <= {"dropped"}:
                break
            await asyncio.sleep(LOOK_S)
    scene.say(f"partition {REHEARSAL} dropped, with its {len(segments)} segments")
