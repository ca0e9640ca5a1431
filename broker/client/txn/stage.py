"""Stages the rows of one attempt at one part of a batch: durable, and not visible yet.

A stage holds its rows in transactions, several on a vchannel when they are large. It does not
commit: the sealed part goes to the program that commits the whole batch.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, Unpack

import anyio

from broker.client.append.appends import Appends
from broker.client.append.arrow_batches import Piece, split_rows
from broker.client.append.delivery_properties import DeliverAt, delivery_properties
from broker.client.batch import AppendedBatch
from broker.client.cluster.targets import Shards
from broker.client.errors import (
    BadTransaction,
    InvalidArgument,
    NodeUnreachable,
    TidemarkError,
    TransactionExpired,
)
from broker.client.groups.leased_batch import LeasedBatch
from broker.client.message import NO_PROPERTIES, Appended, Key, Kind, Message, Received
from broker.client.txn.atomic import RETRY_PAUSE_S
from broker.client.txn.txn import Txn
from broker.model.ids import VChannelName
from broker.model.stage import StageName
from schemas.properties.keys import STAGE, STAGE_RUN, StageKey

TXN_BYTES: Final = 16 * 1024 * 1024
"""The next row opens another transaction at this size; the broker takes twice as much in one."""
LOT_BYTES: Final = 8 * 1024 * 1024
"""Arrow rows are split and sent in groups of about this size, which bounds memory."""
PIECE_BYTES: Final = 4 * 1024 * 1024
"""Assumed for a packed piece: the broker counts it unpacked, and that size is not known here."""
MESSAGE_EXTRA_BYTES: Final = 512
"""Added to each message for its key, header and reserved properties."""

if TYPE_CHECKING:
    import pyarrow as pa

Resolve = Callable[[str], Awaitable[Shards]]


@dataclass(frozen=True, slots=True)
class StagedPart:
    """A sealed stage: small and picklable, to be sent to the program that commits the batch.

    `txns`: the vchannel and the id of each transaction; empty when nothing was appended.
    """

    app: str
    batch: int
    part: int
    attempt: int
    txns: tuple[tuple[str, int], ...]


class Stage:
    """One attempt at one part of a batch, on any number of vchannels; made by `Client.stage`.

    Leaving an `async with` block without `seal` aborts it. Every method raises TransactionExpired
    when the broker has waited too long for the next row or for the commit; write the part again
    then, as another attempt. `unreachable_s`: how long it waits for a node that was never reached
    before NodeUnreachable is raised; its channels may move to another node meanwhile.
    """

    def __init__(
        self,
        appends: Appends,
        resolve: Resolve,
        name: StageName,
        deadline_s: float,
        *,
        keepalive_ms: int = 0,
    ) -> None:
        self._appends = appends
        self._resolve = resolve
        self._name = name
        self._deadline_s = deadline_s
        self._keepalive_ms = keepalive_ms
        self.unreachable_s = 0.0
        self._txns: list[Txn] = []
        self._filling: dict[VChannelName, tuple[Txn, int]] = {}
        self._beginning: dict[VChannelName, anyio.Lock] = {}
        self._ended = False

    async def append(  # noqa: PLR0913 - as of `Client.append`
        self,
        target: str,
        payload: bytes,
        *,
        key: Key | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
        **kind: Unpack[Kind],
    ) -> Appended:
        """Stage one message; returns when it would survive a power cut.

        It is read with the tick of the commit. Raises Unrecoverable when the pchannel may hold no
        more uncommitted bytes: make the batches smaller. Otherwise as `Client.append`; after
        OutcomeUnknown the stage cannot be sealed any more.
        """
        message = Message(payload, key, properties, **kind)
        (landed,) = await self.append_messages(
            target,
            [message],
            partition=partition,
            deliver_at=deliver_at,
            ttl_s=ttl_s,
            deadline_s=deadline_s,
        )
        return landed

    async def append_messages(
        self,
        target: str,
        messages: Iterable[Message],
        *,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
    ) -> list[Appended]:
        """Stage messages, each on the shard of its key; results in order, or the first error."""
        self._check_open()
        everything = list(messages)
        shards = await self._resolve(target)
        places: dict[VChannelName, list[int]] = {}
        for index, message in enumerate(everything):
            places.setdefault(shards.choose_for(message), []).append(index)
        results: dict[int, Appended] = {}
        for vchannel, indexes in places.items():
            mine = [everything[index] for index in indexes]
            for txn, start, end in await self._spread(vchannel, [_size(it) for it in mine]):
                landed = await txn.append_messages(
                    mine[start:end],
                    partition=partition,
                    deliver_at=deliver_at,
                    ttl_s=ttl_s,
                    deadline_s=deadline_s,
                )
                results.update(zip(indexes[start:end], landed, strict=True))
        return [results[index] for index in range(len(everything))]

    async def append_batch(  # noqa: PLR0913 - as of `Client.append`
        self,
        target: str,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[Key | None] | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
        partition: str | None = None,
        deliver_at: DeliverAt | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
    ) -> AppendedBatch:
        """Stage messages as one batch on one vchannel, as `Client.append_batch`."""
        shards = await self._resolve(target)
        vchannel = shards.choose_for_batch(target, keyed=keys is not None)
        size = sum(map(len, payloads)) + MESSAGE_EXTRA_BYTES
        txn = await self.txn_for(vchannel, size)
        return await txn.append_batch(
            payloads,
            keys=keys,
            properties=properties,
            partition=partition,
            deliver_at=deliver_at,
            ttl_s=ttl_s,
            deadline_s=deadline_s,
        )

    async def append_arrow(  # noqa: PLR0913 - as of `Client.append`
        self,
        target: str,
        rows: "pa.RecordBatch | pa.Table",
        *,
        key: str | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
        partition: str | None = None,
        ttl_s: float | None = None,
        deadline_s: float | None = None,
    ) -> list[AppendedBatch]:
        """Stage Arrow rows, as `Client.append_arrow`.

        When it fails, some of them may be in the stage: discard it.
        """
        shards = await self._resolve(target)
        within_s, times = deadline_s or self._deadline_s, delivery_properties((), None, ttl_s)
        landed: list[AppendedBatch] = []
        lot: dict[Txn, list[Piece]] = {}
        held = 0

        async def one(txn: Txn, pieces: Sequence[Piece]) -> list[AppendedBatch]:
            async def append(named: bytes = b"") -> list[AppendedBatch]:
                return await txn.append_pieces(pieces, properties, within_s, named + times)

            if partition is None:
                return await append()
            return await self._appends.partitions.into(txn.vchannel, partition, append)

        for piece in split_rows(rows, shards, key, self._appends.compression):
            size = PIECE_BYTES if self._appends.compression else len(piece[2])
            txn = await self.txn_for(piece[0], size)
            lot.setdefault(txn, []).append(piece)
            held += size
            if held >= LOT_BYTES:
                landed += await _append_lot(lot, one)
                lot, held = {}, 0
        return landed + await _append_lot(lot, one)

    async def ack(
        self,
        batch: LeasedBatch,
        messages: Iterable[Received] | None = None,
        *,
        deadline_s: float | None = None,
    ) -> None:
        """Acknowledge messages of a group with the commit of the batch; see `Txn.ack`."""
        txn = await self.txn_for(VChannelName(batch.vchannel), 0)
        await txn.ack(batch, messages, deadline_s=deadline_s)

    async def seal(self) -> StagedPart:
        """End the stage; returns what the commit of the batch needs.

        Raises OutcomeUnknown when it is not known whether all of it was written: discard it then.
        """
        self._check_open()
        for txn in self._txns:
            # All are checked before one is sealed: after an error all can still be rolled back.
            txn.check_whole()
        for txn in self._txns:
            txn.seal()
        self._ended = True
        name = self._name
        txns = tuple((str(it.vchannel), it.id) for it in self._txns)
        return StagedPart(name.app, name.batch, name.part, name.attempt, txns)

    async def discard(self) -> None:
        """Abort what was written; what cannot be reached now expires."""
        self._ended = True
        # Shielded: what a cancelled writer leaves takes room on its pchannels until it expires.
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for txn in self._txns:
                    tasks.start_soon(_roll_back, txn)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._ended:
            await self.discard()

    async def txn_for(self, vchannel: VChannelName, size: int) -> Txn:
        """The transaction that the next `size` bytes on this vchannel belong to."""
        self._check_open()
        # Two tasks that find no transaction would otherwise begin one each.
        async with self._beginning.setdefault(vchannel, anyio.Lock()):
            txn, held = self._filling.get(vchannel, (None, 0))
            if txn is None or held + size > TXN_BYTES:
                txn, held = await self._begin(vchannel), 0
            # Counted before it is sent, so that tasks do not all fill the same room.
            self._filling[vchannel] = (txn, held + size)
            return txn

    async def _spread(self, vchannel: VChannelName, sizes: list[int]) -> list[tuple[Txn, int, int]]:
        """Transactions with the ranges [start, end) of the messages they take, in order."""
        spread: list[tuple[Txn, int, int]] = []
        for index, size in enumerate(sizes):
            txn = await self.txn_for(vchannel, size)
            if spread and spread[-1][0] is txn:
                spread[-1] = (txn, spread[-1][1], index + 1)
            else:
                spread.append((txn, index, index + 1))
        return spread

    async def _begin(self, vchannel: VChannelName) -> Txn:
        async def resolved() -> Shards:
            return Shards(None, (vchannel,))

        began_s = anyio.current_time()
        while True:
            own, keepalive_ms = _named(self._name), self._keepalive_ms
            txn = Txn(self._appends, resolved, keepalive_ms, self._deadline_s, begins_with=own)
            try:
                await txn.begin()
            except (TransactionExpired, NodeUnreachable) as error:
                # The channel is being closed, on its way to another node, and begins none; or it
                # will be on its way, when the lease of a dead node is over.
                unreached = isinstance(error, NodeUnreachable)
                patience_s = self.unreachable_s if unreached else self._deadline_s
                if anyio.current_time() - began_s >= patience_s:
                    raise
                await anyio.sleep(RETRY_PAUSE_S)
            else:
                self._txns.append(txn)
                # Ended meanwhile: what it would take would be in no commit.
                if self._ended:
                    await _roll_back(txn)
                self._check_open()
                return txn

    def _check_open(self) -> None:
        if self._ended:
            raise BadTransaction(f"{self._name} is sealed or was aborted; stage another attempt")


async def _roll_back(txn: Txn) -> None:
    try:
        await txn.rollback()
    except TidemarkError:
        return  # the broker rolls it back when it expires


async def _append_lot(
    lot: Mapping[Txn, Sequence[Piece]],
    append: Callable[[Txn, Sequence[Piece]], Awaitable[list[AppendedBatch]]],
) -> list[AppendedBatch]:
    """Send all pieces concurrently; raises the first error after all have ended."""
    results: dict[Txn, list[AppendedBatch] | TidemarkError] = {}

    async def one(txn: Txn, pieces: Sequence[Piece]) -> None:
        try:
            results[txn] = await append(txn, pieces)
        except TidemarkError as error:
            results[txn] = error

    async with anyio.create_task_group() as tasks:
        for txn, pieces in lot.items():
            tasks.start_soon(one, txn, pieces)
    landed: list[AppendedBatch] = []
    for txn in lot:
        result = results[txn]
        if isinstance(result, TidemarkError):
            raise result
        landed += result
    return landed


def checked_name(app: str, batch: int, part: int, attempt: int, run: int) -> StageName:
    """The name of a stage; InvalidArgument when one of its parts is not valid."""
    name = StageName(app, batch, part, attempt, run)
    if name.problem:
        raise InvalidArgument(name.problem)
    return name


def _named(stage: StageName) -> Mapping[str, str]:
    name = STAGE.entry(StageKey(stage.app, stage.batch, stage.part, stage.attempt))
    return name | STAGE_RUN.entry(stage.run) if stage.run else name


def _size(message: Message) -> int:
    own = sum(len(key) + len(value) for key, value in message.properties.items())
    return len(message.payload) + 4 * own + MESSAGE_EXTRA_BYTES
