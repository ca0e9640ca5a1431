"""Changes by clients of Milvus that met a taken name, as the health of the server lists them."""

from pathlib import Path

import anyio
from typer.testing import CliRunner

from broker.cli.main import app
from broker.client import connect
from broker.master.table.apply_change import ChangeWriter
from broker.meta.sqlite import SqliteMetaStore
from broker.model.ids import CollectionId, TimeTick
from broker.model.master.table_change import AddCollection
from tests.local_broker import local_broker

OTHER = CollectionId(5_000_001)


async def test_a_change_that_met_a_taken_name_is_listed_and_blocks_nothing(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        assert (await log.admin.health()).clashes == ()
        taken = await log.master.create_collection("rows")
    # As its broadcast is applied that another release has recorded: one today is refused before.
    late = AddCollection("", "rows", OTHER, (), ())
    async with await SqliteMetaStore.open(tmp_path / "meta.sqlite") as store:
        await ChangeWriter(store).apply(late, TimeTick(1))
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        found = await log.admin.health()
        assert found.state == "healthy"
        text = f"collection 'rows' with id {OTHER} was broadcast, but the name is taken by"
        assert found.clashes == (f"{text} collection {taken.id}",)
        assert await log.master.describe_collection("rows") == taken
        command = ["health", "--server", broker.address]
        shown = await anyio.to_thread.run_sync(CliRunner().invoke, app, command)
        assert shown.exit_code == 0
        assert text in shown.output
