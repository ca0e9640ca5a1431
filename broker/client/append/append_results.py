"""From what was offered to where it landed: waits for answers, and lets go of what is not wanted.

It owns no state. A wait that is cancelled leaves its append behind, as one that nobody waits for.
Next: broker/client/batch.py
"""

import asyncio
from collections.abc import Iterable, Sequence

from broker.client.append.batch_producer import Ticket
from broker.client.append.outbox import PendingAppend
from broker.client.append.producer import Waiter
from broker.client.batch import AppendedBatch
from broker.client.durability import word_of
from broker.client.errors import AppendsFailed, TidemarkError
from broker.client.message import Appended
from broker.model.ids import MessageId, TimeTick, VChannelName

Offered = Ticket | tuple[VChannelName, PendingAppend[Waiter]]
"""What a producer has taken in: a message of a batch, or something that is sent by itself."""


async def landed(vchannel: VChannelName, pending: PendingAppend[Waiter]) -> Appended:
    """Where it landed; raises what became of it instead."""
    try:
        answer = await pending.waiter
    except asyncio.CancelledError:
        pending.abandoned = True
        raise
    return Appended(
        vchannel,
        MessageId(answer.message_id),
        TimeTick(answer.tick),
        MessageId(answer.last_confirmed_id),
        word_of(answer.durability),
    )


def batch_of(first: Appended, count: int) -> AppendedBatch:
    """So many messages, of which this is the first."""
    return AppendedBatch(*first[:4], count, first.durability)


async def landed_or_failed(offered: Offered | TidemarkError) -> Appended | TidemarkError:
    """The same, with an error as a value."""
    if isinstance(offered, TidemarkError):
        return offered
    try:
        return await (landed(*offered) if isinstance(offered, tuple) else offered)
    except TidemarkError as error:
        return error


def all_landed(
    results: Sequence[Appended | TidemarkError], counts: Sequence[int]
) -> list[AppendedBatch]:
    """Batches of so many messages. AppendsFailed when some failed; if all did, the first error."""
    batches = [
        it if isinstance(it, TidemarkError) else batch_of(it, count)
        for it, count in zip(results, counts, strict=True)
    ]
    good = [it for it in batches if isinstance(it, AppendedBatch)]
    if len(good) == len(batches):
        return good
    if good:
        raise AppendsFailed(batches)
    raise next(it for it in batches if isinstance(it, TidemarkError))


def abandon(offered: Iterable[Offered | TidemarkError]) -> None:
    """Nobody waits for these any more: what is not sent yet never will be."""
    for it in offered:
        if isinstance(it, tuple):
            it[1].abandoned = True
            it[1].waiter.cancel()
        elif not isinstance(it, TidemarkError):
            it.cancel()
