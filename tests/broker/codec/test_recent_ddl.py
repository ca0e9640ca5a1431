"""A change that was encoded here is given back without decoding, and decoding gives the same."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec import recent_ddl
from broker.codec.milvus_schemas import given_schema, table_schema
from broker.codec.recent_ddl import BODY_BYTES_MAX, RecentDdl
from broker.codec.stored_ddl import StoredDdl
from broker.model.collection import RowSchema
from broker.model.ids import CollectionId, PartitionId, VChannelName
from broker.model.master.fields import Field, FieldType, TableSchema
from broker.model.master.table_change import (
    AddCollection,
    AddDatabase,
    AddPartition,
    AlterCompaction,
    AlterRetention,
    AlterSchema,
    Index,
    PointAlias,
    PutIndex,
    RemoveAlias,
    RemoveCollection,
    RemoveDatabase,
    RemoveIndexes,
    RemovePartition,
    TableChange,
)
from broker.model.retention.compaction import Compaction
from broker.model.retention.policy import Retention
from broker.ports.master.ddl_messages import EncodedChange
from schemas.encoding.fields import field

UNKNOWN_FIELD = (1000 << 3) | 2
"""Of a newer Milvus, in the bytes of a schema."""


class CountedDdl(StoredDdl):
    """Counts what it decodes."""

    def __init__(self) -> None:
        self.decoded = 0

    def decode(
        self, kind: int, body: bytes, vchannels: Sequence[VChannelName]
    ) -> TableChange | None:
        self.decoded += 1
        return StoredDdl.decode(kind, body, vchannels)


names = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=12)
databases = st.just("") | names.filter(lambda it: it != "default")
ids = st.integers(1, 2**63 - 1)
params = st.dictionaries(names, names, max_size=3).map(lambda it: tuple(sorted(it.items())))
fields = st.builds(
    Field,
    ids.map(lambda it: 100 + it % 1000),
    names,
    st.sampled_from([FieldType.INT64, FieldType.VARCHAR, FieldType.FLOAT_VECTOR]),
    params,
)
made_schemas = st.builds(
    lambda name, some, version: table_schema(name, some, version=version),
    names,
    st.lists(fields, max_size=3),
    st.integers(0, 9),
)


@st.composite
def given_schemas(draw: st.DrawFn) -> TableSchema:
    """As a client sends them, with something that we do not know."""
    name, dim = draw(names), str(draw(st.integers(2, 99)))
    some = [
        Field(100, "id", FieldType.INT64, primary=True),
        Field(101, "vector", FieldType.FLOAT_VECTOR, (("dim", dim),)),
    ]
    unknown = field(UNKNOWN_FIELD, draw(st.binary(min_size=1, max_size=9)))
    return given_schema(table_schema(name, some).milvus + unknown)[1]


schemas = made_schemas | given_schemas()
rows = st.builds(RowSchema, st.binary(max_size=30), st.lists(st.integers(1, 9)).map(tuple))
indexes = st.builds(Index, ids, names, names, ids, params)
partitions = st.lists(st.tuples(names, ids.map(PartitionId)), min_size=1, max_size=3).map(tuple)
vchannels = st.lists(names.map(VChannelName), min_size=1, max_size=3).map(tuple)
collection_ids = ids.map(CollectionId)
compactions = st.none() | st.builds(Compaction, st.integers(0, 1 << 41), st.integers(0, 1 << 41))
retentions = st.builds(Retention, st.integers(0, 1 << 60), st.integers(0, 1 << 41))
changes: st.SearchStrategy[TableChange] = st.one_of(
    st.builds(
        AddCollection,
        databases,
        names,
        collection_ids,
        vchannels,
        partitions,
        st.none() | rows,
        st.none() | schemas,
        retentions,
        compactions,
    ),
    st.builds(RemoveCollection, collection_ids, names, databases),
    st.builds(AlterSchema, collection_ids, names, databases, st.none() | rows, schemas),
    st.builds(AlterRetention, collection_ids, names, databases, retentions),
    st.builds(AlterCompaction, collection_ids, names, databases, compactions),
    st.builds(AddPartition, collection_ids, names, databases, names, ids, st.booleans()),
    st.builds(RemovePartition, collection_ids, names, databases, names, ids, st.booleans()),
    st.builds(PointAlias, databases, names, collection_ids, names),
    st.builds(RemoveAlias, databases, names),
    st.builds(PutIndex, collection_ids, names, databases, indexes, st.none() | indexes),
    st.builds(RemoveIndexes, collection_ids, names, databases, st.lists(ids).map(tuple)),
    st.builds(AddDatabase, names.filter(lambda it: it != "default"), ids),
    st.builds(RemoveDatabase, names.filter(lambda it: it != "default"), ids),
)


def _decoded(messages: RecentDdl | CountedDdl, encoded: EncodedChange) -> TableChange | None:
    return messages.decode(encoded.type, encoded.body, [VChannelName("control")])


@given(changes)
def test_what_is_given_back_is_what_decoding_gives(change: TableChange) -> None:
    counted = CountedDdl()
    recent = RecentDdl(counted)
    encoded = recent.encode(change)
    assert _decoded(recent, encoded) == change
    assert counted.decoded == 0
    assert _decoded(counted, encoded) == change


def test_a_change_is_given_back_once_and_decoded_after_that() -> None:
    counted = CountedDdl()
    recent = RecentDdl(counted)
    encoded = recent.encode(AddDatabase("a", 7))
    found = [_decoded(recent, encoded) for _ in range(3)]
    assert found == [AddDatabase("a", 7)] * 3
    assert counted.decoded == 2


def test_a_bounded_number_of_changes_of_bounded_size_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent_ddl, "CHANGES_MAX", 2)
    counted = CountedDdl()
    recent = RecentDdl(counted)
    wide = table_schema("a", [Field(100, "f" * BODY_BYTES_MAX, FieldType.INT64)])
    large = AlterSchema(CollectionId(1), "a", "", None, wide)
    encoded = recent.encode(large)
    assert _decoded(recent, encoded) == large
    assert counted.decoded == 1
    some = [recent.encode(AddDatabase("a", it)) for it in (1, 2, 3)]
    assert [_decoded(recent, it) for it in some] == [AddDatabase("a", it) for it in (1, 2, 3)]
    assert counted.decoded == 2
