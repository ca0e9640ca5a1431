"""kill -9 in each stage of a switch of the log to Kafka and back, `--switch-kills N` times.

Programs append, read and work in a group all the while. The metadata on the disk tells which stage
a kill has hit; kills go on until each stage was hit in both directions, for five times as many at
most.
"""

import logging
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from benchmark.baselines.kafka_server import KafkaNode

from broker.client import Client
from broker.client.errors import InvalidArgument
from tests.broker.app.switching.switch_programs import (
    check_all,
    programs,
    stage_on_disk,
    until,
)
from tests.broker_process import BrokerProcess, free_port
from tests.kafka_node import kafka_node, new_place

__all__ = ["kafka_node"]
STAGES = ("copying", "switching", "aborting", "dropping")
ENDED = ("done", "aborted")
SETTINGS = {"pchannels": "2", "log_level": "warning"}
LATER_S_MAX = 0.2
ROUNDS_MAX = 5
KILL_S_MAX = 120.0
"""For one kill, against hanging only."""

counts = logging.getLogger("tests.chaos")


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    return max(2 * len(STAGES), int(request.config.getoption("--switch-kills")))


class Switched:
    """A broker whose log is switched, and killed amid it; `hit` counts stages, by direction."""

    def __init__(self, data: Path, chosen: random.Random) -> None:
        self._data, self._chosen = data, chosen
        self._listen = f"127.0.0.1:{free_port()}"
        self.broker = self._started()
        self.hit: Counter[tuple[str, str]] = Counter()

    def _started(self) -> BrokerProcess:
        return BrokerProcess(self._data, self._listen, **SETTINGS)

    def aim(self, way: str) -> str:
        """The stage that was hit the least often in this direction."""
        return min(STAGES, key=lambda it: self.hit[it, way])

    @property
    def is_complete(self) -> bool:
        """Whether each stage was hit in both directions."""
        return all(self.hit[stage, way] for stage in STAGES for way in ("there", "back"))

    async def switch(self, log: Client, target: str, aim: str) -> str:
        """Switch, with a kill in the stage `aim` or soon after; the place of the log then."""
        await log.admin.alter_wal(target)
        if aim == "aborting":
            await anyio.sleep(self._chosen.uniform(0.0, LATER_S_MAX))
            with suppress(InvalidArgument):  # it is too late
                await log.admin.abort_wal()
        while (await log.admin.wal_status()).stage not in (aim, *ENDED):
            pass
        if aim != "dropping" and self._chosen.random() < 0.5:  # that one is over soon
            await anyio.sleep(self._chosen.uniform(0.0, LATER_S_MAX))
        await anyio.to_thread.run_sync(self.broker.kill)
        self.hit[await stage_on_disk(self._data), "there" if target else "back"] += 1
        self.broker = await anyio.to_thread.run_sync(self._started)
        status = await until(log, ENDED)
        assert status.place == (status.source if status.stage == "aborted" else target)
        assert not any(it.trouble for it in status.channels)
        return status.place


@pytest.mark.slow
async def test_kill_nine_in_each_stage_of_a_switch_loses_and_doubles_nothing(
    kafka_node: KafkaNode, tmp_path: Path, kills: int
) -> None:
    wal, place = f"{new_place(kafka_node).shown}?replication=1&sync=replicas", ""
    switched = Switched(tmp_path / "data", random.Random(kills))
    try:
        async with programs(switched.broker.address) as those:
            while switched.hit.total() < kills or not switched.is_complete:
                assert switched.hit.total() < ROUNDS_MAX * kills, switched.hit
                aim = switched.aim("back" if place else "there")
                with anyio.fail_after(KILL_S_MAX):
                    place = await switched.switch(those.log, "" if place else wal, aim)
            await those.until_all_are_through()
            await check_all(those)
            assert (await those.log.admin.health()).warnings == ()
        assert switched.broker.terminate() == 0
    finally:
        switched.broker.kill()
    told = "%d kills, %d acknowledged: %s"
    counts.info(told, switched.hit.total(), len(those.landed), dict(sorted(switched.hit.items())))
