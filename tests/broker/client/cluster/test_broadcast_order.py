"""Broadcasts whose keys conflict, through a whole broker: one order everywhere.

`--broadcasts N` says how many; some dozens in CI, a thousand to show the result.
"""

from pathlib import Path

import pytest

from broker.client import connect
from broker.client.cluster.targets import NewVChannel
from tests.broadcast_load import judge, make_load
from tests.local_broker import local_broker

VCHANNELS = [NewVChannel(f"by-dev-rootcoord-dml_{it}_{it}v0") for it in range(6)]


async def test_conflicting_broadcasts_end_in_one_order_everywhere(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    count: int = pytestconfig.getoption("--broadcasts")
    load = make_load(count, VCHANNELS, seed=count)
    async with local_broker(tmp_path, pchannels=6) as broker, connect(broker.address) as log:
        await load.run(log)
        assert await judge(log, load, VCHANNELS) > count
        assert await log.broadcast.list() == []
        assert await log.broadcast.locks() == []
