"""Message types of later releases: carried without being known, and refused only if misread."""

import pytest

from broker.model.failure import StreamingCode as Code
from broker.model.message import PREPARE_TXN
from schemas.generated.milvus.proto import messages
from schemas.generated.milvus.proto import streaming as wire
from schemas.wire import Produced
from tests.wire.broadcasting import V, world
from tests.wire.broadcasting import request as broadcast_request
from tests.wire.peer import Peer
from tests.wire.small_broker import V0
from tests.wire.test_broadcast import GOOD
from tests.wire.test_consume import ALL, is_tick, opened, request
from tests.wire.test_transactions import COMMIT, begun, plain, until_tick

EXCLUSIVE, OTHERS = ("45", "46"), ("44", "47", "48", "49", "699", "777", "1000", "123456")


def types_only(*types: int) -> wire.DeliverFilter:
    kinds = [messages.MessageType(kind) for kind in types]
    return wire.DeliverFilter(message_type=wire.DeliverFilterMessageType(message_types=kinds))


async def test_a_later_type_is_delivered_with_its_bytes_and_properties(peer: Peer) -> None:
    for kind in (*EXCLUSIVE, *OTHERS):
        await plain(peer, b"\xff" + kind.encode(), _t=kind, _v="3", _h="CGQ=", new="kept")
    last = await plain(peer, b"last")
    found = await until_tick(await opened(peer, request(ALL, vchannel=V0)), last.tick)
    seen = [it for it in found if not is_tick(it)]
    assert [it.payload[1:].decode() for it in seen[:-1]] == [*EXCLUSIVE, *OTHERS]
    for it in seen[:-1]:
        assert it.properties["_t"] == it.payload[1:].decode()
        assert {"_v": "3", "_h": "CGQ=", "new": "kept"}.items() <= it.properties.items()


async def test_consumers_may_ask_for_later_types(peer: Peer) -> None:
    for kind in ("2", "777", "44", "778"):
        await plain(peer, kind.encode(), _t=kind, _v="2")
    last = await plain(peer, b"last", _t="44", _v="2")
    asked = request(ALL, V0, [types_only(777, 44)])
    found = await until_tick(await opened(peer, asked), last.tick)
    assert [it.payload for it in found if not is_tick(it)] == [b"777", b"44", b"last"]


@pytest.mark.parametrize("kind", EXCLUSIVE)
async def test_the_end_of_an_import_ends_the_open_transactions(peer: Peer, kind: str) -> None:
    txn = await begun(peer, V0)
    assert isinstance(await txn.body(b"a"), Produced)
    await plain(peer, b"end", _t=kind, _v="2")
    assert await txn.of(COMMIT) is Code.TRANSACTION_EXPIRED


@pytest.mark.parametrize("kind", OTHERS)
async def test_any_other_later_type_leaves_transactions_alone(peer: Peer, kind: str) -> None:
    txn = await begun(peer, V0)
    assert isinstance(await txn.body(b"a"), Produced)
    await plain(peer, b"other", _t=kind, _v="2")
    assert isinstance(await txn.of(COMMIT), Produced)


async def test_a_later_type_cannot_be_in_a_transaction(peer: Peer) -> None:
    txn = await begun(peer, V0)
    assert await txn.of("777") is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("kind", ["903", "950", str(PREPARE_TXN)])
async def test_a_number_among_steps_of_transactions_is_refused(peer: Peer, kind: str) -> None:
    txn = await begun(peer, V0)
    assert await txn.say(kind) is Code.UNRECOVERABLE


@pytest.mark.parametrize("kind", [*EXCLUSIVE, *OTHERS])
async def test_a_later_type_is_broadcast_to_every_vchannel(kind: str) -> None:
    async with world() as it:
        answer = await it.broadcast(broadcast_request(GOOD, _t=kind))
        assert set(answer.results) == set(V)
        for vchannel in V:
            (copy,) = await it.on(vchannel)
            assert (copy.tags["_t"], copy.payload) == (kind, b"ddl")
