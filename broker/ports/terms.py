"""Terms of pchannels, agreed on durably before anybody acts on them."""

from typing import Protocol

from broker.model.channel import PChannel
from broker.model.ids import PChannelName, Term


class Terms(Protocol):
    """Compare-and-set over the metadata store; safe to call from several processes at once.

    Both calls raise Refused(IGNORED_OPERATION) if the channel has a newer owner, and Refused(INNER)
    if the store does not answer: try again later.
    """

    async def acquire(self, channel: PChannelName, after: Term) -> Term:
        """The next term of the channel, durably recorded as the newest before it is returned.

        For an owner that restarts its channel, which had the term `after`. Refused if a newer one
        is recorded, also for the same node: that one was assigned since, perhaps behind another
        owner that has not closed the channel yet, and is opened when the coordinator says so.
        """
        ...

    async def claim(self, channel: PChannel) -> None:
        """Record its term as the newest, and its access mode; refused if a higher term is recorded.

        Claiming the newest term again succeeds: it was assigned to this owner.
        """
        ...
