"""Ten thousand changes of a few names at once: some wait, the rest are refused at once."""

from collections import Counter
from pathlib import Path

import anyio

from broker.addresses import split_address
from broker.client import connect
from broker.coordinator.broadcast.pending_broadcasts import BroadcasterLimits
from broker.model.failure import Refused, StreamingCode
from broker.remote.calls import Calls
from schemas.generated.tidemark import v1
from tests.broker_process import BrokerProcess

CALLS = 10_000
CONNECTIONS = 20
"""HTTP/2 counts the streams of a connection with each new one."""
NAMES = 16
"""Changes of one wait for each other."""
WAIT_MAX = BroadcasterLimits().planned_max
GUARD_S = 240.0


async def test_of_ten_thousand_changes_at_once_most_are_refused_and_none_hangs(
    tmp_path: Path,
) -> None:
    """A caller without retries, so that each refusal is seen."""
    with BrokerProcess(tmp_path / "data", pchannels="2") as broker:
        clients = [Calls(*split_address(broker.address), {}) for _ in range(CONNECTIONS)]
        done, refused = list[float](), list[tuple[float, Refused]]()

        async def create(number: int) -> None:
            request = v1.CreatePartitionRequest(
                base=v1.MsgBase(request_id=f"{number}"),
                collection_name=f"ports{number % NAMES}",
                partition_name=f"p{number}",
            )
            path = "/tidemark.v1.Master/CreatePartition"
            try:
                calls = clients[number % CONNECTIONS]
                await calls.call(path, request, v1.DdlResponse, deadline_s=GUARD_S)
            except Refused as error:
                refused.append((anyio.current_time(), error))
            else:
                done.append(anyio.current_time())

        async with connect(broker.address) as log:
            for name in range(NAMES):
                await log.master.create_collection(f"ports{name}")
            with anyio.fail_after(GUARD_S):
                async with anyio.create_task_group() as tasks:
                    for number in range(CALLS):
                        tasks.start_soon(create, number)
            for calls in clients:
                calls.close()
            assert len(done) + len(refused) == CALLS
            # Some run, so many wait, and some get in when a place is free while others still come.
            assert len(done) > WAIT_MAX
            assert len(refused) > CALLS // 4
            codes = Counter(it.refusal.code for _, it in refused)
            assert codes.keys() == {StreamingCode.INNER}, codes
            causes = Counter(it.refusal.cause for _, it in refused)
            full = f"{WAIT_MAX} changes of definitions wait; try again later"
            # On a slow machine the flood may keep a plan from its deadline.
            assert causes.keys() <= {full, "nothing has changed: no plan within 10 s; try again"}
            assert causes[full] > CALLS // 4
            # At once: those that wait have their turn when the last has been refused.
            # A plan that misses its deadline is refused later than that.
            last_s = max(at_s for at_s, it in refused if it.refusal.cause == full)
            assert sum(at_s > last_s for at_s in done) > WAIT_MAX // 2
            # Whoever comes back gets in, and the table has what was answered and nothing else.
            await log.master.create_partition("ports0", "last")
            found = [await log.master.describe_collection(f"ports{it}") for it in range(NAMES)]
            assert sum(it.partitions for it in found) == NAMES + len(done) + 1
        assert broker.terminate() == 0
