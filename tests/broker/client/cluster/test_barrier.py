"""The peer of a barrier: which error its reports raise when something replaces or delays it."""

from collections import deque

import anyio
import pytest

from broker.client.cluster.barrier import Peer
from broker.client.cluster.barrier_calls import BarrierCalls, BarrierMember
from broker.client.errors import ChannelFenced, ConnectionLost, DeadlineExceeded, TidemarkError
from broker.model.barrier import BarrierKind
from broker.model.ids import TimeTick

FENCED = ChannelFenced("another peer has this name")
MEMBER = BarrierMember("nightly", BarrierKind.HARD, "worker-1")
LOST = ConnectionLost("the connection broke")


class ScriptedCalls(BarrierCalls):
    """Reports fail with these errors, one after the other; the last one repeats."""

    def __init__(self, *errors: TidemarkError) -> None:
        self._errors = deque(errors)

    async def report(self, member: BarrierMember, lease_id: int, tick: int) -> TimeTick:
        await anyio.lowlevel.checkpoint()
        raise self._errors.popleft() if len(self._errors) > 1 else self._errors[0]


async def test_a_peer_that_was_replaced_raises_that_and_not_a_lost_connection() -> None:
    async with anyio.create_task_group() as tasks:
        peer = Peer(ScriptedCalls(FENCED, LOST), tasks, MEMBER, 10.0, 0)

        async def report() -> None:
            with pytest.raises(ChannelFenced):
                await peer.report(7)

        # The second report waits for the first, so it does not know yet that it was replaced.
        tasks.start_soon(report)
        tasks.start_soon(report)


async def test_a_report_that_fails_until_the_deadline_names_tick_and_cause() -> None:
    async with anyio.create_task_group() as tasks:
        peer = Peer(ScriptedCalls(LOST), tasks, MEMBER, 10.0, 0)
        with pytest.raises(DeadlineExceeded, match=r"tick 7 .* the connection broke"):
            await peer.report(7, deadline_s=0.05)
