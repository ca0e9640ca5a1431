"""Transactions of a program when answers do not come: it says so, and never commits a guess."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator

import pytest

from broker.client import (
    AppendsFailed,
    DeadlineExceeded,
    Message,
    OutcomeUnknown,
    TransactionExpired,
    connect,
)
from broker.client.errors import BadTransaction
from broker.model.failure import StreamingCode
from tests.broker.client.scripted import VCHANNEL, ScriptedBroker, scripted_broker

GONE = StreamingCode.TRANSACTION_EXPIRED
DEADLINES_S = (0.5, 4.0, 16.0)
"""A slow machine needs a longer one to send a begin within it."""


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with scripted_broker() as started:
        yield started


def kinds(broker: ScriptedBroker) -> list[bytes]:
    return [kind for it in broker.log for kind in (b"900", b"901", b"902") if kind in it.body]


async def test_a_commit_sent_twice_that_finds_no_transaction_may_have_succeeded(
    broker: ScriptedBroker,
) -> None:
    async with connect(broker.address) as log:
        txn = log.txn(VCHANNEL)
        await txn.begin()
        broker.refusals = deque([StreamingCode.UNKNOWN, GONE])
        with pytest.raises(OutcomeUnknown, match="may have committed it"):
            await txn.commit()


async def test_a_commit_sent_once_that_finds_no_transaction_has_failed(
    broker: ScriptedBroker,
) -> None:
    async with connect(broker.address) as log:
        txn = log.txn(VCHANNEL)
        await txn.begin()
        broker.refusals = deque([StreamingCode.INNER, GONE])
        with pytest.raises(TransactionExpired):
            await txn.commit()


@pytest.mark.parametrize("count", [1, 3])
async def test_after_an_append_that_was_cancelled_nothing_is_committed(
    broker: ScriptedBroker, count: int
) -> None:
    async with connect(broker.address) as log:
        txn = log.txn(VCHANNEL)
        await txn.begin()
        broker.silent = True
        async with asyncio.TaskGroup() as tasks:
            appends = [tasks.create_task(txn.append(b"?")) for _ in range(count)]
            await broker.until(lambda: len(broker.log) == 1 + count)
            appends[0].cancel()
            broker.silent = False
            for each in appends[1:]:
                each.cancel()
        with pytest.raises(OutcomeUnknown, match="cancelled"):
            await txn.commit()
        assert kinds(broker) == [b"900", b"902"]


async def test_a_transaction_begins_once(broker: ScriptedBroker) -> None:
    async with connect(broker.address) as log, log.txn(VCHANNEL) as txn:
        with pytest.raises(BadTransaction):
            await txn.begin()
    assert kinds(broker) == [b"900", b"901"]


async def test_a_rollback_that_fails_does_not_hide_that_the_outcome_is_unknown(
    broker: ScriptedBroker,
) -> None:
    async with connect(broker.address) as log:
        txn = log.txn(VCHANNEL)
        await txn.begin()
        broker.silent = True
        async with asyncio.TaskGroup() as tasks:
            append = tasks.create_task(txn.append(b"?"))
            await broker.until(lambda: len(broker.log) == 2)
            append.cancel()
        broker.silent = False
        broker.refusals = deque([GONE])
        with pytest.raises(OutcomeUnknown, match="cancelled"):
            await txn.commit()


@pytest.mark.parametrize("resend", [True, False])
async def test_a_begin_without_an_answer_has_certainly_written_nothing(
    broker: ScriptedBroker, resend: bool
) -> None:
    async with connect(broker.address, resend=resend) as log:
        broker.silent = True
        for deadline_s in DEADLINES_S:
            txn = log.txn(VCHANNEL, deadline_s=deadline_s)
            with pytest.raises(DeadlineExceeded) as late:
                await txn.begin()
            if broker.log:
                break
        assert re.search("the begin .* was not answered; nothing of it", str(late.value))
        begun = len(broker.log)
        for deadline_s in DEADLINES_S:
            two = [Message(b"a"), Message(b"b")]
            with pytest.raises(AppendsFailed) as raised:
                await log.append_messages(VCHANNEL, two, deadline_s=deadline_s)
            assert [type(it) for it in raised.value.results] == [DeadlineExceeded] * 2
            assert raised.value.retriable
            if len(broker.log) > begun:
                break
