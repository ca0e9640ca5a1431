"""Packs of encoded bodies."""

import pytest

from broker.msgstream import BadMessage, EncodedPack, MemMsgStreamFactory, MsgPack
from tests.broker.msgstream.memory_streams import at, consumer, names

BODIES = [at(number, f"m{number}").marshal() for number in range(4)]


def test_bodies_are_spread_by_their_keys_in_their_order() -> None:
    pack = EncodedPack(BODIES, [0, 1, 2, 3])
    assert pack.spread(2) == {0: [BODIES[0], BODIES[2]], 1: [BODIES[1], BODIES[3]]}
    assert pack.spread(1) == {0: BODIES}
    assert EncodedPack([], []).spread(1) == {}
    assert [it.marshal() for it in pack.msgs] == BODIES
    assert [list(it.hash_keys) for it in pack.msgs] == [[0], [1], [2], [3]]


def test_bodies_without_a_header_or_a_key_are_refused() -> None:
    with pytest.raises(BadMessage, match="4 bodies have 1 hash keys"):
        EncodedPack(BODIES, [0])
    with pytest.raises(BadMessage, match="has no header"):
        EncodedPack([b"plain"], [0])


@pytest.mark.parametrize("encoded", [True, False])
async def test_a_stream_sends_them_as_it_sends_their_messages(encoded: bool) -> None:
    factory = MemMsgStreamFactory(encoded=encoded)
    stream = factory.new_msg_stream()
    await stream.as_producer(["a"])
    await stream.produce(EncodedPack([], []))
    if encoded:
        await stream.produce(EncodedPack(BODIES[:2], [0, 1]))
        stream.set_repack_func(lambda msgs, _: {0: MsgPack(msgs)})
        await stream.produce(EncodedPack(BODIES[2:], [0, 1]))
        reader = await consumer(factory, "a", tt=False)
        assert [names(await reader.consume()) for _ in range(4)] == [["m0"], ["m1"], ["m2"], ["m3"]]
    else:  # where objects travel, the bodies travel as messages
        await stream.produce(EncodedPack(BODIES[:1], [0]))
        assert len(factory.memory.queue("a").messages) == 1
