"""What a list says of a member: it waits, works, is slow, takes nothing, or is not there."""

import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from broker.cli.groups.member_states import (
    PAUSED,
    SLOW,
    WAITING,
    WORKING,
    member_state,
    worst_state,
)
from broker.client import Client, connect
from broker.client.groups.leased_batch import LeasedBatch
from broker.client.groups.member import GroupMember
from broker.model.groups.consumer_group import GroupKey, GroupSnapshot, GroupView, MemberView
from broker.model.ids import TimeTick
from tests.broker.client.groups.test_groups import take
from tests.chaos.group_worker import COLLECTION, GROUP
from tests.local_broker import local_broker
from tests.roles_processes import GUARD_S, until

SCRIPT = Path(__file__).resolve().parents[3] / "chaos/group_worker.py"
LEASE_S = 2.0
"""Short, because some of them are to run out."""
NEVER = TimeTick(0)
GROUP_OF_10_S = GroupView(GroupSnapshot(GroupKey("v", "g"), 10_000, NEVER, (), NEVER, NEVER))


@pytest.mark.parametrize(
    ("waiting", "leases", "oldest_s", "ran_out", "state"),
    [
        (True, 0, 0.0, 0, WAITING),
        (True, 2, 9.9, 3, WAITING),
        (False, 1, 1.0, 0, WORKING),
        (False, 1, 9.0, 0, SLOW),
        (False, 1, 1.0, 1, SLOW),
        (False, 0, 0.0, 1, PAUSED),
    ],
)
def test_a_state_is_what_a_person_would_call_it(
    waiting: bool, leases: int, oldest_s: float, ran_out: int, state: str
) -> None:
    member = MemberView("ann", 1, waiting, leases, oldest_s, ran_out=ran_out)
    assert member_state(GROUP_OF_10_S, member) == state
    assert worst_state([state, WAITING]) == state


async def states(log: Client) -> dict[str, str]:
    (view,) = await log.group(GROUP).describe(COLLECTION)
    # The worker is named after its process.
    return {
        it.name if it.name == "slow" else "worker": member_state(view, it) for it in view.members
    }


async def until_shown(log: Client, **wanted: str) -> None:
    """Until these members are in these states, and nobody else is there."""

    async def is_so() -> bool:
        return await states(log) == wanted

    await until(is_so)


async def taken_by_slow(log: Client, slow: GroupMember) -> LeasedBatch:
    """A batch that is not settled: it comes again, is not taken, and the member is shown as slow.

    Until that lease ends, too: on a busy machine it may end before anybody looks.
    """
    with anyio.fail_after(GUARD_S):
        while True:
            batch, found = await take(slow), {"slow": WAITING}
            while found == {"slow": WAITING}:
                found = await states(log)
            if found == {"slow": SLOW}:
                return batch
            assert found == {"slow": PAUSED}


def started(server: str, notes: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, str(SCRIPT), server, str(notes), str(LEASE_S)])


async def test_a_paused_a_slow_and_a_dead_member_are_told_apart(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        await log.collections.create(COLLECTION, shards=1)
        group = log.group(GROUP)
        joining = group.join(COLLECTION, member="slow", lease_s=LEASE_S, prefetch_bytes=1)
        async with joining as slow:
            await until_shown(log, slow=WAITING)
            await log.append(COLLECTION, b"1")
            await take(slow)
            # Its lease runs out, and so does the next one.
            await until_shown(log, slow=PAUSED)
            again = await taken_by_slow(log, slow)
            await again.over()
            worker = started(broker.address, tmp_path / "notes")
            try:
                # It gets what the slow one has lost, and then it waits.
                await until_shown(log, slow=PAUSED, worker=WAITING)
                worker.send_signal(signal.SIGSTOP)
                await log.append(COLLECTION, b"2")
                await until_shown(log, slow=PAUSED, worker=PAUSED)
                worker.kill()
                await until_shown(log, slow=PAUSED)
            finally:
                worker.kill()
                worker.wait()
