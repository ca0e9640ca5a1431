"""States of a broker that never was, for the tests of what the screen shows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from broker.cli.top.broker_state import BrokerState
from broker.client import Collection
from broker.client.cluster import (
    ActorInfo,
    BarrierPeer,
    BarrierView,
    BroadcastInfo,
    ChannelInfo,
    ChannelTrouble,
    CursorView,
    Damage,
    Health,
    LockInfo,
    ServerTraffic,
    VChannelTraffic,
)
from broker.client.txn import AppCommits
from broker.model.barrier import BarrierKind
from broker.model.collection import RowSchema
from broker.model.groups.consumer_group import (
    GroupKey,
    GroupLag,
    GroupSnapshot,
    GroupView,
    MemberView,
)
from broker.model.ids import CollectionId, PartitionId, SegmentId, TimeTick, VChannelName
from broker.model.master.segment_meta import SegmentMeta, SegmentMetaState, SegmentOrigin
from broker.model.named_cursor import ChannelLag
from broker.model.retention.policy import Retention

P0, P1 = "by-dev-rootcoord-dml_2", "by-dev-rootcoord-dml_10"
LOG = f"/root/node/channels/{P0}/log"
NOW_MS = 1_800_000_000_000
HEALTH = Health(
    "healthy", "1", 1, "by-dev", "rocksmq", "/d", 1, NOW_MS - 7_200_000, 2, 2, (), (), 0, False
)
LONG_NAME = "measurements_of_every_sensor_in_the_northern_plants_since_the_year_2019"
WEEK = Retention(5 << 30, age_ms_max=604_800_000)
TROUBLE = (ChannelTrouble(P1, "refusing", "storage refused: full"),)
DAMAGE = (Damage(P0, f"{P0}/1.log", 4096, "checksum", False, 2),)


def actor(path: str, kind: str = "actor", **given: Any) -> ActorInfo:
    extra: Mapping[str, str] = given.pop("extra", {})
    plain = ActorInfo(path, 1, kind, "running", 0, 10, 0, 0, extra)
    return replace(plain, **given)


def channel(name: str, **given: Any) -> ChannelInfo:
    closed_tick = (NOW_MS - 200) << 18
    plain = ChannelInfo(
        *(name, 2, "assigned", 1, "a:1", 1, 101, closed_tick, 2048, (), False, 1, 3, 99),
        prepared_txns=0,
        checkpoint_id=100,
        checkpoint_tick=closed_tick,
        checkpoint_lag=1,
        growing_segments=0,
        growing_bytes=0,
        sealed_segments=0,
        read_only=False,
    )
    return replace(plain, **given)


def collection(name: str, number: int, shards: int = 1, columns: int = 0) -> Collection:
    places = [P0, P1] * shards
    vchannels = [VChannelName(f"{places[n]}_{number}v{n}") for n in range(shards)]
    schema = RowSchema(b"", (columns,)) if columns else None
    return Collection(name, CollectionId(number), tuple(vchannels), NOW_MS, schema)


def segment(id: int, collection_id: int, state: SegmentMetaState, **given: Any) -> SegmentMeta:
    opened, vchannel = TimeTick((NOW_MS - 7_200_000) << 18), f"{P0}_{collection_id}v0"
    plain = SegmentMeta(
        id=SegmentId(id),
        collection_id=CollectionId(collection_id),
        partition_id=PartitionId(8),
        partition_tag="",
        channel_start=0,
        channel_end=0,
        open_tick=opened,
        close_tick=TimeTick(0),
        rows=60_000,
        size_bytes=89 << 20,
        modified_tick=opened,
        state=state,
        origin=SegmentOrigin.LOG,
        vchannel=vchannel,
    )
    return replace(plain, **given)


def some_segments() -> tuple[SegmentMeta, ...]:
    tick, hour = TimeTick((NOW_MS - 20_000) << 18), TimeTick((NOW_MS - 3_600_000) << 18)
    growing, sealed = SegmentMetaState.GROWING, SegmentMetaState.SEALED
    few: dict[str, Any] = {"rows": 1000, "size_bytes": 1 << 20}
    reserved: dict[str, Any] = {"vchannel": "", "origin": SegmentOrigin.RESERVED}
    return (
        segment(1_000_002, 101, SegmentMetaState.FLUSHED, partition_tag="_default"),
        segment(1_000_003, 101, growing, partition_tag="_default", open_tick=tick, **few),
        segment(
            *(1_000_005, 104, sealed),
            partition_id=PartitionId(7),
            rows=12,
            size_bytes=4096,
            open_tick=hour,
            **reserved,
        ),
        segment(1_000_009, 4521, SegmentMetaState.FLUSHED),
    )


def traffic(at_ms: int, process: str = "1/1/1", **counts: tuple[int, int]) -> ServerTraffic:
    """`counts`: by vchannel with `-` as `_`, serial and messages; a message has 100 bytes."""
    entries = [
        VChannelTraffic(name, serial, messages, 100 * messages, messages, 0)
        for name, (serial, messages) in counts.items()
    ]
    return ServerTraffic(process, at_ms, tuple(entries))


def broker_state(**given: Any) -> BrokerState:
    tree = (
        actor("/root", "supervisor"),
        actor("/root/node", "supervisor"),
        actor("/root/node/channels", "supervisor"),
        actor(f"/root/node/channels/{P0}", "supervisor", restarts=1),
        actor(LOG, "supervisor"),
        actor(f"{LOG}/appender", handled=100, mailbox_depth=7),
        actor(f"{LOG}/scanners", "supervisor"),
        actor(f"{LOG}/scanners/scanner-1", restarts=2, extra={"next_id": "101"}),
        actor(f"{LOG}/scanners/scanner-2", extra={"next_id": "41"}),
    )
    plain = BrokerState(10.0, NOW_MS, HEALTH, (channel(P1), channel(P0)), tree)
    return replace(plain, **given)


def busy_states() -> tuple[BrokerState, BrokerState]:
    """Two looks at a broker where something of each kind is going on, two seconds apart."""
    collections = (
        replace(collection("flights", 100, 4), retention=WEEK),
        collection("orders", 101, 2, columns=12),
        collection(LONG_NAME, 102, 16),
        collection("idle", 103),
        replace(collection("items", 104), database="sales"),
    )
    vchannels = [*collections[0].vchannels, *collections[1].vchannels, collections[2].vchannels[0]]
    vchannels.append(VChannelName(f"{P0}_4521v0"))
    tree = (
        *broker_state().actors,
        actor(
            f"{LOG}/scanners/scanner-3",
            extra={
                "next_id": "61",
                "tick": str((NOW_MS - 95_200) << 18),
                "vchannel": vchannels[0],
                "cached_bytes": str(3 << 20),
            },
        ),
        actor(
            f"{LOG}/appender2/appender",
            extra={
                "staged_txns": "2",
                "staged_bytes": str(3 << 20),
                "staged_since": str((NOW_MS - 4000) << 18),
            },
        ),
    )
    cursor = CursorView(
        *("nightly-report", TimeTick(1), tuple(vchannels[:4]), NOW_MS - 61_000, 4_000),
        closed_tick=TimeTick(9),
        behind_ms=3_600_000,
        lags={name: ChannelLag(307_000, 61_400_000) for name in vchannels[:4]},
    )
    barrier = BarrierView(
        *("cut", BarrierKind.HARD, TimeTick((NOW_MS - 5000) << 18)),
        peers=(BarrierPeer("a", TimeTick(1), True), BarrierPeer("b", TimeTick(2), False)),
        waits_for=("a",),
        removed=(),
    )
    first = broker_state(
        actors=tree,
        channels=(channel(P1, open_txns=0), channel(P0, next_id=61_001, size_bytes=5 << 30)),
        collections=collections,
        cursors=(cursor,),
        barriers=(barrier,),
        broadcasts=(BroadcastInfo("7", "REPLICATED", 1, (), 4, 4, 3, "callback: no", 5, ""),),
        locks=(LockInfo("7", (), True),),
        commits=(AppCommits("etl", 6, NOW_MS - 9000, 7, "committing", 1200, 12),),
        traffic=(_counts(vchannels, 1000),),
        segments=some_segments(),
        groups=some_groups(vchannels),
        partitions={it.id: 3 if it.name == "orders" else 1 for it in collections},
    )
    grown = [replace(it, handled=it.handled + 50) for it in first.actors]
    second = replace(first, at_s=12.0, actors=grown, traffic=(_counts(vchannels, 25_700, 2000),))
    return first, second


def some_groups(vchannels: list[VChannelName]) -> tuple[GroupView, ...]:
    """`workers` on all of `flights`, with a slow and a paused member; one that nobody needs."""
    ann, bob = MemberView("ann", 1, True, 2, 3.0), MemberView("bob", 2, False, 1, 29.5)
    eve = MemberView("eve", 3, False, 0, 0.0)
    lag = GroupLag(307_000, 61_400_000, 95_200)
    old = TimeTick((NOW_MS - 3 * 86_400_000) << 18)
    trouble = "dead letters cannot be written: the disk is full"
    return (
        some_group(vchannels[4], "forgotten", lag=replace(lag, ms=3 * 86_400_000), seen=old),
        some_group(vchannels[5], "new"),
        some_group(vchannels[0], "workers", members=(ann, bob), lag=lag, redelivered=7, dead=1),
        some_group(vchannels[1], "workers", members=(ann,), lag=lag, expired=12),
        some_group(vchannels[2], "workers", members=(ann, eve), lag=GroupLag(0, 0, 0)),
        some_group(vchannels[5], "writers", lag=GroupLag(0, 0, 0), trouble=trouble, seen=old),
    )


def some_group(vchannel: str, name: str, **given: Any) -> GroupView:
    tick = TimeTick((NOW_MS - 95_200) << 18)
    group = GroupSnapshot(GroupKey(vchannel, name), 30_000, tick, (), tick, tick)
    return replace(GroupView(group), **given)


def _counts(vchannels: list[VChannelName], messages: int, at_ms: int = 0) -> ServerTraffic:
    entries = [
        VChannelTraffic(
            *(name, serial, messages // (serial * serial), 150 * (messages // (serial * serial))),
            delivered=messages // 3 if serial < 5 else 0,
            delivered_bytes=messages * 50 if serial < 5 else 0,
        )
        for serial, name in enumerate(vchannels, start=1)
    ]
    return ServerTraffic("1/1/1", at_ms, tuple(entries))
