"""The broadcast header's property: written as betterproto does, read back, or refused with why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.generated.milvus.proto import messages
from schemas.properties.broadcast_header import (
    BroadcastHeader,
    HeaderKey,
    read_broadcast_header,
    read_broadcast_id,
    write_broadcast_header,
)
from schemas.properties.keys import BROADCAST, BadProperty

GO = (
    "CAcSHWJ5LWRldi1yb290Y29vcmQtZG1sXzBfdmNjaGFuEhxieS1kZXYtcm9vdGNvb3JkLWRtbF8xXzEwMHYwGg4IAhIKZG"
    "VmYXVsdDpjMRoECH8YAQ=="
)
HEADERS = st.builds(
    BroadcastHeader,
    st.integers(0, 2**64 - 1),
    st.lists(st.text()).map(tuple),
    st.lists(st.builds(HeaderKey, st.integers(0, 200), st.text(), st.booleans())).map(tuple),
    st.booleans(),
)


def test_a_header_of_milvuss_own_client_is_read() -> None:
    assert read_broadcast_header(GO) == BroadcastHeader(
        7,
        ("by-dev-rootcoord-dml_0_vcchan", "by-dev-rootcoord-dml_1_100v0"),
        (HeaderKey(2, "default:c1", False), HeaderKey(127, "", True)),
    )


@given(HEADERS)
def test_a_header_is_read_back_as_it_was_written(header: BroadcastHeader) -> None:
    assert read_broadcast_header(write_broadcast_header(header)) == header
    assert read_broadcast_id(write_broadcast_header(header)) == header.broadcast_id


@given(HEADERS)
def test_a_header_is_written_as_the_generated_code_does(header: BroadcastHeader) -> None:
    keys = [
        messages.ResourceKey(
            domain=messages.ResourceDomain(it.domain), key=it.key, shared=it.shared
        )
        for it in header.keys
    ]
    generated = messages.BroadcastHeader(
        broadcast_id=header.broadcast_id,
        vchannels=list(header.vchannels),
        Resource_keys=keys,
        ack_sync_up=header.ack_sync_up,
    )
    assert write_broadcast_header(header) == BROADCAST.encode(bytes(generated))


@pytest.mark.parametrize("data", [b"\x08", b"\x12\x05a", b"\xff"])
def test_what_is_no_header_is_refused(data: bytes) -> None:
    for text in (BROADCAST.encode(data), "!"):
        for read in (read_broadcast_header, read_broadcast_id):
            with pytest.raises(BadProperty, match="property _bh"):
                read(text)


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(BadProperty, match="property _bh"):
        read_broadcast_header(BROADCAST.encode(b"\x12\x01\xff"))
