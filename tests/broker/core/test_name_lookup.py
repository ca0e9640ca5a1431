"""What a name stands for: a collection first, then a channel of this cluster, or nothing."""

import pytest

from broker.core.name_lookup import NameKind, found_name
from broker.core.naming import pchannel_names
from broker.model.collection import Collection
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import CollectionId, VChannelName

PCHANNELS = pchannel_names("by-dev", 16)
SHARDS = tuple(VChannelName(f"by-dev-rootcoord-dml_{at}_100v{at}") for at in range(2))
FLIGHTS = Collection("my-flights.v1", CollectionId(100), SHARDS, 0)
OLD = Collection("a_1v0", CollectionId(101), (VChannelName("by-dev-rootcoord-dml_2_101v0"),), 0)


@pytest.mark.parametrize(
    ("name", "kind", "collection"),
    [
        ("my-flights.v1", NameKind.COLLECTION, FLIGHTS),
        ("a_1v0", NameKind.COLLECTION, OLD),  # allowed by an earlier release
        (SHARDS[1], NameKind.VCHANNEL, FLIGHTS),
        ("by-dev-rootcoord-dml_3", NameKind.PCHANNEL, None),
        ("by-dev-rootcoord-dml_0_vcchan", NameKind.CONTROL, None),
        ("by-dev-rootcoord-dml_0_999v9", NameKind.OTHER_VCHANNEL, None),
        ("by-dev-rootcoord-dml_0_any-v", NameKind.OTHER_VCHANNEL, None),
    ],
)
def test_a_name_stands_for_one_thing(
    name: str, kind: NameKind, collection: Collection | None
) -> None:
    found = found_name(name, [FLIGHTS, OLD], PCHANNELS)
    assert (found.kind, found.collection) == (kind, collection)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("flights", "there is no collection 'flights'"),
        ("my-flights", "there is no collection 'my-flights'"),
        ("by-dev-rootcoord-dml_99_1v0", "pchannels of this cluster are .*dml_0 to 15"),
        ("other-rootcoord-dml_0", "there is no channel 'other-rootcoord-dml_0'"),
        ("by-dev-rootcoord-dml_3_vcchan", "is not the control channel; that is on .*dml_0'"),
    ],
)
def test_a_name_of_nothing_is_refused_by_name(name: str, cause: str) -> None:
    with pytest.raises(Refused, match=cause) as raised:
        found_name(name, [FLIGHTS], PCHANNELS)
    assert raised.value.refusal.code is StreamingCode.CHANNEL_NOT_EXIST
