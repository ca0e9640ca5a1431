"""What a restore changes in the metadata, and that every kind of record was thought of."""

from pathlib import Path

import anyio

from broker.backup.restored_metadata import COUNTERS, RestorePoint, changes_for
from broker.client import connect
from broker.coordinator.catalog.collection_records import ADOPTED_KEY
from broker.coordinator.records import (
    CLUSTER_KEY,
    LEASE_KEY,
    TICK_BOUND_KEY,
    Cluster,
    decode_cluster,
    decode_number,
    decode_pchannel,
    encode_cluster,
    encode_number,
    encode_pchannel,
    node_key,
    pchannel_key,
)
from broker.core.backup.restored_numbers import JUMP
from broker.core.cluster.assignment import Owner, PChannelMeta
from broker.core.master.id_window import WINDOW
from broker.master.ids.id_allocator import ID_BOUND_KEY
from broker.meta.sqlite_snapshot import entries_of
from broker.model.channel import PChannelState
from broker.model.ids import NodeId, PChannelName, Term, TimeTick
from tests.broker_process import BrokerProcess
from tests.roles_processes import until

NAME = PChannelName("by-dev-rootcoord-dml_0")
POINT = RestorePoint(TimeTick(7000 << 18), 9000, {NAME: Term(12)}, "new")

KEPT = (
    "recovery/",
    "collection/",
    "collection-id/",
    "partition/",
    "partition-count/",
    "collection-loads",
    "cursor/",
    "broadcast/",
    "commit/",
    "streaming/",
    "consumption/",
)
"""Each agrees with the log up to the tick; broker/backup/README.md says why."""
CHANGED = ("cluster", "counter/", "ids/bound", "leader", "tso/", "pchannel/", "node/", "lease")


def test_owners_and_leases_are_forgotten_and_every_number_jumps() -> None:
    owned = PChannelMeta(
        NAME, Term(9), PChannelState.ASSIGNED, NodeId(2), histories=(Owner(NodeId(1), Term(8)),)
    )
    entries = {
        CLUSTER_KEY: encode_cluster(Cluster((NAME,), NAME, "old")),
        TICK_BOUND_KEY: encode_number(5000),
        LEASE_KEY: encode_number(5),
        ADOPTED_KEY: b"whatever it says",
        COUNTERS[0]: encode_number(41),
        ID_BOUND_KEY: encode_number(50_000_000),
        node_key(NodeId(2)): b"whatever it says",
        pchannel_key(NAME): encode_pchannel(owned),
        "cursor/mine": b"kept",
    }
    changes = changes_for(entries, POINT)
    assert set(changes.deletes) == {LEASE_KEY, ADOPTED_KEY, node_key(NodeId(2))}
    restored = decode_pchannel("", changes.puts[pchannel_key(NAME)])
    assert (restored.state, restored.node, restored.histories) == (
        PChannelState.UNAVAILABLE,
        None,
        (),
    )
    assert restored.term > JUMP + 11
    assert decode_cluster("", changes.puts[CLUSTER_KEY]) == Cluster((NAME,), NAME, "new")
    assert decode_number("", changes.puts[TICK_BOUND_KEY]) == 9000
    assert decode_number("", changes.puts[COUNTERS[0]]) == JUMP + 41
    # Also those that were never used before the backup: they may have been used after it.
    assert all(decode_number(key, changes.puts[key]) >= JUMP for key in COUNTERS)
    # Each start of the old cluster after the backup has taken a window of ids.
    assert decode_number("", changes.puts[ID_BOUND_KEY]) >= 50_000_000 + 1000 * WINDOW
    assert "cursor/mine" not in changes.puts


async def test_every_record_that_a_broker_writes_is_kept_or_changed_on_purpose(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "data", nodes="2", pchannels="2") as broker:
        async with connect(broker.address) as log:
            shards = (await log.collections.create("flights", shards=2)).vchannels
            await log.append_batch(shards[0], [b"row"])
            await log.broadcast.append(shards, b"all")
            async with log.stage("job", 1, 0) as stage:
                await stage.append(shards[0], b"row")
                part = await stage.seal()
            await log.commit_batch("job", 1, [part])
            await log.cursor("mine").move((await log.cut("flights")).tick, "flights")
            await log.admin.pause_consumption()

            async def saved() -> bool:
                return any(it.startswith("recovery/") for it in _keys(tmp_path / "data"))

            with anyio.fail_after(60):
                await until(saved)
        keys = _keys(tmp_path / "data")
    # The master writes the last one when it has looked at all collections: perhaps by now.
    known = (*KEPT, *CHANGED, ADOPTED_KEY)
    assert [it for it in keys if not it.startswith(known)] == []
    unseen = [it for it in (*KEPT, *CHANGED) if not any(key.startswith(it) for key in keys)]
    assert unseen == [], "a prefix that no broker writes any more"


def _keys(data: Path) -> list[str]:
    return list(entries_of(data / "meta.sqlite"))
