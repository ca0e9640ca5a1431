"""Transactions in one batch: against a real broker, and with servers that do not know them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from broker.app import Broker
from broker.client import AppendsFailed, Client, Message, OutcomeUnknown, Received, connect
from broker.client.append.batch_producer import BatchProducer
from broker.client.cluster.targets import NewVChannel
from broker.model.failure import StreamingCode
from broker.model.message import MessageType
from schemas.handshake import OWN_PROPERTIES, WHOLE_TXNS
from tests.broker.client.scripted import VCHANNEL as SCRIPTED
from tests.broker.client.scripted import Cut, scripted_broker
from tests.local_broker import actors_of, local_broker

PCHANNEL = "by-dev-rootcoord-dml_0"
V = NewVChannel(f"{PCHANNEL}_7v0")
MESSAGES = [
    Message(b"%d" % at, key=b"k" if at % 2 else None, properties={"n": str(at)}) for at in range(9)
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """One that runs in a thread and a loop of its own."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(local_broker(tmp_path, pchannels=1)) as started,
    ):
        yield started


def shown(messages: list[Received]) -> list[tuple[object, ...]]:
    return [(it.payload, it.key, it.properties, it.type) for it in messages]


async def read_by_all(log: Client, name: str) -> list[list[Received]]:
    """What Milvus's Consume delivers, and what `read_batches` does."""
    single = [it async for it in log.read(name, until="now").messages()]
    batched = [it async for each in log.read_batches(name, until="now") for it in each.messages]
    return [single, batched]


async def test_it_is_read_whole_at_one_tick_with_all_that_its_messages_had(broker: Broker) -> None:
    async with connect(broker.address) as log:
        await log.append(V, b"first")
        landed = await log.append_messages(V, MESSAGES)
        await log.append_messages(V, [Message(b"x")] * 3)
        sent = [(it.payload, it.key, it.properties, MessageType.INSERT) for it in MESSAGES]
        for found in await read_by_all(log, V):
            assert shown(found)[1:10] == sent
            assert [(it.id, it.tick) for it in found[1:10]] == [(it.id, it.tick) for it in landed]
            assert len({it.tick for it in found[1:10]}) == 1
            assert [it.payload for it in found[10:]] == [b"x"] * 3
            assert len({it.tick for it in found[10:]}) == 1


async def test_its_steps_are_stored_in_one_group_and_it_needs_no_actor(broker: Broker) -> None:
    async with connect(broker.address) as log:
        await log.append(V, b"first")
        for _ in range(20):
            await log.append_messages(V, MESSAGES)
        (monitor,) = actors_of(broker, PCHANNEL, "txn_monitor")
        assert monitor.extra["started"] == 0
        (appender,) = actors_of(broker, PCHANNEL, "appender")
        assert appender.extra["open_txns"] == 0
        assert not log._appends._single.all(), "nothing went in steps"


async def test_deletes_go_in_one_batch_and_mixed_types_in_steps(broker: Broker) -> None:
    async with connect(broker.address) as log:
        await log.append(V, b"first")
        deletes = [Message(b"d", type=MessageType.DELETE)] * 2
        await log.append_messages(V, deletes)
        await log.append_messages(V, [*deletes, Message(b"i")])
        for found in await read_by_all(log, V):
            assert [int(it.type) for it in found[1:]] == [3, 3, 3, 3, 2]


@pytest.mark.parametrize("lost", ["lose_requests", "lose_replies"])
async def test_a_lost_stream_does_not_double_it(lost: str) -> None:
    async with scripted_broker() as broker, connect(broker.address) as log:
        broker.revision, broker.cut = WHOLE_TXNS, Cut.HANG_UP
        await log.append(SCRIPTED, b"first")
        setattr(broker, lost, 1)
        landed = await log.append_messages(SCRIPTED, MESSAGES)
        assert len(broker.log) == 1 + len(MESSAGES)
        assert [it.id for it in landed] == [it.id for it in broker.log[1:]]


async def test_without_resending_a_lost_answer_is_an_unknown_outcome() -> None:
    async with scripted_broker() as broker, connect(broker.address, resend=False) as log:
        broker.revision, broker.cut = WHOLE_TXNS, Cut.HANG_UP
        await log.append(SCRIPTED, b"first")
        broker.lose_replies = 1
        with pytest.raises(AppendsFailed) as raised:
            await log.append_messages(SCRIPTED, MESSAGES)
        assert {type(it) for it in raised.value.results} == {OutcomeUnknown}


@pytest.mark.parametrize("revision", [0, OWN_PROPERTIES])
async def test_a_server_of_an_earlier_release_gets_it_in_steps(revision: int) -> None:
    async with scripted_broker() as broker, connect(broker.address) as log:
        broker.revision = revision
        await log.append(SCRIPTED, b"first")
        await log.append_messages(SCRIPTED, [Message(b"x")] * 3)
        assert len(broker.log) == 1 + 3 + 2, "with its begin and its commit"


@pytest.mark.parametrize("long", ["payload", "key", "properties"])
async def test_what_would_exceed_the_limit_of_a_batch_goes_in_steps(
    broker: Broker, long: str
) -> None:
    text = "x" * 50_000
    messages = [
        Message(
            b"%d" % at + (text.encode() if long == "payload" else b""),
            key=text.encode() if long == "key" else None,
            properties={"n": text + str(at)} if long == "properties" else {},
        )
        for at in range(200)
    ]
    async with connect(broker.address) as log:
        await log.append(V, b"first")
        landed = await log.append_messages(V, messages)
        assert len(landed) == len(messages)
        assert log._appends._single.all(), "it went in steps"
        found = [it async for it in log.read(V, until="now").messages()]
        assert [it.payload for it in found[1:]] == [it.payload for it in messages]


async def test_it_goes_in_steps_when_the_server_changes_while_it_waits_for_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with scripted_broker() as broker, connect(broker.address) as log:
        broker.revision = WHOLE_TXNS
        await log.append(SCRIPTED, b"first")
        (producer,) = log._appends._batches.all()

        async def move(deadline_at_s: float) -> None:
            monkeypatch.undo()
            producer._greeted(0)
            broker.revision = 0

        monkeypatch.setattr(BatchProducer, "has_room", False)
        monkeypatch.setattr(producer, "wait_for_room", move)
        await log.append_messages(SCRIPTED, [Message(b"x")] * 3)
        assert len(broker.log) == 1 + 3 + 2, "with its begin and its commit"


async def test_it_is_begun_anew_when_the_channel_moves_to_a_server_of_an_earlier_release() -> None:
    async with scripted_broker() as broker, connect(broker.address) as log:
        broker.revision = WHOLE_TXNS
        await log.append(SCRIPTED, b"first")
        broker.revision = 0  # of the next stream
        broker.refusals.append(StreamingCode.ON_SHUTDOWN)
        await log.append_messages(SCRIPTED, [Message(b"x")] * 3)
        assert len(broker.log) == 1 + 3 + 2, "with its begin and its commit"
