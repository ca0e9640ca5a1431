"""Appends several messages atomically: one transaction for each vchannel with more than one.

A transaction that expired, or cannot be committed any more, will never be read; so it is retried as
a whole.
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

_NOT_IN_TIME: Final = "no transaction was committed in time; nothing of it will be read"

RETRY_PAUSE_S: Final = 0.05
"""Before a transaction is retried: a channel that is being closed refuses to begin any."""


async def append_atomically(
    appends: Appends,
    shards: Shards,
    messages: Iterable[Message],
    deadline_s: float,
    named: bytes = b"",
) -> list[Appended]:
    """The results in the order of the messages, with the ticks they are read with.

    `named`, here and below: the property that names the partition of the rows.

    Vchannels are written concurrently; AppendsFailed has the result of each message.
    """
    everything = list(messages)
    places = shards.places(everything)
    results: dict[int, Appended | TidemarkError] = {}

    async def one_vchannel(vchannel: VChannelName, indexes: Sequence[int]) -> None:
        part = [everything[index] for index in indexes]
        try:
            landed = await append_whole(appends, vchannel, part, deadline_s, named)
        except TidemarkError as error:
            results.update(dict.fromkeys(indexes, error))
        else:
            results.update(zip(indexes, landed, strict=True))

    if len(places) == 1:
        # Without a task, which takes a tenth of a small transaction's time.
        await one_vchannel(*places.popitem())
    else:
        async with anyio.create_task_group() as tasks:
            for vchannel, indexes in places.items():
                tasks.start_soon(one_vchannel, vchannel, indexes)
    ordered = [results[index] for index in range(len(everything))]
    good = [it for it in ordered if isinstance(it, Appended)]
    if len(good) < len(ordered):
        raise AppendsFailed(ordered)
    return good


async def append_whole(
    appends: Appends,
    vchannel: VChannelName,
    messages: Sequence[Message],
    deadline_s: float,
    named: bytes = b"",
) -> list[Appended]:
    """Append all messages in one transaction; results have the tick of the commit.

    A single message is appended without a transaction. Raises DeadlineExceeded when nothing was
    committed in time and nothing will be read, OutcomeUnknown when the commit may have reached the
    server, and refusals of the messages themselves.
    """
    if len(messages) == 1:
        shard = Shards(None, (vchannel,))
        if named:
            return [await (await appends.soon(shard, messages[0], deadline_s, 0, named))]
        return [await appends.one(shard, messages[0], deadline_s)]

    until_s = anyio.current_time() + deadline_s
    while True:
        left_s = max(until_s - anyio.current_time(), 0.0)
        try:
            landed = await appends.of_txns.whole(vchannel, messages, left_s, named)
        except TransactionExpired as error:
            if anyio.current_time() + RETRY_PAUSE_S >= until_s:
                raise DeadlineExceeded(f"{vchannel}: {_NOT_IN_TIME}") from error
            await anyio.sleep(RETRY_PAUSE_S)
        else:
            return landed or await _append_in_steps(appends, vchannel, messages, left_s, named)


async def _append_in_steps(
    appends: Appends,
    vchannel: VChannelName,
    messages: Sequence[Message],
    deadline_s: float,
    named: bytes,
) -> list[Appended]:
    """The begin, the bodies and the commit one after the other."""

    async def resolved() -> Shards:
        return Shards(None, (vchannel,))

    txn = Txn(appends, resolved, 0, deadline_s)
    try:
        with anyio.fail_after(deadline_s):
            while True:
                landed = await _try_whole(txn, messages, named)
                if landed is not None:
                    return landed
                txn = Txn(appends, resolved, 0, deadline_s)
                await anyio.sleep(RETRY_PAUSE_S)
    except TimeoutError as error:
        if txn.committing:
            cause = "the commit of a transaction was not answered in time"
            raise OutcomeUnknown(f"{vchannel}: {cause}; it may have been written") from error
        raise DeadlineExceeded(f"{vchannel}: {_NOT_IN_TIME}") from error


async def _try_whole(txn: Txn, messages: Sequence[Message], named: bytes) -> list[Appended] | None:
    """The results; None when nothing of it will ever be read, so that it may be retried."""
    try:
        async with txn:
            landed = await txn.append_rows(messages, named)
            commit = await txn.commit()
    except TransactionExpired:
        return None
    except OutcomeUnknown:
        # The outcome of a body: the commit was refused here, so nothing will be read and all may be
        # tried again. Otherwise the commit may have succeeded.
        if not txn.cannot_commit:
            raise
        return None
    return [each._replace(tick=commit.tick) for each in landed]
