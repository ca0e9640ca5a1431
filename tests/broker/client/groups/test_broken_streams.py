"""A stream of a member that cannot be written to any more: what its reader is told."""

import asyncio

import anyio
import pytest

from actors.testing import run_seeded
from broker.client.errors import ConnectionLost, OutcomeUnknown, TidemarkError, Unrecoverable
from broker.client.groups.group_subscription import WHY_S, GroupSubscription, Joining
from broker.client.groups.vchannel_shares import VChannelShares
from broker.model.failure import StreamingCode

VCHANNEL = "by-dev-rootcoord-dml_1_2v0"


class DeadEnd:
    """Nothing can be written; what the server says is read after `says_s`."""

    def __init__(self, says: TidemarkError, says_s: float) -> None:
        self._says, self._says_s = says, says_s

    def take_at_once(self, _take: object) -> None:
        pass

    def write_at_once(self, _framed: bytes) -> bool:
        return False

    async def write(self, _framed: bytes, _within_s: float) -> None:
        raise ConnectionLost("the peer takes nothing")

    async def read(self, _within_s: float) -> list[bytes]:
        await asyncio.sleep(self._says_s)
        raise self._says


@pytest.mark.parametrize(("says_s", "told"), [(WHY_S / 2, Unrecoverable), (3600.0, OutcomeUnknown)])
def test_it_ends_soon_with_what_the_server_says_or_as_a_lost_one(
    says_s: float, told: type[TidemarkError]
) -> None:
    async def scenario() -> None:
        streams: set[object] = set()
        joining = Joining("g", "m", 1 << 20, streams, VChannelShares("id"))  # type: ignore[arg-type]
        subscription = GroupSubscription(VCHANNEL, None, joining)
        stream = DeadEnd(Unrecoverable("dropped", StreamingCode.UNRECOVERABLE), says_s)

        async def give() -> None:
            await asyncio.sleep(0.01)  # the stream is open by then, in virtual time
            (member,) = streams
            member.give("another")  # type: ignore[attr-defined]

        began_s = anyio.current_time()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(give())
            with pytest.raises(told):
                await subscription.deliver(stream, [], None, lambda: None)  # type: ignore[arg-type]
        assert anyio.current_time() - began_s < 2 * WHY_S
        assert not streams

    run_seeded(1, scenario)
