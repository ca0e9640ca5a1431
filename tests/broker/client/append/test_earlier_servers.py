"""Messages with properties of their own, to servers that know batches of them and to others."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from broker.client import (
    Appended,
    Client,
    Deadlines,
    Gathering,
    Message,
    OutcomeUnknown,
    Ticket,
    connect,
)
from broker.client.append.earlier_servers import split_by_properties
from broker.client.append.outbox import PendingAppend
from broker.client.append.outgoing_batch import BatchHeader, BatchTickets, encode_batch
from broker.model.failure import StreamingCode
from broker.model.ids import VChannelName
from schemas.batches import scan_append_request, shared_properties
from schemas.encoding.entries import read_entry
from schemas.encoding.fields import fields
from schemas.handshake import OWN_PROPERTIES
from schemas.packing import codec_named
from tests.broker.client.scripted import VCHANNEL, ScriptedBroker, scripted_broker

MANY = 40
LAZY = Gathering(linger_ms=60_000)
SOON_CLOSED = Deadlines(close_s=0.1)


async def append_soon_many(log: Client) -> list[Ticket]:
    return [
        await log.append_soon(VCHANNEL, Message(b"%d" % at, properties={"n": str(at // 2)}))
        for at in range(MANY)
    ]


async def append_many(log: Client) -> None:
    await asyncio.gather(*await append_soon_many(log))


async def outcomes_of_many(log: Client) -> list[type]:
    """The type of the result or the error of each."""
    tickets = await append_soon_many(log)
    return list(map(type, await asyncio.gather(*tickets, return_exceptions=True)))


def seen(broker: ScriptedBroker) -> list[tuple[bytes, str]]:
    """The payload and the property n of each message that was appended by `append_many`."""
    found: list[tuple[bytes, str]] = []
    for stored in broker.log:
        payload, properties = b"", {}
        for tag, first, stop in fields(stored.body, 0, len(stored.body)):
            if tag == 0x12:
                payload = stored.body[first:stop]
            else:
                key, value = read_entry(stored.body[first:stop])
                properties[key] = value
        if "n" in properties:
            found.append((payload, properties["n"]))
    return found


EXPECTED = [(b"%d" % at, str(at // 2)) for at in range(MANY)]


async def test_messages_with_other_properties_share_a_batch_where_the_server_knows_that() -> None:
    async with scripted_broker() as broker, connect(broker.address) as log:
        broker.revision = OWN_PROPERTIES
        await log.append(VCHANNEL, b"first", properties={"before": "known"})
        await append_many(log)
        assert sorted(seen(broker)) == sorted(EXPECTED)
        assert len(broker.numbers) <= 3, "all of them were appended in one turn"


async def test_a_server_of_an_earlier_release_gets_batches_of_equal_properties() -> None:
    async with scripted_broker() as broker, connect(broker.address) as log:
        await log.append(VCHANNEL, b"first")
        await append_many(log)
        assert sorted(seen(broker)) == sorted(EXPECTED)


async def test_a_refused_batch_goes_on_to_a_server_of_an_earlier_release_in_parts() -> None:
    async with scripted_broker() as broker, connect(broker.address, gathering=LAZY) as log:
        broker.revision = OWN_PROPERTIES
        await log.append(VCHANNEL, b"first")
        broker.revision = 0  # of the next stream
        broker.refusals.append(StreamingCode.ON_SHUTDOWN)
        await append_many(log)
        assert sorted(seen(broker)) == sorted(EXPECTED), "each once, with its own properties"


@pytest.mark.parametrize("lost", ["lose_requests", "lose_replies"])
async def test_a_batch_that_may_be_stored_whole_is_not_split_for_an_earlier_server(
    lost: str,
) -> None:
    """The server would refuse the parts as invalid, although they are stored."""
    async with scripted_broker() as broker, connect(broker.address, gathering=LAZY) as log:
        broker.revision = OWN_PROPERTIES
        await log.append(VCHANNEL, b"first")
        setattr(broker, lost, 1)
        broker.on_cut = lambda: setattr(broker, "revision", 0)
        outcomes = await outcomes_of_many(log)
        assert OutcomeUnknown in outcomes
        assert set(outcomes) <= {OutcomeUnknown, Appended}
        found = Counter(seen(broker))
        assert set(found.values()) <= {1}, "none was stored twice"
        for at, outcome in enumerate(outcomes):
            assert outcome is OutcomeUnknown or EXPECTED[at] in found


@pytest.mark.parametrize("codec", [0, codec_named("zstd")])
async def test_the_parts_have_all_that_the_batch_had(codec: int) -> None:
    own = [shared_properties(it.items()) for it in ({}, {"a": "1"}, {"a": "1"}, {"b": "2"})]
    header = BatchHeader(VChannelName(VCHANNEL), 2, shared_properties([("s", "s")]), 1.0)
    payloads, keys = [b"", b"one", b"two", b"three"], [None, b"k", b"", None]
    request = encode_batch(header, payloads, keys, codec, 0, own)
    done: list[int] = []
    loop = asyncio.get_running_loop()
    tickets = BatchTickets(header.vchannel, [loop.create_future() for _ in payloads], done.append)
    whole = PendingAppend(request, 9.0, tickets, count=4)
    whole.number = "p", 7
    parts = split_by_properties(whole)
    scanned = [scan_append_request(it.message) for it in parts]
    assert [it.sizes for it in scanned] == [(0,), (3, 3), (5,)]
    assert [it.body for it in scanned] == [b"", b"onetwo", b"three"]
    assert [(it.key_sizes, it.keys) for it in scanned] == [((0,), b""), ((2, 1), b"k"), ((0,), b"")]
    assert _all([it.properties for it in scanned]) == [
        {"s": "s"},
        {"s": "s", "a": "1"},
        {"s": "s", "b": "2"},
    ]
    assert [it.own_sizes for it in scanned] == [()] * 3
    assert [(it.number, it.count) for it in parts] == [
        (("p", 7), 1),
        (("p", 8), 2),
        (("p", 10), 1),
    ]
    for part in parts:
        part.waiter.set_exception(ValueError("ended"))
    assert done == [1, 2, 1]


def _all(encoded: Sequence[bytes]) -> list[dict[str, str]]:
    return [
        dict([read_entry(each[first:stop]) for _, first, stop in fields(each, 0, len(each))])
        for each in encoded
    ]
