"""Changes by clients of Milvus that meet a taken id, as the health of the server lists them."""

from pathlib import Path

import anyio
from typer.testing import CliRunner

from broker.cli.main import app
from broker.client import Client, Received, connect
from broker.model.message import MessageType
from schemas.generated.milvus.proto import messages, msg
from tests.local_broker import local_broker

ID = 5_000_001
WAIT_S_MAX = 60.0
"""Against hanging only."""


async def announce(log: Client, name: str, wait_for_consumers: bool) -> None:
    """Create a collection as a client of Milvus does, with an id of its own choice."""
    header = messages.CreateCollectionMessageHeader(collection_id=ID, partition_ids=[7])
    body = msg.CreateCollectionRequest(
        collection_name=name, collection_id=ID, partition_names=["_default"], partition_i_ds=[7]
    )
    await log.broadcast.append(
        await log.master.get_dd_channel(),
        bytes(body),
        type=MessageType.CREATE_COLLECTION,
        header=bytes(header),
        ack_sync_up=wait_for_consumers,
    )


async def first_copy(log: Client) -> Received:
    with anyio.fail_after(WAIT_S_MAX):
        async with log.read(await log.master.get_dd_channel()) as reader:
            async for message in reader.messages():
                return message
    raise AssertionError


async def test_a_change_that_met_a_taken_id_is_listed_and_blocks_nothing(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path, pchannels=1, node_acks=False) as broker,
        connect(broker.address) as log,
    ):
        assert (await log.admin.health()).clashes == ()
        async with anyio.create_task_group() as tasks:
            # Its copy is written and its keys are held; a consumer has to acknowledge it.
            tasks.start_soon(announce, log, "first", True)
            copy = await first_copy(log)
            await announce(log, "second", wait_for_consumers=False)
            await log.broadcast.ack(copy)
        found = await log.admin.health()
        assert found.state == "healthy"
        text = f"collection 'first' with id {ID} was broadcast, but the id is taken by collection"
        assert [it[: len(text)] for it in found.clashes] == [text]
        assert await log.master.has_collection("second")
        assert not await log.master.has_collection("first")
        shown = await anyio.to_thread.run_sync(
            CliRunner().invoke, app, ["health", "--server", broker.address]
        )
        assert found.clashes[0] in shown.output.replace("\n", "")
        assert (await log.master.create_collection("first")).id != ID
