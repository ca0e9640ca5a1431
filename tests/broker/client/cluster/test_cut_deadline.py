"""A cut needs several rounds of calls, and one deadline holds for all of them."""

from collections.abc import Sequence
from typing import Any, cast

import anyio
import pytest

from actors.testing import run_seeded
from broker.client.cluster.cuts import Cuts
from broker.client.cluster.targets import Shards, Targets
from broker.client.errors import DeadlineExceeded
from broker.client.net.connection import Connection
from broker.client.net.owners import Owners
from broker.model.cut import Cut
from broker.model.ids import MessageId, TimeTick, VChannelName

DEADLINE_S = 10.0
NAMES = (VChannelName("by-dev-rootcoord-dml_0_1v0"), VChannelName("by-dev-rootcoord-dml_1_1v0"))


class SlowServers:
    """Each look-up and each round takes so long; in the first round one node is behind."""

    def __init__(self, each_s: float) -> None:
        self._each_s = each_s
        self._tick = 0

    async def resolve_all(self, _targets: object) -> Shards:
        await anyio.sleep(self._each_s)
        return Shards(None, NAMES)

    async def ask(self, channels: Sequence[str], _ask: Any) -> list[tuple[Sequence[str], Cut]]:
        await anyio.sleep(self._each_s)
        self._tick = self._tick or len(channels)
        ticks = range(self._tick - len(channels) + 1, self._tick + 1)
        return [
            ([name], Cut(TimeTick(tick), {name: MessageId(1)}))
            for tick, name in zip(ticks, channels, strict=True)
        ]


async def cut_of(servers: SlowServers) -> Cut:
    cuts = Cuts(
        cast(Connection, None),
        cast(Owners, servers),
        cast(Targets, servers),
        deadline_s=DEADLINE_S,
    )
    return await cuts.cut("flights")


def test_a_cut_ends_at_its_deadline_however_many_calls_it_needs() -> None:
    async def run() -> None:
        began_s = anyio.current_time()
        assert (await cut_of(SlowServers(3.0))).tick == len(NAMES)
        assert anyio.current_time() - began_s == pytest.approx(9.0)
        began_s = anyio.current_time()
        with pytest.raises(DeadlineExceeded, match="no cut within 10 s"):
            await cut_of(SlowServers(4.0))
        assert anyio.current_time() - began_s == pytest.approx(DEADLINE_S)

    run_seeded(1, run)
