"""What the load of a storm does when its calls are wrong."""

from pathlib import Path

import pytest

from broker.client import connect
from broker.client.errors import NoSuchVChannel, SchemaVersionMismatch
from tests.chaos.storm.counted import create_counted
from tests.chaos.storm.recorder import Recorder
from tests.chaos.storm.rows import schema_of_rows
from tests.chaos.storm.workload import Workload
from tests.local_broker import local_broker


async def test_a_refusal_that_no_fault_causes_ends_the_storm(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        made = await log.collections.create("rows", shards=1, schema=schema_of_rows())
        (of_rows,) = made.vchannels
        counted = await create_counted(log, shards=1)
        load = Workload(log, log, Recorder(), made.vchannels, made.vchannels, counted, seed=1)
        assert load.plain == ()
        with pytest.raises(SchemaVersionMismatch):
            await load.append(of_rows, "a message")
        with pytest.raises(NoSuchVChannel):
            await load.append("by-dev-rootcoord-dml_0_900v0", "to nowhere")
        assert await load.rows(of_rows, ["a row"], flooding=True)
        assert load.recorder.acknowledged == {"rows": 1}
