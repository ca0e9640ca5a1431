"""Groups of batches that arrived together: each is handed over once, whatever is cancelled."""

from typing import Any, cast

import anyio

from broker.client.append.outgoing_batch import BatchHeader, encode_batch
from broker.edge.rpc.append_flow import AppendFlow
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.incoming.stream_turns import StreamTurns, TurnGate
from broker.edge.tidemark.append_batches import Admissions, AppendStream
from broker.model.batch import NewBatch
from broker.model.channel import PChannel
from broker.model.failure import Refusal
from broker.model.ids import PChannelName, Term, VChannelName
from broker.model.message import MessageType
from broker.ports.row_schemas import NoRowSchemas, NoShard
from broker.transport import BatchStream

CHANNEL = PChannel(PChannelName("by-dev-rootcoord-dml_0"), Term(1))
MIB = 1024 * 1024


class FullFlow:
    """A flow without room: who waits for it waits until the stream is cancelled."""

    channel = CHANNEL.name
    located = None

    limited = False

    def __init__(self) -> None:
        self.appended: list[tuple[Any, ...]] = []
        self.turns = StreamTurns(TurnGate())
        self.scope = anyio.CancelScope()

    def holds(self, *_: object) -> bool:
        return True

    async def lacking(self, *_: object) -> None:
        return None

    async def admit(self, cost: int, size: int) -> None: ...

    def append(self, batches: tuple[Any, ...], *_: object) -> None:
        self.appended.append(batches)

    async def wait_for_room(self) -> None:
        self.scope.cancel()
        await anyio.sleep_forever()

    def answer(self, answers: list[bytes], _: int) -> None:
        raise AssertionError(f"nothing was stored, yet it is answered: {answers}")


def frame(size: int, name: str = f"{CHANNEL.name}_7v0") -> bytes:
    vchannel = VChannelName(name)
    header = BatchHeader(vchannel, MessageType.INSERT, b"", deadline_s=1.0)
    return encode_batch(header, [b"x" * size], [None], 0, size)


async def test_a_group_whose_wait_is_cancelled_is_not_appended_again() -> None:
    flow, limits = FullFlow(), EdgeLimits()
    checks = Admissions(NoRowSchemas(), limits.message_bytes_max)
    stream = AppendStream(cast("BatchStream", None), cast("AppendFlow", flow), checks, limits)
    with flow.scope:
        await stream._take([frame(MIB + MIB // 2) for _ in range(3)])
    assert flow.scope.cancelled_caught
    appended = [id(batch) for group in flow.appended for batch in group]
    assert appended
    assert len(appended) == len(set(appended)), "a batch was handed over twice"


class Asked(NoRowSchemas):
    """Notes which vchannels somebody looked up."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def shard(self, vchannel: str) -> NoShard:
        self.names.append(vchannel)
        return NoShard.OTHER


async def test_a_name_that_cannot_be_one_is_refused_before_anything_remembers_it() -> None:
    schemas, limits = Asked(), EdgeLimits()
    flow = FullFlow()
    checks = Admissions(schemas, limits.message_bytes_max)
    stream = AppendStream(cast("BatchStream", None), cast("AppendFlow", flow), checks, limits)
    name = f"{CHANNEL.name}_v{'x' * MIB}"
    verdicts = [await stream._verdict(frame(1, it)) for it in (name, "elsewhere_1v0")]
    assert all(isinstance(it, Refusal) for it in verdicts)
    assert schemas.names == []
    assert isinstance(await stream._verdict(frame(1)), NewBatch)
    assert schemas.names == [f"{CHANNEL.name}_7v0"]
