"""Rows of a dropped collection that lie behind the ticks of those that are left."""

from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from pyspark.sql.streaming.datasource import ReadAllAvailable

from broker.client import Client, connect
from broker.core.naming import pchannel_of
from broker.spark.refusals import DataLoss
from broker.spark.source.source_options import parse
from broker.spark.source.stream_reader import StreamReader
from broker.spark.source.subscribed import Subscribed, declared
from tests.local_broker import local_broker

ALL = ReadAllAvailable()


@pytest.mark.parametrize("unread", [True, False])
def test_rows_behind_the_newest_tick_of_what_is_left_are_a_loss(
    tmp_path: Path, *, unread: bool
) -> None:
    # The logs that get no appends close no tick meanwhile.
    settings = {"pchannels": 3, "tick_interval_ms": 60_000}
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(local_broker(tmp_path, **settings)) as broker,
        portal.wrap_async_context_manager(connect(broker.address)) as log,
    ):

        async def create(log: Client) -> None:
            for name in ("beside_the_control_channel", "left_1", "left_2"):
                await log.collections.create(name, shards=1)
            found = await log.collections.resolve(["left_1", "left_2"])
            logs = {pchannel_of(one) for names in found.values() for one in names}
            assert len(logs) == 2

        async def append_and_drop(log: Client) -> None:
            if unread:
                await log.append("left_2", b"unread")
            await log.collections.drop("left_2")

        portal.call(create, log)
        given = {"server": broker.address, "subscribePattern": "left_."}
        parsed = parse(given | {"startingOffsets": "earliest"}, streaming=True)
        reader = StreamReader(Subscribed(parsed, declared(parsed)))
        portal.call(log.append, "left_2", b"read")
        start = reader.initialOffset()
        read = reader.latestOffset(start, ALL)
        portal.call(append_and_drop, log)
        reader = StreamReader(Subscribed(parsed, declared(parsed)))
        if unread:
            with pytest.raises(DataLoss, match="of a dropped collection has 1 unread rows"):
                reader.latestOffset(read, ALL)
        else:
            assert len(reader.latestOffset(read, ALL)["ends"]) == 1
        reader.stop()
