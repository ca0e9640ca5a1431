"""What a look asks for, and what it takes from the look before."""

from dataclasses import replace
from pathlib import Path

from broker.cli.top.broker_state import COLLECTIONS_S, read_state
from broker.client import connect
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
