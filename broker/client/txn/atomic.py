"""Several messages appended at once: one transaction for each vchannel that gets more than one.

It owns the trying again: what expired, or cannot be committed, was never read and never will be.
Next: broker/client/txn/txn.py
"""

from collections.abc import Iterable, Sequence
from typing import Final

import anyio

from broker.client.append.appends import Appends
from broker.client.cluster.targets import Shards
from broker.client.errors import (
    AppendsFailed,
    DeadlineExceeded,
    OutcomeUnknown,
    TidemarkError,
    TransactionExpired,
)
from broker.client.message import Appended, Message
from broker.client.txn.txn import Txn
from broker.model.ids import VChannelName

AGAIN_PAUSE_S: Final = 0.05
"""Before a transaction is tried again: a channel that is being closed lets none begin."""


async def append_atomically(
    appends: Appends, shards: Shards, messages: Iterable[Message], deadline_s: float
) -> list[Appended]:
    """Results in the order of the messages, with the ticks that they are read with.

    Vchannels go on beside each other; AppendsFailed says for each message what became of it.
    """
    everything = list(messages)
    places: dict[VChannelName, list[int]] = {}
    for index, message in enumerate(everything):
        places.setdefault(shards.choose(message.key), []).append(index)
    results: dict[int, Appended | TidemarkError] = {}

    async def one_vchannel(vchannel: VChannelName, indexes: Sequence[int]) -> None:
        part = [everything[index] for index in indexes]
        try:
            landed = await append_whole(appends, vchannel, part, deadline_s)
        except TidemarkError as error:
            results.update(dict.fromkeys(indexes, error))
        else:
            results.update(zip(indexes, landed, strict=True))

    async with anyio.create_task_group() as tasks:
        for vchannel, indexes in places.items():
            tasks.start_soon(one_vchannel, vchannel, indexes)
    ordered = [results[index] for index in range(len(everything))]
    good = [it for it in ordered if isinstance(it, Appended)]
    if len(good) < len(ordered):
        raise AppendsFailed(ordered)
    return good


async def append_whole(
    appends: Appends, vchannel: VChannelName, messages: Sequence[Message], deadline_s: float
) -> list[Appended]:
    """All of them in one transaction, tried again as a whole; with the tick of their commit.

    A single message needs no transaction. Raises DeadlineExceeded when none of it is written in
    time or will ever be read, OutcomeUnknown when the commit may have been heard, and what refuses
    the messages themselves.
    """
    if len(messages) == 1:
        return [await appends.one(Shards(None, (vchannel,)), messages[0], deadline_s)]

    async def resolved() -> VChannelName:
        return vchannel

    txn = Txn(appends, resolved, 0, deadline_s)
    try:
        with anyio.fail_after(deadline_s):
            while True:
                landed = await _try_whole(txn, messages)
                if landed is not None:
                    return landed
                txn = Txn(appends, resolved, 0, deadline_s)
                await anyio.sleep(AGAIN_PAUSE_S)
    except TimeoutError as error:
        if txn.committing:
            cause = "the commit of a transaction was not answered in time"
            raise OutcomeUnknown(f"{vchannel}: {cause}; it may have been written") from error
        cause = "no transaction was committed in time"
        raise DeadlineExceeded(f"{vchannel}: {cause}; nothing of it will be read") from error


async def _try_whole(txn: Txn, messages: Sequence[Message]) -> list[Appended] | None:
    """None: nothing of it will ever be read, so it may be tried again."""
    try:
        async with txn:
            landed = await txn.append_messages(messages)
            commit = await txn.commit()
    except TransactionExpired:
        return None
    except OutcomeUnknown:
        if not txn.hopeless:
            raise
        return None
    return [each._replace(tick=commit.tick) for each in landed]
