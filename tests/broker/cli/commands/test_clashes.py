"""`tidemark collection clash`: what clients of Milvus could not define, listed and cleared."""

import json
from pathlib import Path

import anyio
import pytest

from broker.client import Client, connect
from broker.client.errors import InvalidArgument
from broker.master.table.apply_change import ChangeWriter
from broker.meta.sqlite import SqliteMetaStore
from broker.model.ids import CollectionId, TimeTick
from broker.model.master.table_change import AddCollection
from schemas.generated.tidemark import v1
from tests.broker.cli.commands.test_definitions import tidemark
from tests.local_broker import local_broker

FIRST = 5_000_001


async def clashing(tmp_path: Path, count: int) -> None:
    """A data folder with clashes, as an earlier release would have made them."""
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        await log.master.create_collection("rows")
    async with await SqliteMetaStore.open(tmp_path / "meta.sqlite") as store:
        for id in range(FIRST, FIRST + count):
            late = AddCollection("", "rows", CollectionId(id), (), ())
            await ChangeWriter(store).apply(late, TimeTick(1))


async def listed(log: Client) -> list[str]:
    return [it.id async for it in log.master.list_clashes()]


async def test_clashes_are_listed_with_their_causes_and_cleared_for_good(tmp_path: Path) -> None:
    await clashing(tmp_path, 3)
    one, two, three = (f"collection/{FIRST + it}/rows" for it in range(3))
    async with local_broker(tmp_path, pchannels=1) as broker:

        async def run(*arguments: str, code: int = 0) -> str:
            command = ("collection", "clash", *arguments)
            return await anyio.to_thread.run_sync(
                lambda: tidemark(broker.address, *command, code=code)
            )

        found = json.loads(await run("list", "--json"))
        assert [it["id"] for it in found] == [one, two, three]
        assert "but the name is taken by collection" in found[0]["cause"]
        assert one in await run("list")
        shown = await run("clear", two, "no/such")
        assert shown.splitlines() == ["1 cleared", "not listed: no/such"]
        assert "name clashes, or give --all" in await run("clear", code=2)
        assert "name clashes, or give --all" in await run("clear", one, "--all", code=2)
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        assert await listed(log) == [one, three]
        clear = ("collection", "clash", "clear", "--all")
        shown = await anyio.to_thread.run_sync(lambda: tidemark(broker.address, *clear))
        assert shown == "2 cleared\n"
        assert await listed(log) == []
        assert (await log.admin.health()).clashes == ()
        # The collection that has the name is untouched.
        assert await log.master.has_collection("rows")


async def test_more_clashes_than_one_answer_holds_are_listed_and_cleared(tmp_path: Path) -> None:
    await clashing(tmp_path, 1_050)
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        found = await listed(log)
        assert len(found) == len(set(found)) == 1_050
        assert len((await log.admin.health()).clashes) == 100
        assert await log.master.clear_clashes(found[:1_001]) == []
        assert await listed(log) == found[1_001:]
        assert await log.master.clear_clashes([]) == []


@pytest.mark.parametrize("count", [0, 51])
async def test_a_request_that_clears_none_or_too_many_is_refused(
    tmp_path: Path, count: int
) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        calls = log.master._calls
        request = v1.ClearClashesRequest(ids=[str(it) for it in range(count)])
        with pytest.raises(InvalidArgument, match=f"clears {count} clashes; name 1 to 50"):
            await calls.ask("ClearClashes", request, v1.ClearClashesResponse)
