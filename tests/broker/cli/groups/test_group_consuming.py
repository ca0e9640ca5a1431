"""A member that writes what it gets goes on when an acknowledgement fails, and says so once."""

from collections.abc import Sequence

import anyio
import pytest

from broker.cli.groups.group_consuming import take_as_member
from broker.client.batch import MessageBatch
from broker.client.errors import LeaseLost, OutcomeUnknown, TidemarkError
from broker.client.groups.leased_batch import LeasedBatch, LeaseTerms
from broker.client.groups.member import GroupMember
from broker.client.groups.settle_request import SettleRequest
from broker.client.read.deliveries import Deliveries, Source
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick
from tests.broker.cli.lines.test_message_lines import plain

VCHANNEL = "by-dev-rootcoord-dml_0_7v0"


class Leases:
    """Delivers one message after the other; each acknowledgement ends as it is told."""

    channels = (VCHANNEL,)

    def __init__(self, ends: Sequence[TidemarkError | None]) -> None:
        self._ends = list(ends)

    async def run(self, deliveries: Deliveries[LeasedBatch]) -> None:
        for number, end in enumerate(self._ends):
            await deliveries.put([self._leased(number, end)])
        await anyio.sleep_forever()

    def _leased(self, number: int, end: TidemarkError | None) -> LeasedBatch:
        async def settle(request: SettleRequest, deadline_s: float) -> None:
            if end is not None:
                raise end

        span = TickSpan(TimeTick(number), TimeTick(number + 1))
        lease = LeaseTerms(number, span, 1, 30.0, anyio.current_time() + 30.0)
        return LeasedBatch([plain()], VCHANNEL, lease, settle)


class Written:
    """Ends with the last message of so many batches."""

    ended_at: int | None = None

    def __init__(self, limit: int) -> None:
        self.batches = 0
        self._limit = limit

    async def take(self, batch: MessageBatch) -> bool:
        self.batches += 1
        if self.batches < self._limit:
            return False
        self.ended_at = len(batch) - 1
        return True


async def test_it_goes_on_after_a_lost_lease_or_answer_and_warns_once_of_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ends = [None, LeaseLost("over"), OutcomeUnknown("the stream ended"), LeaseLost("over")]
    written = Written(len(ends) + 1)

    async def plan() -> Sequence[Source[LeasedBatch]]:
        return [Leases([*ends, OutcomeUnknown("again")])]

    async with anyio.create_task_group() as tasks:
        await take_as_member(GroupMember(plan, tasks, set()), written)
    assert written.batches == 5
    late, unknown = capsys.readouterr().err.splitlines()
    assert "too late" in late
    assert unknown.endswith("was lost: the stream ended")
