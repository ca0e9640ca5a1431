"""Transactions in one batch, as another program would append them."""

from collections.abc import Mapping

import anyio
import pytest

from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import StreamingCode as Code
from broker.wal.memory_wal import MemoryWal
from schemas.batches import Landed, NotLanded
from schemas.generated.tidemark import v1
from schemas.properties.keys import TXN
from schemas.properties.txn_context import TxnContext
from tests.wire.peer import Peer, connected
from tests.wire.small_broker import FIRST_TERM, P0, small_broker
from tests.wire.test_append import batch, opened, refused, told
from tests.wire.test_consume import next_messages
from tests.wire.test_consume import opened as consuming

WHOLE = {"_whole": ""}
NAMED = {"_tx": TXN.encode(TxnContext(5, 1000))}


async def test_a_milvus_consumer_gets_begin_bodies_and_commit_at_one_tick(peer: Peer) -> None:
    stream = await opened(peer)
    (landed,) = await told(stream, batch(b"a", b"b", properties={**WHOLE, "of": "all"}))
    assert isinstance(landed, Landed)
    messages = await next_messages(await consuming(peer), 4)
    assert [it.properties["_t"] for it in messages] == ["900", "2", "2", "901"]
    assert [it.payload for it in messages] == [b"", b"a", b"b", b""]
    assert [it.message_id - landed.message_id for it in messages] == [-1, 0, 1, 2]
    assert {it.tick for it in messages} == {landed.tick}
    named = {it.properties["_tx"] for it in messages}
    assert len(named) == 1, "each names the same transaction"
    context = TXN.decode(named.pop())
    assert context.txn_id == landed.tick - 3
    assert context.keepalive_ms > 0
    assert [it.properties.get("of") for it in messages] == [None, "all", "all", None]
    assert not any("_whole" in it.properties for it in messages)


BAD: Mapping[str, tuple[v1.AppendRequest, str]] = {
    "of another transaction": (batch(b"x", properties=WHOLE | NAMED), "another transaction"),
    "not to be synced": (batch(b"x", properties=WHOLE, durability=v1.Durability.OS), "FSYNC"),
    "on a pchannel": (batch(b"x", properties=WHOLE, vchannel=P0), "needs a vchannel"),
    "of a type that no transaction has": (batch(b"x", properties=WHOLE, type=4321), "type 4321"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_one_is_refused_alone_with_what_is_wrong(peer: Peer, name: str) -> None:
    request, words = BAD[name]
    answer = await refused(peer, request)
    assert (Code(answer.code), words in answer.cause) == (Code.INVALID_ARGUMENT, True), answer


async def test_a_repeat_gets_its_first_answer_from_the_next_owner_too() -> None:
    wal, store = MemoryWal(), MemoryMetaStore()
    answers: list[Landed | NotLanded] = []
    for term in (FIRST_TERM, FIRST_TERM + 1):
        async with small_broker(wal=wal, store=store) as broker, connected(broker) as peer:
            with anyio.fail_after(60):
                stream = await opened(peer, term)
                answers += await told(
                    stream,
                    batch(b"a", b"b", properties=WHOLE, producer="p", sequence=0),
                    batch(b"c", properties=WHOLE, producer="p", sequence=2),
                )
                messages = await next_messages(await consuming(peer, term=term), 7)
    assert answers[:2] == answers[2:]
    assert [it.payload for it in messages if it.payload] == [b"a", b"b", b"c"]
