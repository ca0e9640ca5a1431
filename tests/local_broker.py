"""A whole broker in the test's own process, over the real log and a real socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from actors import ActorStatistics
from broker.app import Broker, bind, run_broker
from broker.app.broadcast_callbacks import NONE
from broker.data_folder import hold
from broker.ports.callbacks import Callbacks
from broker.process_settings import Settings
from tests.broker_process import PCHANNELS

LISTEN = "127.0.0.1:0"


@asynccontextmanager
async def local_broker(
    data_dir: Path, callbacks: Callbacks = NONE, /, **given: Any
) -> AsyncIterator[Broker]:
    """Every pchannel serves when the block begins; everything is closed when it ends."""
    settings = Settings(data_dir=data_dir, listen=LISTEN, **{"pchannels": PCHANNELS} | given)
    with bind(settings.listen) as bound, hold(settings.data_dir) as folder:
        async with run_broker(settings, folder, bound, callbacks) as broker:
            yield broker


def actors_of(broker: Broker, pchannel: str, last_name: str = "") -> list[ActorStatistics]:
    """The actors below a pchannel whose last name begins like this."""
    return [
        entry
        for entry in broker.system.statistics()
        if entry.kind == "actor"
        and f"/{pchannel}/" in entry.path
        and entry.path.rpartition("/")[2].startswith(last_name)
    ]
