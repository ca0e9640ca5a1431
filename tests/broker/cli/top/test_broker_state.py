"""What a look asks for, and what it takes from the look before."""

from dataclasses import replace
from pathlib import Path

from broker.cli.top.broker_state import COLLECTIONS_S, LAGS_S, read_state
from broker.client import Message, connect
from tests.local_broker import local_broker


async def test_collections_are_asked_for_again_when_vchannels_changed_or_after_a_while(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        await log.collections.create("first")
        one = await read_state(log)
        assert [it.name for it in one.collections] == ["first"]
        same = await read_state(log, one)
        assert same.collections is one.collections
        await log.collections.create("second")
        more = await read_state(log, same)
        assert [it.name for it in more.collections] == ["first", "second"]
        old = replace(more, collections_at_s=more.collections_at_s - COLLECTIONS_S)
        later = await read_state(log, old)
        assert later.collections is not more.collections
        assert later.collections == more.collections
        assert not later.missing


async def test_what_cursors_are_behind_is_counted_now_and_then_and_kept_between(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        (shard,) = (await log.collections.create("c")).vchannels
        landed = await log.append(shard, b"processed")
        await log.append_messages(shard, [Message(b"x")] * 20)
        await log.cursor("mine").move(landed.tick, shard)
        first = await read_state(log)
        assert not first.cursors[0].lags
        second = await read_state(log, first)
        assert second.cursors[0].rows_behind == 20
        await log.append_messages(shard, [Message(b"x")] * 5)
        third = await read_state(log, second)
        assert (third.cursors[0].rows_behind, third.lags_at_s) == (20, second.lags_at_s)
        old = replace(third, lags_at_s=third.lags_at_s - LAGS_S)
        assert (await read_state(log, old)).cursors[0].rows_behind == 25
