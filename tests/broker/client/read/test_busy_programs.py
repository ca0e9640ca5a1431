"""Time in which the program does not take what was read is no silence of the server."""

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from actors.testing import run_seeded
from broker.client.cluster.offsets import Offsets
from broker.client.errors import ConnectionLost, DeadlineExceeded
from broker.client.net.assignment_table import Location
from broker.client.net.assignments import Assignments
from broker.client.net.connection import Connection, Conversation
from broker.client.net.deadlines import Deadlines
from broker.client.net.network import Network
from broker.client.net.one_slot_queue import OneSlotQueue
from broker.client.net.owners import Owners
from broker.client.read.batch_subscription import BatchRange, BatchSubscription, Begin, Only
from broker.client.read.decoder import MessageFilter
from broker.client.read.deliveries import Deliveries
from broker.client.read.resuming_reader import SILENCE_S, ReadProtocol, ResumingReader
from broker.client.read.subscription import Subscription
from broker.client.read.vchannel_progress import VChannelProgress
from broker.model.channel import PChannel
from broker.model.ids import NodeId, PChannelName, Term, VChannelName
from broker.model.position import FromAll
from schemas.generated.tidemark import v1
from schemas.message_bytes import encoded
from tests.broker.client.read.test_decoder import V0, frame, time_tick

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


class OneNode(Network):
    """One node serves the pchannel all the time and takes every stream."""

    def __init__(self, silence_s: float) -> None:
        given = Deadlines(silence_s=silence_s)
        super().__init__("127.0.0.1:1", cluster="", deadlines=given, spread=random.Random(1))
        self.assignments = OnePlace(self.coordinator, self.waits, given, self.spread)

    def connection(self, address: str) -> Connection:
        return OpenDoor("127.0.0.1:1", cluster="", lifetime=self.lifetime)


class OnePlace(Assignments):
    """Knows where it is."""

    async def locate(self, *_: Any, **__: Any) -> Location:
        return Location(PChannel(PCHANNEL, Term(2)), NodeId(1), "127.0.0.1:1")


class OpenDoor(Connection):
    """Opens streams that say nothing after the first answer."""

    @asynccontextmanager
    async def converse(self, *_: Any, **__: Any) -> AsyncIterator[Conversation]:
        yield AcceptedStream()


class AcceptedStream(Conversation):
    """It was taken, and whatever is read is another matter."""

    def __init__(self) -> None:
        """Nothing."""

    async def read(self, deadline_s: float | None) -> list[bytes]:
        return [b""]

    async def write(self, framed: bytes, deadline_s: float) -> None:
        """Nothing."""

    def silent_s(self) -> float:
        return 0.0


class Streams(BatchSubscription):
    """Each stream hears the server or not, and is found to be silent so many seconds later."""

    def __init__(self, *streams: tuple[bool, float]) -> None:
        super().__init__(BatchRange(PCHANNEL, (V0,), Begin(), Only(), until_tick=10))
        self.left = list(streams)

    async def deliver(
        self, stream: Conversation, frames: list[bytes], deliveries: Any, heard: Callable[[], None]
    ) -> None:
        if not self.left:
            self.done = True
            return
        hears, late_s = self.left.pop(0)
        if hears:
            heard()
        await anyio.sleep(late_s)
        raise DeadlineExceeded("the server sent nothing for 30 s")


async def read_all(streams: Streams, silence_s: float) -> None:
    network = OneNode(silence_s)
    owners = Owners(network, deadline_s=10.0)
    reader = ResumingReader(network, Offsets(owners, deadline_s=10.0), streams)
    await reader.run(Deliveries(OneSlotQueue(), streams.channels))


@pytest.mark.parametrize("silence_s", [60.0, 10.0])
@pytest.mark.parametrize("hears", [True, False], ids=["heard", "not heard yet"])
def test_a_program_that_lets_nothing_else_run_ends_no_read(hears: bool, silence_s: float) -> None:
    streams = Streams((hears, 90.0), (True, 90.0))
    run_seeded(1, lambda: read_all(streams, silence_s))
    assert streams.done


@pytest.mark.parametrize(
    ("silence_s", "streams_silent"), [(60.0, 2), (40.0, 2), (10.0, 2), (100.0, 4)]
)
def test_a_server_that_stays_silent_ends_a_bounded_read(
    silence_s: float, streams_silent: int
) -> None:
    streams = Streams((True, SILENCE_S), *[(False, SILENCE_S)] * 10)

    async def scenario() -> None:
        with pytest.raises(DeadlineExceeded, match="sent nothing"):
            await read_all(streams, silence_s)

    run_seeded(1, scenario)
    assert 11 - len(streams.left) == streams_silent


class SilentLater(BrokenStream):
    """It brings these, and then breaks."""

    def __init__(self, *answers: bytes) -> None:
        self.left = list(answers)

    async def read(self, deadline_s: float | None) -> list[bytes]:
        if not self.left:
            raise ConnectionLost("it broke")
        return [self.left.pop(0)]


def test_what_brings_no_message_is_heard_too_but_no_repeat_of_it() -> None:
    wanted = MessageFilter(PCHANNEL, VChannelName(V0), types=frozenset({99}))
    reads = Subscription(wanted, VChannelProgress(FromAll()))

    async def heard(*answers: bytes) -> int:
        times: list[None] = []
        deliveries = BusyProgram(OneSlotQueue(), reads.channels)
        with pytest.raises(ConnectionLost):
            await reads.deliver(SilentLater(*answers), [], deliveries, lambda: times.append(None))
        return len(times)

    async def scenario() -> None:
        assert await heard(time_tick(1, 10), time_tick(1, 11)) == 2
        assert await heard(time_tick(1, 10), time_tick(1, 11)) == 0
        assert await heard(time_tick(1, 12)) == 1

    run_seeded(1, scenario)
