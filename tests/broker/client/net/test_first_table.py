"""How long a client waits for a server's first answer, whatever it allows each stream later."""

from broker.client import Deadlines, connect
from tests.broker.client.scripted import scripted_broker


async def test_connect_waits_for_the_first_table_although_streams_are_to_open_sooner() -> None:
    at_once = Deadlines(open_s=0.000_001, connect_s=60.0)
    async with scripted_broker() as broker, connect(broker.address, deadlines=at_once):
        pass  # without a table it raises
