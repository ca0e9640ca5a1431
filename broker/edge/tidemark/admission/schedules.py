"""Decide which delayed messages an Append stream takes, and open the schedule of a vchannel.

The schedule is there before its first message: so none is stored that nothing would release.
"""

from typing import Final

from actors import ActorError
from broker.core.groups.due_times import due_tick, times_refusal
from broker.core.groups.schedule import SCHEDULED_MAX
from broker.core.groups.schedule_name import SCHEDULE
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import GroupKey
from broker.model.groups.delivery_times import DeliveryTimes
from broker.node.directory_messages import Located
from broker.node.group_messages import OpenSchedule

OPEN_S: Final = 15.0


class NoSchedule(Refusal):
    """A delayed message of a vchannel without a schedule: open one, then it can be taken."""


class Schedules:
    """Of one pchannel, for one stream."""

    def __init__(self, located: Located) -> None:
        self._located = located

    def refusal(self, vchannel: str, messages: int, times: DeliveryTimes) -> Refusal | None:
        """Why messages of the vchannel cannot have these times; None if they can."""
        closed = self._located.view.offsets().closed_tick
        refusal = times_refusal(times, closed)
        if refusal is not None or due_tick(times.at_ms) <= closed:
            return refusal
        groups = self._located.groups
        if GroupKey(vchannel, SCHEDULE) not in groups.table.groups:
            return NoSchedule(StreamingCode.INNER, f"{vchannel} has no schedule yet; retry")
        waiting = groups.scheduled.get(vchannel, 0)
        if waiting + messages > SCHEDULED_MAX:
            cause = (
                f"{waiting} delayed messages of {vchannel} wait already, the limit is"
                f" {SCHEDULED_MAX}; nothing was stored, append again when some are due"
            )
            return Refusal(StreamingCode.RESOURCE_ACQUIRED, cause)
        return None

    async def open(self, vchannel: str) -> Refusal | None:
        """Open the schedule of the vchannel; None once it is durable."""
        keeper = self._located.groups.keeper
        if keeper is None:
            return _retry("the groups of the channel are starting")
        try:
            return await keeper.ask(OpenSchedule(vchannel), deadline_s=OPEN_S)
        except ActorError as error:
            return _retry(str(error))


def _retry(what: str) -> Refusal:
    return Refusal(StreamingCode.INNER, f"{what}; nothing was stored, retry")
