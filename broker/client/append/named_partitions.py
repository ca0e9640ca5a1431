"""Appends to a partition by its name: finds the id, which the header of its rows carries.

The look-up asks the master once for each name. A partition that was dropped and created again has
another id, and so has one of a collection that was: the server refuses the id that was remembered,
nothing is stored, and the append is made once more with the new one.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol, TypeVar

from broker.client.append.outgoing_batch import BatchHeader
from broker.client.append.prepare import Prepared, is_plain
from broker.client.errors import AppendsFailed, BadTarget, UnknownDefinition, Unrecoverable
from broker.client.master.collection_calls import CollectionDescription
from broker.client.message import Message
from broker.core.naming import collection_id_of
from broker.model.failure import StreamingCode
from broker.model.ids import CollectionId, PartitionId, VChannelName
from broker.model.message import MessageType
from schemas.properties.batch_header import partition_property

REMEMBERED_MAX: Final = 16_384
"""Names of partitions; the oldest is asked for again."""

T = TypeVar("T")
_Key = tuple[CollectionId, str]


class Definitions(Protocol):
    """The part of `log.master` that is needed here."""

    async def describe_collection(
        self, name: str = "", *, database: str = "", collection_id: int = 0
    ) -> CollectionDescription:
        """The collection of this id. Raises UnknownDefinition."""
        ...

    async def show_partitions(
        self, collection: str, *, database: str = ""
    ) -> Mapping[str, PartitionId]:
        """The id of each partition. Raises UnknownDefinition."""
        ...


class NamedPartitions:
    """The partitions that one client has appended to."""

    def __init__(self, master: Definitions, forget_targets: Callable[[], None]) -> None:
        """`forget_targets` is called when the collection of a target does not exist any more."""
        self._master = master
        self._forget_targets = forget_targets
        self._known: dict[_Key, bytes] = {}

    async def into(
        self, vchannel: VChannelName, name: str, append: Callable[[bytes], Awaitable[T]]
    ) -> T:
        """What `append` returns; it is given the property that rows of this partition have.

        `append` is called again, once, when the server refused all of its rows because the
        partition was made anew. Raises UnknownDefinition when there is no such partition, BadTarget
        for a collection whose rows have no partitions, and what `append` does.
        """
        id = collection_id_of(vchannel)
        if id is None:
            raise BadTarget(
                f"vchannel {vchannel!r} is of no collection, so its rows have no partition; leave"
                " `partition` out, or name a collection"
            )
        key = id, name
        known = self._known.get(key)
        found = known or await self._asked(key)
        try:
            return await append(found)
        except (AppendsFailed, Unrecoverable) as error:
            # `known` is empty when the id is fresh: then it is something else that was refused.
            if known is None or not _stored_nothing(error):
                raise
            found = await self._asked(key)
            if found == known:
                raise
        return await append(found)

    async def _asked(self, key: _Key) -> bytes:
        id, name = key
        self._known.pop(key, None)
        try:
            collection = await self._master.describe_collection(collection_id=id)
        except UnknownDefinition:
            # Dropped since the target was looked up. The next append finds what has its name now.
            self._forget_targets()
            raise
        shown = repr(collection.name)
        if not collection.milvus_schema and collection.schema is None:
            raise BadTarget(
                f"collection {shown} has no schema: its log counts no rows, and its partitions are"
                " names only; leave `partition` out, or create a collection with a schema"
            )
        if not collection.partitions:
            raise BadTarget(
                f"collection {shown} is of an earlier release and has no partitions yet; leave"
                " `partition` out"
            )
        database = collection.database
        partitions = await self._master.show_partitions(collection.name, database=database)
        if name not in partitions:
            where = f", database={database!r}" if database != "default" else ""
            raise UnknownDefinition(
                f"collection {shown} has no partition {name!r};"
                f" log.master.show_partitions({shown}{where}) lists the"
                f" {len(partitions)} that it has",
                StreamingCode.CHANNEL_NOT_EXIST,
            )
        if len(self._known) >= REMEMBERED_MAX:
            del self._known[next(iter(self._known))]
        found = self._known[key] = partition_property(id, partitions[name])
        return found


def in_partition(header: BatchHeader, named: bytes) -> BatchHeader:
    """The header of a batch whose rows have this property too, from `NamedPartitions.into`."""
    return header._replace(reserved=header.reserved + named)


def in_partitions(work: Iterable[Prepared], named: bytes) -> list[Prepared]:
    """Messages that `check_rows` has checked, with this property in the header of each."""
    return [
        (message, vchannel, in_partition(how, named) if isinstance(how, BatchHeader) else how)
        for message, vchannel, how in work
    ]


def check_rows(messages: Iterable[Message]) -> None:
    """Raise BadTarget unless all are plain inserts: no others can name a partition."""
    for each in messages:
        if each.type != MessageType.INSERT:
            raise BadTarget(
                f"a message of type {int(each.type)} cannot name a partition, only an insert can;"
                " leave `partition` out"
            )
        if not is_plain(each):
            raise BadTarget(
                "a message with a header, a version or a barrier_time_tick of its own cannot name a"
                " partition; leave `partition` out, and name it in the header"
            )


def _stored_nothing(error: AppendsFailed | Unrecoverable) -> bool:
    """Whether every part was refused for good."""
    results = error.results if isinstance(error, AppendsFailed) else (error,)
    return all(isinstance(it, Unrecoverable) for it in results)
