"""Time in which the program does not take what was read is no silence of the server."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from actors.testing import run_seeded
from broker.client.errors import ConnectionLost
from broker.client.net.connection import Conversation
from broker.client.net.one_slot_queue import OneSlotQueue
from broker.client.read.batch_subscription import BatchRange, BatchSubscription, Begin, Only
from broker.client.read.decoder import MessageFilter
from broker.client.read.deliveries import Deliveries
from broker.client.read.resuming_reader import ReadProtocol
from broker.client.read.subscription import Subscription
from broker.client.read.vchannel_progress import VChannelProgress
from broker.model.ids import PChannelName, VChannelName
from broker.model.position import FromAll
from schemas.generated.tidemark import v1
from schemas.message_bytes import encoded
from tests.broker.client.read.test_decoder import V0, frame

BUSY_S = 60.0
PCHANNEL = PChannelName(V0.rpartition("_")[0])


class BusyProgram(Deliveries[Any]):
    """Takes a batch after a while."""

    async def put(self, batches: Sequence[Any]) -> None:
        assert batches
        await anyio.sleep(BUSY_S)


class BrokenStream(Conversation):
    """It broke meanwhile."""

    def __init__(self) -> None:
        """Nothing."""

    async def read(self, deadline_s: float | None) -> list[bytes]:
        raise ConnectionLost("it broke")


def batches() -> tuple[ReadProtocol[Any], bytes]:
    wanted = BatchRange(PCHANNEL, (V0,), Begin(), Only())
    return BatchSubscription(wanted), encoded(v1.ReadResponse(closed_tick=10))


def messages() -> tuple[ReadProtocol[Any], bytes]:
    wanted = MessageFilter(PCHANNEL, VChannelName(V0))
    return Subscription(wanted, VChannelProgress(FromAll())), frame(1, 10)


@pytest.mark.parametrize("form", [batches, messages])
def test_the_server_was_heard_when_the_program_has_taken_what_it_sent(form: Any) -> None:
    reads, answer = form()

    async def scenario() -> None:
        heard_s: list[float] = []
        deliveries = BusyProgram(OneSlotQueue(), reads.channels)
        began_s = anyio.current_time()
        with pytest.raises(ConnectionLost):
            await reads.deliver(
                BrokenStream(), [answer], deliveries, lambda: heard_s.append(anyio.current_time())
            )
        assert heard_s[-1] - began_s >= BUSY_S

    run_seeded(1, scenario)
