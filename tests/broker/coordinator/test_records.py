"""Stored records: what is written can be read, and garbage is an error that names its key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator import records
from broker.core.cluster.assignment import Owner, PChannelMeta
from broker.model.channel import AccessMode, PChannelState
from broker.model.collection import Collection, RowSchema
from broker.model.ids import CollectionId, NodeId, PChannelName, Term, VChannelName
from broker.ports.meta import MetaError

numbers = st.integers(0, 2**63 - 1)
metas = st.builds(
    PChannelMeta,
    name=st.text().map(PChannelName),
    term=numbers.map(Term),
    state=st.sampled_from(PChannelState),
    node=st.none() | numbers.map(NodeId),
    access=st.sampled_from(AccessMode),
    histories=st.lists(st.builds(Owner, numbers.map(NodeId), numbers.map(Term)), max_size=3).map(
        tuple
    ),
    assigned_ms=numbers,
    moved_ms=numbers,
)
collections = st.builds(
    Collection,
    name=st.text(),
    id=numbers.map(CollectionId),
    vchannels=st.lists(st.text().map(VChannelName), max_size=3).map(tuple),
    created_ms=numbers,
    schema=st.none()
    | st.builds(RowSchema, st.binary(), st.lists(st.integers(1, 9), max_size=3).map(tuple)),
)


@given(metas)
def test_a_pchannel_is_read_as_it_was_written(meta: PChannelMeta) -> None:
    assert records.decode_pchannel("k", records.encode_pchannel(meta)) == meta


@given(collections)
def test_a_collection_is_read_as_it_was_written(collection: Collection) -> None:
    assert records.decode_collection("k", records.encode_collection(collection)) == collection


@given(numbers)
def test_a_number_is_read_as_it_was_written(number: int) -> None:
    assert records.decode_number("k", records.encode_number(number)) == number


@pytest.mark.parametrize(
    "value",
    [
        b"", b"\xff", b"[]", b"null", b"3", b"{}", b'{"version":1}',
        b'{"version":1,"name":"p","term":2,"state":"NONE","node":1}',
        b'{"version":1,"name":"p","term":2,"state":"ASSIGNED","node":null,"histories":[3]}',
        b'{"version":2}', b"[" * 5000,
        b'{"version":1,"name":"p","id":1e999,"term":1e999}',
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "decode", [records.decode_pchannel, records.decode_collection, records.decode_cluster]
)
def test_garbage_is_an_error_that_names_its_key(decode, value: bytes) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(MetaError, match="some/key"):
        decode("some/key", value)


def test_a_number_that_is_none_is_an_error_that_names_its_key() -> None:
    with pytest.raises(MetaError, match="some/key"):
        records.decode_number("some/key", b"seven")
