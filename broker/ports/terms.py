"""Terms of pchannels, agreed on durably before anybody acts on them."""

from typing import Protocol

from broker.model.channel import PChannel
from broker.model.ids import PChannelName, Term


class Terms(Protocol):
    """Compare-and-set over the metadata store; safe to call from several processes at once.

    Both calls raise Refused(IGNORED_OPERATION) when the channel has been given to somebody newer,
    and Refused(INNER) when the store cannot say: try again later.
    """

    async def acquire(self, channel: PChannelName) -> Term:
        """The next term of the channel, durably recorded as the newest before it is returned.

        For an owner that restarts its channel; refused when another node owns it by now.
        """
        ...

    async def claim(self, channel: PChannel) -> None:
        """Record its term as the newest, and its access; refused if a higher one was there.

        Claiming the term that is already the newest succeeds (it was given to this owner).
        """
        ...
