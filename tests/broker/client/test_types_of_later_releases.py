"""Messages of types that this release does not know, after a restart and in every tool."""

from pathlib import Path

from typer.testing import CliRunner

from broker.cli.main import app
from broker.client import Message, connect
from broker.spark.source.message_rows import MessageShape, declared
from tests.local_broker import local_broker

LATER = 777


async def test_they_are_read_after_a_restart_and_shown_by_number(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        (vchannel,) = (await log.collections.create("c", shards=1)).vchannels
        await log.append("c", b"before")
        landed = await log.raw_append(
            vchannel, Message(b"\x08\x01", type=LATER, version=2, header=b"\x08\x07")
        )
        async with log.txn("c") as txn:
            await txn.append(b"in a transaction")
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        found = [
            message
            async for batch in log.read("c", start="all", until="now")
            for message in batch.messages
        ]
        assert [(it.type, it.payload) for it in found] == [
            (2, b"before"),
            (LATER, b"\x08\x01"),
            (2, b"in a transaction"),
        ]
        assert found[1].id == landed.id
        shape = MessageShape({}, declared(["value"], include_properties=False))
        batches = log.read_batches("c", start="all", until="now")
        rows = [row async for batch in batches for row in shape.shaped(batch)["value"].to_pylist()]
        assert rows == [it.payload for it in found], "as Spark's source gives them"
    shown = CliRunner().invoke(app, ["wal", "dump", str(tmp_path)])
    assert shown.exit_code == 0
    (line,) = [each for each in shown.output.splitlines() if f"  {LATER}  " in each]
    assert vchannel in line
