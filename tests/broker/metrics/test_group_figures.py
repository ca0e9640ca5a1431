"""The metrics of groups, of a broker at work."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio

from tests.broker.metrics.test_exposition import at_hand, families, value

GUARD_S = 120.0
"""Against hanging."""


async def test_members_what_they_have_and_delayed_messages_are_counted(tmp_path: Path) -> None:
    with anyio.fail_after(GUARD_S):
        async with at_hand(tmp_path) as (broker, log):
            await log.collections.create("trains", shards=1)
            await log.append("trains", b"a")
            await log.append("trains", b"b", deliver_at=datetime.now(UTC) + timedelta(days=1))
            async with log.group("workers").join("trains") as member:
                batch = await member.__anext__()
                channel = batch.vchannel.rpartition("_")[0]
                found = await families(broker.http)
                assert value(found, "groups", channel=channel) == 1
                assert value(found, "group_members", channel=channel) == 1
                assert value(found, "group_leased_batches", channel=channel) == 1
                assert value(found, "group_oldest_lease_seconds", channel=channel) > 0
                await batch.nack()
                batch = await member.__anext__()
                found = await families(broker.http)
                while not value(found, "group_delayed_messages", channel=channel):
                    found = await families(broker.http)
                place = {"channel": channel, "vchannel": batch.vchannel, "group": "workers"}
                assert value(found, "group_redelivered_batches_total", **place) == 1
                assert value(found, "group_dead_messages_total", **place) == 0
                assert value(found, "group_expired_messages_total", **place) == 0
                assert value(found, "group_dead_letters_failing", channel=channel) == 0
                # It is counted some seconds later.
                while not found["tidemark_group_lag_messages"].samples:
                    found = await families(broker.http)
                assert value(found, "group_lag_messages", **place) == 2
                assert value(found, "group_lag_bytes", **place) > 0
                assert value(found, "group_lag_seconds", **place) > 0
                await batch.ack()
                found = await families(broker.http)
                while not value(found, "group_members_waiting", channel=channel):
                    found = await families(broker.http)
                assert value(found, "group_oldest_lease_seconds", channel=channel) == 0
