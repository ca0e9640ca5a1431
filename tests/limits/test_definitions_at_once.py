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
        done, refused = 0, Counter[tuple[StreamingCode | None, str]]()

        async def create(number: int) -> None:
            nonlocal done
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
                refused[error.refusal.code, error.refusal.cause] += 1
            else:
                done += 1

        async with connect(broker.address) as log:
            for name in range(NAMES):
                await log.master.create_collection(f"ports{name}")
            with anyio.fail_after(GUARD_S):
                async with anyio.create_task_group() as tasks:
                    for number in range(CALLS):
                        tasks.start_soon(create, number)
            for calls in clients:
                calls.close()
            assert done + refused.total() == CALLS
            full = f"{WAIT_MAX} changes of definitions wait; try again later"
            # On a slow machine the flood may keep plans from their deadline.
            late = "nothing has changed: no plan within 10 s; try again"
            known = {(StreamingCode.INNER, full), (StreamingCode.INNER, late)}
            assert refused.keys() <= known, refused
            # Those who wait when nobody comes any more have a place, and no place is given twice.
            assert refused[StreamingCode.INNER, full] > 0
            assert done + refused[StreamingCode.INNER, late] >= WAIT_MAX
            # Whoever comes back gets in, and the table has what was answered and nothing else.
            await log.master.create_partition("ports0", "last")
            found = [await log.master.describe_collection(f"ports{it}") for it in range(NAMES)]
            assert sum(it.partitions for it in found) == NAMES + done + 1
        assert broker.terminate() == 0
