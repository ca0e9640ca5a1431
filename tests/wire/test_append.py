"""Appending batches through `tidemark.v1.Log`: answers in order, refusals, numbers that repeat."""

from collections.abc import Mapping
from dataclasses import replace

import anyio
import lz4.block
import pytest
import zstandard

from broker.edge.rpc.edge_limits import EdgeLimits
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import StreamingCode as Code
from broker.wal.memory_wal import MemoryWal
from schemas.batches import Landed, NotLanded, scan_append_response
from schemas.generated.tidemark import v1
from schemas.handshake import CREATE_PRODUCER, CreateHeader
from schemas.properties.keys import TXN
from schemas.properties.txn_context import TxnContext
from tests.create_headers import create_header
from tests.wire.peer import Ended, Peer, PeerStream, connected
from tests.wire.small_broker import FIRST_TERM, P0, V0, SmallBroker, small_broker
from tests.wire.test_consume import next_messages
from tests.wire.test_consume import opened as consuming

APPEND = "/tidemark.v1.Log/Append"


def batch(*payloads: bytes, **fields: object) -> v1.AppendRequest:
    """As another program would make it, with the generated code."""
    request = v1.AppendRequest(
        vchannel=V0, sizes=[len(it) for it in payloads], body=b"".join(payloads)
    )
    return replace(request, **fields)  # type: ignore[arg-type]


async def opened(peer: Peer, term: int = FIRST_TERM) -> PeerStream:
    header = create_header(CreateHeader(P0, term))
    stream = peer.open(APPEND, {CREATE_PRODUCER: header})
    assert await stream.receive() == b""
    return stream


async def told(stream: PeerStream, *requests: v1.AppendRequest) -> list[Landed | NotLanded]:
    await stream.send(*[bytes(it) for it in requests])
    answers = [scan_append_response(await stream.receive()) for _ in requests]
    assert None not in answers
    return [it for it in answers if it is not None]


async def refused(
    peer: Peer, request: v1.AppendRequest, after: v1.AppendRequest | None = None
) -> NotLanded:
    """What a batch is refused with; the next one is appended all the same."""
    stream = await opened(peer)
    first, second = await told(stream, request, after or batch(b"after"))
    assert isinstance(first, NotLanded), first
    assert isinstance(second, Landed), second
    assert first.cause
    return first


async def test_answers_come_in_the_order_of_the_batches(peer: Peer) -> None:
    stream = await opened(peer)
    many = [batch(*[b"x"] * (it % 3 + 1)) for it in range(60)]
    many[30] = batch(b"x", sizes=[2])
    answers = await told(stream, *many)
    ids = [it.message_id for it in answers if isinstance(it, Landed)]
    assert isinstance(answers[30], NotLanded)
    assert ids == sorted(ids)
    assert len(ids) == 59
    await stream.half_close()
    assert await stream.status() == (0, None)


async def test_an_answer_says_the_level_of_durability_that_was_asked_for(peer: Peer) -> None:
    stream = await opened(peer)
    levels = [0, 0, 2, 1, 1, 0, 2]
    answers = await told(stream, *[batch(b"x", durability=it) for it in levels])
    assert [it.durability for it in answers if isinstance(it, Landed)] == levels
    ids = [it.message_id for it in answers if isinstance(it, Landed)]
    assert ids == sorted(ids)


async def test_a_milvus_consumer_gets_single_messages_of_a_batch(
    broker: SmallBroker, peer: Peer
) -> None:
    stream = await opened(peer)
    request = batch(
        b"one", b"", b"three",
        properties={"own": "shared"}, key_sizes=[0, 2, 0], keys=b"k", type=3,
    )  # fmt: skip
    (landed,) = await told(stream, request)
    assert isinstance(landed, Landed)
    messages = await next_messages(await consuming(peer), 3)
    assert [it.payload for it in messages] == [b"one", b"", b"three"]
    assert [it.message_id for it in messages] == [landed.message_id + it for it in range(3)]
    assert [it.tick for it in messages] == [landed.tick + it for it in range(3)]
    for at, it in enumerate(messages):
        shared = {"_t": "3", "_v": "1", "_h": "", "_vc": V0, "own": "shared", "_lcs": ""}
        key = {"tidemark.key": "aw=="} if at == 1 else {}
        assert it.properties == shared | key | {
            "_tt": it.properties["_tt"], "_wt": it.properties["_wt"]
        }  # fmt: skip


@pytest.mark.parametrize("codec", [v1.Codec.LZ4, v1.Codec.ZSTD])
async def test_a_packed_batch_is_unpacked_for_who_reads_single_messages(
    broker: SmallBroker, peer: Peer, codec: v1.Codec
) -> None:
    plain = b"a" * 5000 + b"b" * 3000
    packed = {
        v1.Codec.LZ4: lz4.block.compress(plain, store_size=False),
        v1.Codec.ZSTD: zstandard.ZstdCompressor().compress(plain),
    }[codec]
    stream = await opened(peer)
    (landed,) = await told(stream, batch(sizes=[5000, 3000], body=packed, codec=codec))
    assert isinstance(landed, Landed)
    messages = await next_messages(await consuming(peer), 2)
    assert [it.payload for it in messages] == [b"a" * 5000, b"b" * 3000]


BOMB = lz4.block.compress(bytes(4 << 20), store_size=False)

BAD: Mapping[str, tuple[v1.AppendRequest, Code, str]] = {
    "sizes that do not add up": (batch(b"abc", sizes=[1, 1]), Code.INVALID_ARGUMENT, "add up"),
    "a size below 0": (batch(b"abc", sizes=[4, (1 << 32) - 1]), Code.INVALID_ARGUMENT, "add up"),
    "a header of an insert that is none": (
        batch(b"a", properties={"_h": "CgU="}),
        Code.INVALID_ARGUMENT,
        "no header of rows",
    ),
    "a header of a delete that is none": (
        batch(b"a", type=3, properties={"_h": "CgU="}),
        Code.INVALID_ARGUMENT,
        "no header of rows",
    ),
    "no message": (batch(), Code.INVALID_ARGUMENT, "0 messages"),
    "too many messages": (batch(*[b""] * 16_385), Code.INVALID_ARGUMENT, "16385"),
    "too large": (batch(bytes(5 << 20), bytes(5 << 20)), Code.UNRECOVERABLE, "split"),
    "elsewhere": (batch(b"a", vchannel="p_1v0"), Code.INVALID_ARGUMENT, "'p_1v0'"),
    "no vchannel": (batch(b"a", vchannel=""), Code.INVALID_ARGUMENT, "vchannel ''"),
    "a time tick": (batch(b"a", type=1), Code.INVALID_ARGUMENT, "type 1"),
    "an exclusive type": (batch(b"a", type=4), Code.INVALID_ARGUMENT, "type 4"),
    "a type of nobody": (batch(b"a", type=-7), Code.INVALID_ARGUMENT, "type -7"),
    "keys that do not fit": (
        batch(b"a", b"b", key_sizes=[2], keys=b"k"),
        Code.INVALID_ARGUMENT,
        "keys",
    ),
    "keys without sizes": (batch(b"a", keys=b"k"), Code.INVALID_ARGUMENT, "keys"),
    "a reserved property": (batch(b"a", properties={"_tt": "1"}), Code.INVALID_ARGUMENT, "_tt"),
    "a key as property": (
        batch(b"a", properties={"tidemark.key": "aw=="}),
        Code.INVALID_ARGUMENT,
        "tidemark.key",
    ),
    "a header that is none": (batch(b"a", properties={"_h": "?"}), Code.INVALID_ARGUMENT, "_h"),
    "version 0": (batch(b"a", properties={"_v": "0"}), Code.INVALID_ARGUMENT, "_v"),
    "too many properties": (
        batch(b"a", properties={"p": "x" * 70_000}),
        Code.INVALID_ARGUMENT,
        "properties",
    ),
    "a codec nobody knows": (batch(b"a", codec=9), Code.INVALID_ARGUMENT, "codec 9"),
    "a durability nobody has": (batch(b"a", durability=3), Code.INVALID_ARGUMENT, "durability 3"),
    "a bomb": (batch(sizes=[1000], body=BOMB, codec=1), Code.INVALID_ARGUMENT, "lz4"),
    "a body that holds less": (
        batch(sizes=[5 << 20], body=BOMB, codec=1),
        Code.INVALID_ARGUMENT,
        "lz4",
    ),
    "a size no body can have": (
        batch(sizes=[8 << 20], body=b"\x00" * 99, codec=1),
        Code.INVALID_ARGUMENT,
        "cannot hold",
    ),
    "no packed body at all": (
        batch(sizes=[100], body=b"garbage", codec=2),
        Code.INVALID_ARGUMENT,
        "zstd",
    ),
    "a zstd bomb": (
        batch(sizes=[10], body=zstandard.ZstdCompressor().compress(bytes(4 << 20)), codec=2),
        Code.INVALID_ARGUMENT,
        "zstd",
    ),
    "a number below 0": (
        batch(b"a", producer="p", sequence=-1),
        Code.INVALID_ARGUMENT,
        "below 0",
    ),
    "a name too long": (batch(b"a", producer="p" * 65), Code.INVALID_ARGUMENT, "65"),
    "a number that jumps": (
        batch(b"a", producer="p", sequence=7),
        Code.INVALID_REQUEST_SEQ,
        "is unknown",
    ),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_batch_is_refused_alone_with_what_is_wrong(peer: Peer, name: str) -> None:
    request, code, words = BAD[name]
    answer = await refused(peer, request)
    assert (Code(answer.code), words in answer.cause) == (code, True), answer


async def test_a_frame_over_the_limit_is_refused_in_its_place() -> None:
    limits = EdgeLimits(message_bytes_max=1000, frame_bytes_max=4000)
    async with small_broker(limits=limits) as broker, connected(broker) as peer:
        stream = await opened(peer)
        answers = await told(stream, batch(b"a"), batch(bytes(9000)), batch(b"b"))
    assert [type(it) for it in answers] == [Landed, NotLanded, Landed]


async def test_bytes_that_are_no_batch_end_the_stream_behind_what_came_before(peer: Peer) -> None:
    stream = await opened(peer)
    await stream.send(bytes(batch(b"a")), b"\xff\xff")
    assert isinstance(scan_append_response(await stream.receive()), Landed)
    ended = await stream.end()
    assert ended.error is not None
    assert ended.error.code == Code.INVALID_ARGUMENT


async def test_a_stream_to_an_older_term_is_refused(peer: Peer) -> None:
    header = create_header(CreateHeader(P0, FIRST_TERM + 9))
    with pytest.raises(Ended) as raised:
        await peer.open(APPEND, {CREATE_PRODUCER: header}).receive()
    assert raised.value.error is not None
    assert raised.value.error.code == Code.UNMATCHED_CHANNEL_TERM


async def test_numbers_repeat_and_jump_over_streams(peer: Peer) -> None:
    first = await opened(peer)
    numbered = batch(b"a", b"b", producer="p", sequence=0)
    (landed,) = await told(first, numbered)
    second = await opened(peer)
    again, jump, following = await told(
        second,
        numbered,
        batch(b"x", producer="p", sequence=5),
        batch(b"c", producer="p", sequence=2),
    )
    assert again == landed
    assert isinstance(jump, NotLanded)
    assert (Code(jump.code), jump.expected_sequence) == (Code.INVALID_REQUEST_SEQ, 2)
    assert isinstance(landed, Landed)
    assert isinstance(following, Landed)
    assert following.message_id >= landed.message_id + 2


async def test_a_repeat_gets_its_first_answer_from_the_next_owner_too() -> None:
    wal, store = MemoryWal(), MemoryMetaStore()
    answers: list[Landed | NotLanded] = []
    for term in (FIRST_TERM, FIRST_TERM + 1, FIRST_TERM + 2):
        async with small_broker(wal=wal, store=store) as broker, connected(broker) as peer:
            with anyio.fail_after(60):
                stream = await opened(peer, term)
                answers += await told(
                    stream,
                    batch(b"a", b"b", producer="p", sequence=0),
                    batch(b"c", producer="p", sequence=2),
                )
    assert answers[:2] == answers[2:4] == answers[4:]


async def test_a_server_that_stops_answers_what_it_has_taken_and_says_why_it_ends(
    broker: SmallBroker, peer: Peer
) -> None:
    stream = await opened(peer)
    await stream.send(*[bytes(batch(b"a"))] * 10)
    assert isinstance(scan_append_response(await stream.receive()), Landed)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: broker.edge.stop(deadline_s=60.0))
        answers: list[object] = []
        with pytest.raises(Ended) as raised:
            await _until_it_ends(stream, answers)
    assert raised.value.error is not None
    assert raised.value.error.code == Code.ON_SHUTDOWN
    assert all(isinstance(answer, Landed) for answer in answers)


async def _until_it_ends(stream: PeerStream, answers: list[object]) -> None:
    while True:
        answers.append(scan_append_response(await stream.receive()))


async def test_what_was_accepted_is_stored_though_the_producer_went_away(
    broker: SmallBroker, peer: Peer
) -> None:
    stream = await opened(peer)
    await stream.send(bytes(batch(b"gone", producer="p", sequence=0)))
    stream.call.cancel()
    again = await opened(peer)
    answers = await told(again, *[batch(b"gone", producer="p", sequence=0)] * 2)
    assert answers[0] == answers[1]
    messages = await next_messages(await consuming(peer), 1)
    assert [it.payload for it in messages] == [b"gone"]


@pytest.mark.parametrize(
    ("txn", "code"),
    [
        ("no base64 at all!", Code.INVALID_ARGUMENT),
        ("", Code.TRANSACTION_EXPIRED),
        (TXN.encode(TxnContext(12345, 1000)), Code.TRANSACTION_EXPIRED),
    ],
)
async def test_a_batch_of_a_transaction_that_is_none_is_refused(
    peer: Peer, txn: str, code: Code
) -> None:
    answer = await refused(peer, batch(b"x", properties={"_tx": txn}))
    assert answer.code == code


async def test_a_batch_of_a_transaction_that_is_not_to_be_synced_is_refused(peer: Peer) -> None:
    named = {"_tx": TXN.encode(TxnContext(12345, 1000))}
    answer = await refused(peer, batch(b"x", properties=named, durability=v1.Durability.OS))
    assert answer.code == Code.INVALID_ARGUMENT
    assert "FSYNC" in answer.cause


async def test_a_batch_of_two_transactions_is_refused(peer: Peer) -> None:
    stream = await opened(peer)
    names = [TXN.encode(TxnContext(number, 1000)) for number in (5, 6)]
    both = [bytes(batch(b"x", properties={"_tx": names[0]}))]
    both += [bytes(v1.AppendRequest(properties={"_tx": names[1]}))]
    await stream.send(b"".join(both))
    answer = scan_append_response(await stream.receive())
    assert isinstance(answer, NotLanded)
    assert answer.code == Code.INVALID_ARGUMENT
    assert "one transaction" in answer.cause
