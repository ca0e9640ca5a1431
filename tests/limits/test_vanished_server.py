"""A bounded read whose server does not come back ends with an error; nothing hangs."""

from pathlib import Path

import anyio
import pytest

from broker.client import Deadlines, Message, Scanner, TidemarkError, connect
from broker.client.cluster.targets import NewVChannel
from tests.broker_process import BrokerProcess

VCHANNEL = NewVChannel("by-dev-rootcoord-dml_1_1v0")
MESSAGES = 3000


async def test_a_bounded_read_gives_up_on_a_server_that_stays_away(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        async with connect(broker.address, deadlines=Deadlines(silence_s=0.5)) as log:
            await log.append_messages(VCHANNEL, [Message(bytes(8192))] * MESSAGES, atomic=False)
            reader = log.read(VCHANNEL, until="now")
            await reader.open()
            broker.kill()
            with anyio.fail_after(60), pytest.raises(TidemarkError) as ended:
                await read_all(reader)
            assert ended.value.retriable


async def read_all(reader: Scanner) -> None:
    async for _ in reader:
        pass
