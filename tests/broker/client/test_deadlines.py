"""When an append or a reader gives up, and what a client that ends leaves behind."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from broker.client import (
    ClosedClient,
    ConnectionLost,
    DeadlineExceeded,
    Deadlines,
    OutcomeUnknown,
    SendLimits,
    connect,
)
from broker.client.errors import ForkedClient, ServerFailed
from broker.model.failure import StreamingCode
from tests.broker.client.scripted import (
    GUARD_S,
    VCHANNEL,
    ScriptedBroker,
    scripted_broker,
)

SHORT = Deadlines(append_s=1.5, close_s=0.2)
DEADLINES_S = (1.5, 6.0, 24.0)
"""A slow machine needs a longer one to get so far within it."""


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with scripted_broker() as started:
        yield started


def payloads(broker: ScriptedBroker) -> list[bytes]:
    """The log's messages, by the one byte that the tests put into each."""
    return [it.body[2:3] for it in broker.log]


async def test_an_append_that_is_never_answered_has_an_unknown_outcome(
    broker: ScriptedBroker,
) -> None:
    broker.silent = True
    async with connect(broker.address, deadlines=SHORT) as log:
        for deadline_s in DEADLINES_S:
            with pytest.raises((OutcomeUnknown, DeadlineExceeded)) as raised:
                await log.append(VCHANNEL, b"a", deadline_s=deadline_s)
            if isinstance(raised.value, OutcomeUnknown):
                break
            assert broker.log == [], "only what was not sent is certainly not written"
    assert isinstance(raised.value, OutcomeUnknown)
    assert "may have been written" in str(raised.value)


async def test_an_append_leaves_an_owner_that_stands_still_for_the_one_in_its_place(
    broker: ScriptedBroker,
) -> None:
    broker.silent = True
    async with connect(broker.address) as log, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(log.append(VCHANNEL, b"a", deadline_s=GUARD_S))
        await broker.until(lambda: len(broker.log) == 1)
        broker.silent = False
        broker.reassign()
    assert waiting.result().id == 1
    assert payloads(broker) == [b"a"]
    assert broker.opened_terms == [2, 3]


async def test_an_append_to_a_channel_that_nobody_serves_was_certainly_not_written(
    broker: ScriptedBroker,
) -> None:
    broker.serving = False
    async with connect(broker.address, deadlines=SHORT) as log:
        with pytest.raises(DeadlineExceeded) as raised:
            await log.append(VCHANNEL, b"a")
        assert raised.value.retriable


async def test_an_append_refused_until_its_deadline_says_what_the_server_said(
    broker: ScriptedBroker,
) -> None:
    broker.refusals.extend([StreamingCode.INNER] * 999)
    async with connect(broker.address, deadlines=SHORT) as log:
        for deadline_s in DEADLINES_S:
            with pytest.raises((DeadlineExceeded, OutcomeUnknown)) as raised:
                await log.append(VCHANNEL, b"a", deadline_s=deadline_s)
            # Unknown it is when a try was on its way at the deadline.
            if isinstance(raised.value, DeadlineExceeded) and "scripted" in str(raised.value):
                break
    assert isinstance(raised.value, DeadlineExceeded)
    assert "scripted" in str(raised.value)
    assert isinstance(raised.value.__cause__, ServerFailed)
    assert broker.log == []


async def test_waiting_for_room_ends_at_the_deadline(broker: ScriptedBroker) -> None:
    broker.silent = True
    limits = SendLimits(appends_max=1)
    async with connect(broker.address, deadlines=SHORT, limits=limits) as log:
        for deadline_s in DEADLINES_S:
            results = await asyncio.gather(
                log.append(VCHANNEL, b"a", deadline_s=deadline_s),
                log.append(VCHANNEL, b"b", deadline_s=0.1),
                return_exceptions=True,
            )
            if broker.log:  # else the first one was not sent in time
                break
    assert [type(it) for it in results] == [OutcomeUnknown, DeadlineExceeded]
    assert payloads(broker) == [b"a"]


async def test_closing_answers_everybody_and_leaves_no_task(broker: ScriptedBroker) -> None:
    broker.silent = True
    before = len(asyncio.all_tasks())
    async with connect(broker.address, deadlines=Deadlines(close_s=0.2)) as log:
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(_outcome(log.append(VCHANNEL, b"a")))
            await broker.until(lambda: len(broker.log) == 1)
            await log.aclose()
            await log.aclose()
        assert isinstance(waiting.result(), OutcomeUnknown)
        with pytest.raises(ClosedClient):
            await log.append(VCHANNEL, b"b")
    broker.silent = False
    assert len([it for it in asyncio.all_tasks() if "broker.client" in repr(it)]) == 0
    assert len(asyncio.all_tasks()) <= before + 3  # the server's own handlers may still be ending


async def _outcome(append: object) -> object:
    try:
        return await append  # type: ignore[misc]
    except (OutcomeUnknown, ClosedClient) as error:
        return error


async def test_an_error_of_the_program_comes_out_of_the_block_as_it_is(
    broker: ScriptedBroker,
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with connect(broker.address):
            _ = 1 // 0


async def test_nobody_listening_is_told_at_once() -> None:
    with pytest.raises(ConnectionLost, match="cannot reach"):
        async with connect("127.0.0.1:1"):
            pass


async def test_a_reader_of_a_channel_that_nobody_serves_is_told_when_it_opens(
    broker: ScriptedBroker,
) -> None:
    async with connect(broker.address) as log:
        log._network.open_s = 0.3  # not before: the first table needs longer on a slow machine
        with pytest.raises(DeadlineExceeded, match="no node served pchannel"):
            async with asyncio.timeout(60):
                await anext(log.read("by-dev-rootcoord-dml_99"))


async def test_a_forked_process_gets_a_clear_error(broker: ScriptedBroker) -> None:
    async with connect(broker.address) as log:
        await log.append(VCHANNEL, b"a")
        child = os.fork()
        if child == 0:
            step = log.append(VCHANNEL, b"b")
            try:
                step.send(None)
            except ForkedClient:
                os._exit(7)
            finally:
                os._exit(1)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
