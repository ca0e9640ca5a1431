"""Awaits the results of appends; abandons those whose caller was cancelled.

A cancelled wait does not take back an append that is in flight: it may be stored all the same.
"""

import asyncio
from collections.abc import Iterable, Sequence

from broker.client.append.outbox import PendingAppend
from broker.client.append.outgoing_batch import Ticket
from broker.client.append.producer import AnswerFuture
from broker.client.batch import AppendedBatch
from broker.client.durability import word_of
from broker.client.errors import AppendsFailed, OutcomeUnknown, TidemarkError
from broker.client.message import Appended
from broker.model.ids import MessageId, TimeTick, VChannelName

Offered = Ticket | tuple[VChannelName, PendingAppend[AnswerFuture]]
"""What a producer has taken: a message of a gathered batch, or something sent on its own."""


async def result_of(vchannel: VChannelName, pending: PendingAppend[AnswerFuture]) -> Appended:
    """The result of the append, of its first message for a batch; raises its error."""
    try:
        answer = await pending.waiter
    except asyncio.CancelledError:
        # Not sent yet: the outbox drops it. In flight: its answer finds nobody waiting.
        pending.abandoned = True
        raise
    return Appended(
        vchannel,
        MessageId(answer.message_id),
        TimeTick(answer.tick),
        MessageId(answer.last_confirmed_id),
        word_of(answer.durability),
    )


async def outcome_of(offered: Offered | TidemarkError) -> Appended | TidemarkError:
    """As `result_of`, but an error is returned instead of raised."""
    if isinstance(offered, TidemarkError):
        return offered
    try:
        return await (result_of(*offered) if isinstance(offered, tuple) else offered)
    except TidemarkError as error:
        return error


def batch_result(first: Appended, count: int) -> AppendedBatch:
    """The result of a batch of `count` messages, from that of its first one."""
    return AppendedBatch(*first[:4], count, first.durability)


def batch_results(
    outcomes: Sequence[Appended | TidemarkError], counts: Sequence[int]
) -> list[AppendedBatch]:
    """The results of several batches.

    AppendsFailed when some failed; the first error if all, one of unknown outcome before others.
    """
    batches = [
        it if isinstance(it, TidemarkError) else batch_result(it, count)
        for it, count in zip(outcomes, counts, strict=True)
    ]
    good = [it for it in batches if isinstance(it, AppendedBatch)]
    if len(good) == len(batches):
        return good
    if good:
        raise AppendsFailed(batches)
    failures = [it for it in batches if isinstance(it, TidemarkError)]
    # An error that says "refused" must not hide that another batch may be stored.
    raise next((it for it in failures if isinstance(it, OutcomeUnknown)), failures[0])


def abandon(offered: Iterable[Offered | TidemarkError]) -> None:
    """Nobody waits for these any more: those not sent yet are dropped."""
    for it in offered:
        if isinstance(it, tuple):
            it[1].abandoned = True
            it[1].waiter.cancel()
        elif not isinstance(it, TidemarkError):
            # A ticket: its batch leaves the message out unless it was closed before.
            it.cancel()
