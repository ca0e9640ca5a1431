"""`tidemark consume --group`: acknowledges what was written."""

import sys
from collections.abc import Sequence
from typing import Protocol

from broker.client import MessageBatch, Received
from broker.client.errors import LeaseLost, OutcomeUnknown
from broker.client.groups.leased_batch import LeasedBatch
from broker.client.groups.member import GroupMember

LOST = (
    "some messages were written too late: others may get them again; write faster, or create the"
    " group with a longer --lease"
)
UNKNOWN = "some messages were written, but the answer to their acknowledgement was lost: {error}"


class Writes(Protocol):
    """Where batches are written. `ended_at`: which message of the last one reached the limit."""

    ended_at: int | None

    async def take(self, batch: MessageBatch) -> bool:
        """Write the batch; whether the limit is reached."""
        ...


async def take_as_member(member: GroupMember, output: Writes) -> None:
    """Write messages until the limit; what lies behind it is left to other members."""
    warned: set[type[Exception]] = set()
    async with member:
        async for leased in member:
            done = await _written(leased, output)
            try:
                if done is None:
                    await leased.ack()
                elif done:
                    await leased.ack(done)
            except (LeaseLost, OutcomeUnknown) as error:
                # Such as when the vchannel moves: the member joins again by itself.
                if type(error) not in warned:
                    why = LOST if isinstance(error, LeaseLost) else UNKNOWN.format(error=error)
                    sys.stderr.write(f"tidemark: {why}\n")
                warned.add(type(error))
            if done is not None:
                return


async def _written(leased: LeasedBatch, output: Writes) -> Sequence[Received] | None:
    """Write the messages; None for all, else those up to the limit that can be acknowledged."""
    for at, batch in enumerate(leased.batches):
        if await output.take(batch):
            assert output.ended_at is not None
            before = [it for each in leased.batches[:at] for it in each.messages]
            done = [*before, *batch.messages[: output.ended_at + 1]]
            # A transaction is acknowledged whole: one that was written in part comes again.
            left = {it.tick for it in leased.messages[len(done) :]}
            return [it for it in done if it.tick not in left]
    return None
