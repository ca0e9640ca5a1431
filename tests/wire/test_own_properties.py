"""Batches whose messages have properties of their own, as another program would append them."""

from collections.abc import Mapping

import pytest

from broker.model.failure import StreamingCode as Code
from schemas.generated.tidemark import v1
from schemas.handshake import (
    APPEND_REVISION,
    CREATE_PRODUCER,
    WHOLE_TXNS,
    CreateHeader,
    scan_append_greeting,
)
from tests.create_headers import create_header
from tests.wire.peer import Peer
from tests.wire.small_broker import FIRST_TERM, P0, SmallBroker
from tests.wire.test_append import APPEND, batch, opened, refused, told
from tests.wire.test_consume import next_messages
from tests.wire.test_consume import opened as consuming


def with_own(*own: dict[str, str]) -> v1.AppendRequest:
    """One message for each mapping of its own properties."""
    encoded = [bytes(v1.AppendRequest(properties=it)) for it in own]
    return batch(
        *[b"x"] * len(own),
        properties={"_own": "", "of": "all"},
        own_sizes=[len(it) for it in encoded],
        own=b"".join(encoded),
    )


BAD: Mapping[str, tuple[v1.AppendRequest, Code, str]] = {
    "own properties that do not fit": (
        batch(b"a", b"b", own_sizes=[1], own=b"x"),
        Code.INVALID_ARGUMENT,
        "own properties",
    ),
    "own properties without sizes": (batch(b"a", own=b"x"), Code.INVALID_ARGUMENT, "own"),
    "the mark without own properties": (
        batch(b"a", properties={"_own": ""}),
        Code.INVALID_ARGUMENT,
        "_own",
    ),
    "a reserved own property": (with_own({"_tt": "1"}), Code.INVALID_ARGUMENT, "_tt"),
    "an own transaction": (with_own({"_tx": "1"}), Code.INVALID_ARGUMENT, "_tx"),
    "a key as own property": (
        with_own({"tidemark.key": "a"}),
        Code.INVALID_ARGUMENT,
        "tidemark.key",
    ),
    "own properties that are none": (
        batch(b"a", own_sizes=[2], own=b"\x12\x00"),
        Code.INVALID_ARGUMENT,
        "reserved",
    ),
    "an own property that is cut off": (
        batch(b"a", own_sizes=[2], own=b"\x1a\x09"),
        Code.INVALID_ARGUMENT,
        "length of 9",
    ),
    "too many own properties": (
        with_own({"p": "x" * 70_000}),
        Code.INVALID_ARGUMENT,
        "properties of a message",
    ),
    "own properties beside many shared ones": (
        batch(*[b"a"] * 1000, properties={"p": "x" * 60_000}, own_sizes=[0] * 1000),
        Code.UNRECOVERABLE,
        "split",
    ),
    "rows with own properties": (
        batch(sizes=[], body=b"x", codec=3, own_sizes=[0]),
        Code.INVALID_ARGUMENT,
        "own",
    ),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_batch_is_refused_alone_with_what_is_wrong(peer: Peer, name: str) -> None:
    request, code, words = BAD[name]
    answer = await refused(peer, request)
    assert (Code(answer.code), words in answer.cause) == (code, True), answer


async def test_messages_of_one_batch_have_their_own_properties_beside_the_shared_ones(
    broker: SmallBroker, peer: Peer
) -> None:
    stream = await opened(peer)
    await told(stream, with_own({"n": "0"}, {}, {"n": "2", "of": "one"}))
    messages = await next_messages(await consuming(peer), 3)
    seen = [{key: it.properties.get(key) for key in ("n", "of", "_own")} for it in messages]
    assert seen == [
        {"n": "0", "of": "all", "_own": None},
        {"n": None, "of": "all", "_own": None},
        {"n": "2", "of": "one", "_own": None},
    ]


@pytest.mark.parametrize("asks", [False, True])
async def test_a_producer_gets_the_revision_of_the_server_when_it_asks(
    peer: Peer, asks: bool
) -> None:
    header = {CREATE_PRODUCER: create_header(CreateHeader(P0, FIRST_TERM))}
    stream = peer.open(APPEND, header | ({APPEND_REVISION: "1"} if asks else {}))
    greeting = await stream.receive()
    assert scan_append_greeting(greeting) == (WHOLE_TXNS if asks else 0)
    assert bool(greeting) is asks
