"""What a program appends with: the half of the client that writes.

It finds the vchannels of a target and hands the rest on.
Next: broker/client/append/appends.py
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from broker.client.append.appends import Appends
from broker.client.append.arrow_batches import split_rows
from broker.client.append.outgoing_batch import Ticket
from broker.client.append.prepare import batch_header
from broker.client.batch import AppendedBatch
from broker.client.cluster.targets import Shards, Targets
from broker.client.durability import Durability, level_of
from broker.client.errors import BadTarget, InvalidArgument
from broker.client.message import Appended, Key, Kind, Message, check_messages
from broker.client.net.deadlines import Deadlines
from broker.client.txn.atomic import append_atomically
from broker.client.txn.txn import Txn
from broker.model.ids import VChannelName

NO_PROPERTIES: Mapping[str, str] = {}


class Appending(ABC):
    """The methods of a `Client` that append; see there for what all of them raise."""

    def __init__(self, appends: Appends, targets: Targets, deadlines: Deadlines) -> None:
        self._appends = appends
        self._targets = targets
        self._deadlines = deadlines

    async def append(
        self,
        target: str,
        payload: bytes,
        *,
        key: Key | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
        durability: Durability = "fsync",
        deadline_s: float | None = None,
        **kind: Unpack[Kind],
    ) -> Appended:
        """Append one message; returns when it would survive a power cut.

        `durability` "os" or "memory" returns sooner, and promises less: see `Durability`. The
        result says what the message got: one of Milvus's own kinds is always synced.

        Of a collection, `key` chooses the shard; without one rows take turns. Appends that wait at
        the same time share writes, so keep many in flight; their order among each other is not
        promised. What is sent again is stored once: see `resend` of `connect`.

        Raises DeadlineExceeded when it was not written in time, OutcomeUnknown when it may have
        been written, MessageTooLarge, or the server's refusal.
        """
        self._check_usable()
        shards = self._targets.known(target) or await self._targets.resolve(target)
        message = Message(payload, key, properties, **kind)
        within_s = deadline_s or self._deadlines.append_s
        return await self._appends.one(shards, message, within_s, level_of(durability))

    async def raw_append(
        self, vchannel: str, message: Message, *, deadline_s: float | None = None
    ) -> Appended:
        """Append one message to exactly this vchannel, whatever its key: Milvus's RawAppend.

        As `append` in all else. Raises InvalidArgument for a message that only the log itself or a
        transaction writes (a time tick, a begin, a commit, a rollback).
        """
        self._check_usable()
        shards = Shards(None, (VChannelName(vchannel),))
        return await self._appends.one(shards, message, deadline_s or self._deadlines.append_s)

    async def append_soon(
        self,
        target: str,
        message: Message,
        *,
        durability: Durability = "fsync",
        deadline_s: float | None = None,
    ) -> Ticket:
        """Take one message in, when there is room; `await ticket` is where it landed, or the error.

        A ticket that is cancelled before its batch is sent takes its message back.
        """
        self._check_usable()
        shards = self._targets.known(target) or await self._targets.resolve(target)
        within_s = deadline_s or self._deadlines.append_s
        return await self._appends.soon(shards, message, within_s, level_of(durability))

    async def append_batch(
        self,
        target: str,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[Key | None] | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
        durability: Durability = "fsync",
        deadline_s: float | None = None,
    ) -> AppendedBatch:
        """Append messages as one batch on one vchannel: all of them are stored, or none.

        Their ids and ticks follow one by one. Of a collection, batches take turns over its shards,
        so those with keys need the name of a vchannel where there are several. Raises what `append`
        does, BadTarget for keys that do not fit, MessageTooLarge for a batch that is to be split.
        """
        self._check_usable()
        shards = self._targets.known(target) or await self._targets.resolve(target)
        vchannel = shards.choose_for_batch(target, keyed=keys is not None)
        within_s = deadline_s or self._deadlines.append_s
        plain = Message(b"", properties=properties)
        shared = batch_header(vchannel, plain, within_s, level_of(durability))
        return await self._appends.batch(shared, payloads, keys)

    async def append_arrow(
        self,
        target: str,
        rows: Any,
        *,
        key: str | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
        durability: Durability = "fsync",
        deadline_s: float | None = None,
    ) -> list[AppendedBatch]:
        """Append the rows of a `pyarrow` RecordBatch or Table, and say where they landed.

        Of a collection, the column `key` (whole numbers, texts or bytes) chooses the shard of each
        row as the key of `append` does; without it batches take turns. Rows of one shard keep their
        order. Larger ones go in several batches, each of which is stored whole or not at all; the
        results are in the order of the rows on each vchannel. Always waits for all: when some
        failed AppendsFailed has each result, when all did the first error is raised.

        Raises SchemaVersionMismatch, which names every difference, for rows that are not what the
        collection's schema says: same columns, types and order. BadTarget for a key that is no
        column or cannot be a key. Needs `tidemark[arrow]`.
        """
        self._check_usable()
        shards = self._targets.known(target) or await self._targets.resolve(target)
        pieces = split_rows(rows, shards, key, self._appends.compression)
        within_s = deadline_s or self._deadlines.append_s
        return await self._appends.rows(pieces, properties, within_s, level_of(durability))

    async def append_messages(
        self,
        target: str,
        messages: Iterable[Message],
        *,
        atomic: bool = True,
        deadline_s: float | None = None,
    ) -> list[Appended]:
        """Append many messages; the results are in the order of the messages.

        Several messages of one vchannel become one transaction: they are read together, at the
        tick in their results, or never. When it expires it is tried again as a whole, until the
        deadline. A single one is appended as it is. Vchannels go on beside each other, and between
        them there is neither atomicity nor order. Only inserts and deletes can share a transaction.

        Always waits for all of them; when any failed it raises AppendsFailed, which has the result
        of every single one: those of one vchannel share their error.

        A transaction is three writes one after the other, and has a limit of size. Without `atomic`
        every message stands for itself, which is the faster way to load much.
        """
        self._check_usable()
        messages = check_messages(messages)
        shards = self._targets.known(target) or await self._targets.resolve(target)
        append = append_atomically if atomic else Appends.many
        return await append(self._appends, shards, messages, deadline_s or self._deadlines.append_s)

    async def append_messages_with_option(
        self,
        target: str,
        messages: Iterable[Message],
        *,
        barrier_time_tick: int,
        deadline_s: float | None = None,
    ) -> list[Appended]:
        """`append_messages`, each of them with a tick larger than `barrier_time_tick`.

        It must be a tick that was given out: of an acknowledgement, a cut, a barrier. One from the
        future is refused with InvalidArgument; nothing is appended then.
        """
        given = check_messages(messages)
        above = [replace(each, barrier_time_tick=barrier_time_tick) for each in given]
        return await self.append_messages(target, above, deadline_s=deadline_s)

    def txn(
        self, target: str, *, keepalive_s: float | None = None, deadline_s: float | None = None
    ) -> Txn:
        """A transaction on one vchannel: `async with log.txn("flights_1") as txn`.

        Leaving the block commits, an exception rolls back. `target`: a vchannel, or a collection of
        one shard; BadTarget, at the beginning, for any other. `keepalive_s`: so long after its
        newest append the transaction expires, None for the server's default of 10 s; at least 1 ms,
        else InvalidArgument. `deadline_s` holds for every step by itself.
        """
        self._check_usable()
        keepalive_ms = 0 if keepalive_s is None else int(keepalive_s * 1000)
        if keepalive_s is not None and keepalive_ms <= 0:
            raise InvalidArgument(f"a keepalive of {keepalive_s} s; at least 1 ms is needed")

        async def vchannel() -> VChannelName:
            self._check_usable()
            shards = await self._targets.resolve(target)
            if len(shards.vchannels) != 1:
                raise BadTarget(f"a transaction is on one vchannel; {target} has more, name one")
            return shards.vchannels[0]

        return Txn(self._appends, vchannel, keepalive_ms, deadline_s or self._deadlines.append_s)

    @abstractmethod
    def _check_usable(self) -> None:
        """Raises ForkedClient or ClosedClient."""
