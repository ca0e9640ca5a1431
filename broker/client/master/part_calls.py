"""Partitions, indexes and aliases of collections: created, dropped, listed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Unpack

from broker.client.cluster.service import ServiceCalls
from broker.client.master.change_calls import ChangeCalls, ChangeOptions, Defined
from broker.model.ids import PartitionId
from schemas.generated.tidemark import v1


@dataclass(frozen=True, slots=True)
class IndexDescription:
    """An index on a field. `state`: "pending" while nobody builds it, "building", "ready"."""

    name: str
    id: int
    field: str
    field_id: int
    params: Mapping[str, str]
    state: str


class PartCalls:
    """Part of `log.master`. Errors that may pass are retried until the deadline, then raised.

    Changes take the options of `ChangeOptions`, and name their collection by its own name; reads
    take an alias, too. All raise UnknownDefinition for an unknown collection.
    """

    def __init__(self, calls: ServiceCalls, *, deadline_s: float) -> None:
        self._changes = ChangeCalls(calls, deadline_s=deadline_s)

    async def create_partition(
        self, collection: str, partition: str, **options: Unpack[ChangeOptions]
    ) -> Defined:
        """Add a partition. InvalidArgument for a bad or taken name, and for the 4,097th."""
        request = v1.CreatePartitionRequest(
            base=self._changes.base(options),
            db_name=options.get("database", ""),
            collection_name=collection,
            partition_name=partition,
        )
        return await self._changes.change("CreatePartition", request, options)

    async def drop_partition(
        self, collection: str, partition: str, **options: Unpack[ChangeOptions]
    ) -> Defined:
        """Drop a partition. Raises UnknownDefinition; InvalidArgument for `_default`."""
        request = v1.DropPartitionRequest(
            base=self._changes.base(options),
            db_name=options.get("database", ""),
            collection_name=collection,
            partition_name=partition,
        )
        return await self._changes.change("DropPartition", request, options)

    async def has_partition(self, collection: str, partition: str, *, database: str = "") -> bool:
        """Whether the collection has this partition."""
        request = v1.HasPartitionRequest(
            db_name=database, collection_name=collection, partition_name=partition
        )
        return (await self._changes.read("HasPartition", request, v1.BoolResponse)).value

    async def show_partitions(
        self, collection: str, *, database: str = ""
    ) -> Mapping[str, PartitionId]:
        """The id of each partition, sorted by name."""
        request = v1.ShowPartitionsRequest(db_name=database, collection_name=collection)
        answer = await self._changes.read("ShowPartitions", request, v1.ShowPartitionsResponse)
        ids = (PartitionId(it) for it in answer.partition_ids)
        return dict(zip(answer.partition_names, ids, strict=True))

    async def create_index(
        self,
        collection: str,
        field: str,
        params: Mapping[str, str],
        *,
        name: str = "",
        **options: Unpack[ChangeOptions],
    ) -> Defined:
        """Describe an index on a vector field; `name` "" is `_default_idx`.

        The same field and parameters again are the same index, under the new name. An index that
        has the name already gets another one. InvalidArgument for a field that is unknown or has no
        vectors, and for bad parameters. Nothing builds it: this is for programs that do.
        """
        request = v1.CreateIndexRequest(
            base=self._changes.base(options),
            db_name=options.get("database", ""),
            collection_name=collection,
            field_name=field,
            params=[v1.KeyValuePair(key=key, value=value) for key, value in params.items()],
            index_name=name,
        )
        return await self._changes.change("CreateIndex", request, options)

    async def drop_index(
        self, collection: str, field: str, *, name: str = "", **options: Unpack[ChangeOptions]
    ) -> Defined:
        """Remove an index; one that is unknown is no error. `name` "": the only one of the field.

        InvalidArgument without a name when the field has several.
        """
        request = v1.DropIndexRequest(
            base=self._changes.base(options),
            db_name=options.get("database", ""),
            collection_name=collection,
            field_name=field,
            index_name=name,
        )
        return await self._changes.change("DropIndex", request, options)

    async def describe_index(
        self, collection: str, field: str = "", *, database: str = ""
    ) -> list[IndexDescription]:
        """The indexes of a field, or of all fields. InvalidArgument for an unknown field."""
        request = v1.DescribeIndexRequest(
            db_name=database, collection_name=collection, field_name=field
        )
        answer = await self._changes.read("DescribeIndex", request, v1.DescribeIndexResponse)
        return [
            IndexDescription(
                it.index_name,
                it.index_id,
                it.field_name,
                it.field_id,
                {pair.key: pair.value for pair in it.params},
                it.state,
            )
            for it in answer.index_descriptions
        ]

    async def create_alias(
        self, collection: str, alias: str, *, alter: bool = False, **options: Unpack[ChangeOptions]
    ) -> Defined:
        """Give a collection another name in its database; returns the collection's id.

        InvalidArgument for a bad name, the name of a collection, and the alias of another
        collection; with `alter` the alias moves.
        """
        request = v1.CreateAliasRequest(
            base=self._changes.base(options),
            db_name=options.get("database", ""),
            collection_name=collection,
            alias=alias,
            alter=alter,
        )
        return await self._changes.change("CreateAlias", request, options)

    async def drop_alias(self, alias: str, **options: Unpack[ChangeOptions]) -> Defined:
        """Remove another name of a collection. Raises UnknownDefinition."""
        request = v1.DropAliasRequest(
            base=self._changes.base(options), db_name=options.get("database", ""), alias=alias
        )
        return await self._changes.change("DropAlias", request, options)

    async def show_aliases(self, collection: str = "", *, database: str = "") -> Mapping[str, str]:
        """Each alias with its collection, sorted by alias: of one collection, or of all."""
        request = v1.ShowAliasesRequest(db_name=database, collection_name=collection)
        answer = await self._changes.read("ShowAliases", request, v1.ShowAliasesResponse)
        return dict(zip(answer.aliases, answer.collection_names, strict=True))
