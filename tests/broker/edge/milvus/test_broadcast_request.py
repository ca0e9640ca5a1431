"""What a request becomes: the same for what is meant to be the same, without the server's."""

from dataclasses import replace
from typing import Any

import pytest

from broker.edge.milvus.broadcast_request import BroadcastLimits, broadcast_request
from broker.model.broadcast import Broadcast, ResourceDomain, ResourceKey
from broker.model.ids import PChannelName
from schemas.generated.milvus.proto import common, messages
from schemas.properties.broadcast_header import BroadcastHeader, HeaderKey, write_broadcast_header

V = ("p_0_vcchan", "p_1_7v0")
LIMITS = BroadcastLimits(1 << 20, {PChannelName("p_0"), PChannelName("p_1")})
HEADER = BroadcastHeader(9, V, (HeaderKey(2, "default:c", False),), ack_sync_up=True)


def asked(header: BroadcastHeader = HEADER, payload: bytes = b"x", **properties: str) -> Broadcast:
    stored = {"_t": "16", "_v": "2", "_bh": write_broadcast_header(header)} | properties
    return broadcast_request(messages.Message(payload=payload, properties=stored), LIMITS, "call:1")


def test_what_is_asked_is_what_stands_in_the_message_but_for_the_id() -> None:
    found = asked(_pcl="")
    assert (found.type, found.vchannels, found.ack_sync_up, found.pchannel_level) == (
        16,
        V,
        True,
        True,
    )
    assert found.keys == (ResourceKey(ResourceDomain.COLLECTION_NAME, "default:c"),)
    assert asked(replace(HEADER, broadcast_id=5)) == asked()


def test_copies_share_a_body_without_the_servers_properties_and_with_a_header() -> None:
    body = asked(own="kept", _tt="1", _lc="1", _lcs="", _wt="1", _np="").body
    shared = common.ImmutableMessage.parse(body)
    assert shared.payload == b"x"
    assert shared.properties == {"_t": "16", "_v": "2", "_h": "", "own": "kept"}


def test_a_key_of_its_own_names_a_request_and_else_the_call_does() -> None:
    assert asked().request_key == "call:1"
    assert asked(_ik="1:0:mine").request_key == "key:1:0:mine"


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({"_tc": "AA=="}, True),
        ({"_tt": "1"}, True),
        ({"own": "y"}, False),
        ({"header": replace(HEADER, vchannels=V[::-1])}, True),
        ({"payload": b"y"}, False),
        ({"_t": "18"}, False),
        ({"_h": "CGQ="}, False),
        ({"header": replace(HEADER, vchannels=V[:1])}, False),
        ({"header": replace(HEADER, keys=())}, False),
        ({"header": replace(HEADER, ack_sync_up=False)}, False),
    ],
)
def test_the_fingerprint_tells_contents_apart_and_not_the_traces_of_the_way(
    other: dict[str, Any], same: bool
) -> None:
    assert (asked(**other).fingerprint == asked().fingerprint) is same
