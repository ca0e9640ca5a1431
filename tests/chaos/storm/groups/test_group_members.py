"""Members of groups without any faults: what they do is as groups promise."""

from pathlib import Path

import anyio

from broker.client import connect
from broker.client.cluster.targets import NewVChannel
from tests.chaos.storm.groups.group_checks import groups_agree
from tests.chaos.storm.groups.group_members import RESTARTED, STEADY, GroupMembers
from tests.chaos.storm.readers import seen
from tests.chaos.storm.recorder import Recorder
from tests.local_broker import local_broker

STEADY_ON = NewVChannel("by-dev-rootcoord-dml_0_7v0")
RESTARTED_ON = NewVChannel("by-dev-rootcoord-dml_0_8v0")
MESSAGES = 300
WITHIN_S = 60.0


async def test_members_leave_nothing_out_and_take_nothing_twice(tmp_path: Path) -> None:
    recorder = Recorder()
    history = recorder.history
    served = {STEADY: (STEADY_ON,), RESTARTED: (RESTARTED_ON,)}
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        members = GroupMembers(log, recorder, served, seed=3)
        with anyio.fail_after(2 * WITHIN_S):
            async with anyio.create_task_group() as tasks:
                members.start(tasks)
                for number in range(MESSAGES):
                    for vchannel in (STEADY_ON, RESTARTED_ON):
                        await log.append(vchannel, b"%d" % number)
                while not history.groups.resets:  # noqa: ASYNC110 - within seconds
                    await anyio.sleep(0.1)
                members.enough = True
            markers: dict[str, int] = {}
            for vchannel in (STEADY_ON, RESTARTED_ON):
                markers[vchannel] = (await log.append(vchannel, b"last")).tick
                reader = log.read(vchannel, until="now")
                history.final[vchannel] = seen([it async for it in reader.messages()])
                assert len(history.final[vchannel]) == MESSAGES + 1
            assert await members.drain(markers) == []
    assert list(groups_agree(history)) == []
    assert len(history.groups.drained) == 2
    assert any(it.told.value == "done" for it in history.groups.acked)
