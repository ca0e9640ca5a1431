"""Against a server that cuts streams and loses answers: nothing lost, nothing twice, no lie."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from broker.client import (
    AppendsFailed,
    ClosedClient,
    Message,
    OutcomeUnknown,
    OutOfRange,
    Scanner,
    ServerRefusal,
    connect,
)
from broker.client.net.retry_rules import RetryVerdict, append_verdict
from broker.model.failure import StreamingCode
from broker.model.message import MessageType
from tests.broker.client.scripted import (
    PCHANNEL,
    VCHANNEL,
    Cut,
    ScriptedBroker,
    scripted_broker,
)

REFUSALS = [code for code in StreamingCode if code is not StreamingCode.OK]
RETRIED = [code for code in REFUSALS if append_verdict(code) is not RetryVerdict.SURFACE]


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with scripted_broker() as started:
        yield started


def payloads(broker: ScriptedBroker) -> list[bytes]:
    """The log's messages, by the one byte that the tests put into each."""
    return [it.body[2:3] for it in broker.log]


# ---- reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("frames_per_stream", [1, 4])
async def test_a_reader_loses_nothing_and_gets_nothing_twice_when_its_streams_are_cut(
    broker: ScriptedBroker, cut: Cut, frames_per_stream: int
) -> None:
    async with connect(broker.address) as log:
        sent = [(await log.append(VCHANNEL, b"%d" % it)).id for it in range(6)]
        broker.cut = cut
        broker.frames_per_stream = frames_per_stream
        seen = []
        async for message in log.read(VCHANNEL).messages():
            seen.append((message.id, message.payload))
            if len(seen) == 6:
                break
    assert seen == [(id, b"%d" % it) for it, id in enumerate(sent)]


async def test_a_reader_of_the_latest_misses_nothing_when_its_first_stream_is_cut(
    broker: ScriptedBroker,
) -> None:
    async with connect(broker.address) as log:
        await log.append(VCHANNEL, b"before")
        broker.frames_per_stream = 0
        async with log.read(VCHANNEL, start="latest") as reader:
            await log.append(VCHANNEL, b"after")
            broker.frames_per_stream = None
            async for message in reader.messages():
                assert message.payload == b"after"
                break


async def test_what_retention_took_from_a_reader_is_an_error_with_the_range(
    broker: ScriptedBroker,
) -> None:
    def retention() -> None:
        """While the channel moves, so that the first question about what is left fails."""
        broker.first_id = 6
        broker.describe_refusals.append(StreamingCode.CHANNEL_NOT_EXIST)

    broker.on_cut = retention
    async with connect(broker.address) as log:
        for it in range(9):
            await log.append(VCHANNEL, b"%d" % it)
        broker.frames_per_stream = 2
        reader = log.read(VCHANNEL)
        seen: list[int] = []
        with pytest.raises(OutOfRange) as raised:
            await _read_all(reader, seen)
    assert seen == [1, 2]
    assert (raised.value.requested_id, raised.value.first_id, raised.value.next_id) == (3, 6, 10)


async def _read_all(reader: Scanner, seen: list[int]) -> None:
    async for batch in reader:
        seen.extend(it.id for it in batch.messages)


async def test_a_range_outside_of_the_log_is_refused_before_anything_is_read(
    broker: ScriptedBroker,
) -> None:
    async with connect(broker.address) as log:
        await log.append(VCHANNEL, b"0")
        with pytest.raises(OutOfRange):
            await anext(log.read_range(VCHANNEL, 1, 9))
        broker.first_id = 2
        with pytest.raises(OutOfRange):
            await anext(log.read_range(VCHANNEL, 1, 2))


async def test_a_dropped_reader_closes_its_stream(broker: ScriptedBroker) -> None:
    async with connect(broker.address) as log:
        await log.append(VCHANNEL, b"0")
        async for _ in log.read(VCHANNEL):
            break
        await broker.until(lambda: broker.consumers_open == 0)


async def test_a_reader_ends_with_the_client(broker: ScriptedBroker) -> None:
    async with connect(broker.address) as log:
        reader = log.read(VCHANNEL)
        await reader.open()
    with pytest.raises(ClosedClient):
        await anext(reader)
    with pytest.raises(ClosedClient):
        log.read(VCHANNEL)


# ---- appending ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", Cut)
async def test_an_append_whose_request_was_lost_is_written_once(
    broker: ScriptedBroker, cut: Cut
) -> None:
    broker.cut, broker.lose_requests = cut, 2
    async with connect(broker.address) as log:
        landed = await log.append(VCHANNEL, b"a")
    assert [it.id for it in broker.log] == [landed.id]


@pytest.mark.parametrize("cut", Cut)
async def test_an_append_whose_reply_was_lost_is_sent_again_and_stored_once(
    broker: ScriptedBroker, cut: Cut
) -> None:
    broker.cut, broker.lose_replies = cut, 2
    async with connect(broker.address) as log:
        landed = await log.append(VCHANNEL, b"a")
    assert payloads(broker) == [b"a"]
    assert landed.id == 1


@pytest.mark.parametrize("cut", Cut)
async def test_a_single_message_of_milvus_own_whose_reply_was_lost_is_written_twice(
    broker: ScriptedBroker, cut: Cut
) -> None:
    broker.cut, broker.lose_replies = cut, 1
    async with connect(broker.address) as log:
        landed = await log.append(VCHANNEL, b"a", version=2)
    assert payloads(broker) == [b"a", b"a"]
    assert landed.id == 2


async def test_a_batch_whose_number_is_forgotten_is_unknown_only_when_it_was_sent_before(
    broker: ScriptedBroker,
) -> None:
    async with connect(broker.address) as log:
        await log.append(VCHANNEL, b"a")
        broker.forgetful = True
        await log.append(VCHANNEL, b"b")
        broker.lose_requests = 1
        broker.on_cut = broker.numbers.clear
        with pytest.raises(OutcomeUnknown):
            await log.append(VCHANNEL, b"c")
        await log.append(VCHANNEL, b"d")
    assert payloads(broker) == [b"a", b"b", b"d"]


async def test_batches_behind_one_that_was_refused_get_other_numbers_and_are_stored_once(
    broker: ScriptedBroker,
) -> None:
    broker.refusals.append(StreamingCode.UNRECOVERABLE)
    async with connect(broker.address) as log:
        results = await asyncio.gather(
            *[log.append_batch(VCHANNEL, [b"%d" % it]) for it in range(9)], return_exceptions=True
        )
    assert isinstance(results[0], ServerRefusal)
    assert payloads(broker) == [b"%d" % it for it in range(1, 9)]


@pytest.mark.parametrize("cut", Cut)
async def test_without_resending_a_lost_reply_is_an_unknown_outcome(
    broker: ScriptedBroker, cut: Cut
) -> None:
    broker.cut, broker.lose_replies = cut, 1
    async with connect(broker.address, resend=False) as log:
        with pytest.raises(OutcomeUnknown) as raised:
            await log.append(VCHANNEL, b"a")
        assert not raised.value.retriable
        await log.append(VCHANNEL, b"b")
    assert payloads(broker) == [b"a", b"b"]


async def test_many_appends_over_cut_streams_are_all_there_in_order_of_their_results(
    broker: ScriptedBroker,
) -> None:
    broker.lose_requests = broker.lose_replies = 2
    async with connect(broker.address) as log:
        some = [Message(b"%d" % it) for it in range(9)]
        landed = await log.append_messages(VCHANNEL, some, atomic=False)
    written = {it.id: it.body[2:3] for it in broker.log}
    assert [written[it.id] for it in landed] == [b"%d" % it for it in range(9)]


@pytest.mark.parametrize("code", RETRIED)
async def test_without_resending_only_what_may_have_been_stored_has_an_unknown_outcome(
    broker: ScriptedBroker, code: StreamingCode
) -> None:
    """Every other refusal says that nothing was stored, so that it is sent again for sure."""
    broker.refusals.append(code)
    async with connect(broker.address, resend=False) as log:
        if code in (StreamingCode.UNKNOWN, StreamingCode.CHANNEL_FENCED):
            with pytest.raises(OutcomeUnknown):
                await log.append(VCHANNEL, b"a")
        else:
            assert (await log.append(VCHANNEL, b"a")).id == 1


@pytest.mark.parametrize("code", REFUSALS)
async def test_a_refused_append_is_retried_or_surfaced_as_its_code_says(
    broker: ScriptedBroker, code: StreamingCode
) -> None:
    broker.refusals.append(code)
    async with connect(broker.address) as log:
        if append_verdict(code) is RetryVerdict.SURFACE:
            with pytest.raises(ServerRefusal) as raised:
                await log.append(VCHANNEL, b"a")
            assert raised.value.code is code
            assert broker.log == []
        else:
            assert (await log.append(VCHANNEL, b"a")).id == 1
    rerouted = append_verdict(code) is RetryVerdict.REROUTE
    assert broker.reports == ([(PCHANNEL, 2)] if rerouted else [])
    if rerouted:
        assert broker.opened_terms == [2, 3]


async def test_append_messages_tells_the_result_of_every_single_message(
    broker: ScriptedBroker,
) -> None:
    broker.refusals.append(StreamingCode.UNRECOVERABLE)
    async with connect(broker.address) as log:
        some = [Message(b"a"), Message(b"b", type=MessageType.DELETE)]
        with pytest.raises(AppendsFailed) as raised:
            await log.append_messages(VCHANNEL, some, atomic=False)
    first, second = raised.value.results
    assert isinstance(first, ServerRefusal)
    assert second == (VCHANNEL, 1, 1001, 1, "fsync")
    assert not raised.value.retriable
