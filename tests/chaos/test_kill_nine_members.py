"""A coordinator and a node that die together: the node's channels take appends again, for good."""

import signal
from pathlib import Path

import anyio
import pytest

from broker.client import connect
from tests.chaos.storm.cluster import Cluster
from tests.chaos.storm.run import wait_until_served

PCHANNELS = 2
KILLS = 2
LEASES_S = 5.0
"""Some leases long: the node is registered anew when the one of its killed process is over."""
APPEND_S = 30.0
"""Far above two starts and a lease; what is refused for good takes for ever."""
TEST_S_MAX = 240.0


@pytest.mark.slow
async def test_channels_take_appends_after_their_node_and_the_coordinator_were_killed_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A clock that goes back would have the coordinator wait for longer than a lease.
    monkeypatch.setattr("tests.chaos.storm.cluster.LATE_MS", (0,))
    cluster = Cluster(tmp_path, 1, PCHANNELS)
    try:
        with anyio.fail_after(TEST_S_MAX):
            async with anyio.create_task_group() as background:
                await cluster.start(background)
                await wait_until_served(cluster, PCHANNELS)
                async with connect(cluster.client_links[0].address) as client:
                    made = await client.collections.create("rows", shards=PCHANNELS)
                    for _ in range(KILLS):
                        for victim in cluster.members:
                            assert victim.signal(signal.SIGKILL)
                        until_s = anyio.current_time() + LEASES_S
                        while anyio.current_time() < until_s:
                            for vchannel in made.vchannels:
                                await client.append(vchannel, b"later", deadline_s=APPEND_S)
                background.cancel_scope.cancel()
    finally:
        cluster.end()
