"""Replies without a mailbox between."""

import asyncio

import pytest

from actors import Envelope
from actors.envelope import Failure


async def test_the_first_answer_counts_and_later_ones_are_dropped() -> None:
    promise: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    envelope = Envelope("question", promise)
    assert envelope.wanted()
    envelope.reply(1)
    envelope.reply(2)
    envelope.fail(ValueError())
    assert await promise == 1
    assert not envelope.wanted()


async def test_a_failure_travels_to_the_asker() -> None:
    promise: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    Envelope("question", promise).fail(KeyError("k"))
    answer = await promise
    assert isinstance(answer, Failure)
    assert isinstance(answer.error, KeyError)


async def test_one_error_for_many_askers_does_not_grow_with_each() -> None:
    try:
        raise KeyError("where it began")
    except KeyError as error:
        failure = Failure(error)
    for _ in range(3):
        with pytest.raises(KeyError) as caught:
            raise failure.fresh()
    assert len(caught.traceback) == 2


async def test_who_waits_for_an_answer_that_is_given_at_once_gets_it_in_its_own_turn() -> None:
    promise: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    envelope = Envelope("question", promise)
    envelope.reply_at_once(1)
    envelope.reply_at_once(2)
    assert await promise == 1


def test_an_answer_nobody_asked_for_goes_nowhere() -> None:
    envelope = Envelope("told")
    envelope.reply(1)
    envelope.reply_at_once(1)
    envelope.fail(ValueError())
    assert not envelope.wanted()


async def test_an_answer_to_who_has_left_goes_nowhere() -> None:
    promise: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    promise.cancel()
    Envelope("question", promise).reply(1)
    assert promise.cancelled()
