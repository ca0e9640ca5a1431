"""Sends calls about channels to the nodes that serve them, again after a channel has moved."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import anyio

from broker.client.errors import (
    ChannelNotExist,
    ConnectionLost,
    DeadlineExceeded,
    NodeUnreachable,
    ServerRefusal,
    TidemarkError,
)
from broker.client.net.assignment_table import Location
from broker.client.net.backoff import Backoff
from broker.client.net.connection import Connection
from broker.client.net.network import Network
from broker.client.net.retry_rules import is_wrong_node
from broker.client.net.until_first import until_first
from broker.core.naming import pchannel_of
from broker.model.failure import StreamingCode
from broker.model.ids import PChannelName

ABSENT_S = 2.0
"""A channel that nobody serves for so long counts as missing; a move takes less."""

MOVED_S = 2.0
"""A node may answer for so long after another one took its channel over."""

T = TypeVar("T")

Ask = Callable[[Connection, Sequence[str]], Awaitable[T]]
"""One call to one server about some of the channels."""


class Owners:
    """The nodes that serve channels now; one `ask` takes at most `deadline_s`."""

    def __init__(self, network: Network, *, deadline_s: float) -> None:
        self._network = network
        self._deadline_s = deadline_s

    async def ask(
        self, channels: Sequence[str], ask: Ask[T], *, repeatable: bool = False
    ) -> list[tuple[Sequence[str], T]]:
        """Ask about every channel, one call for all channels of a node; answers in any order.

        After a refusal that means the channel has moved, its new owner is looked up and asked.
        `repeatable`: to carry out the call twice does no harm, so it is also repeated where the
        server could not carry it out now, or does not know whether it did. Raises ChannelNotExist
        when nobody serves a channel, else the error of the last attempt.
        """
        answers: list[tuple[Sequence[str], T]] = []
        backoff, open_channels = Backoff(), list(channels)
        failure: TidemarkError = DeadlineExceeded(f"no answer within {self._deadline_s} s")
        with anyio.move_on_after(self._deadline_s):
            while open_channels:
                left: list[str] = []
                for group, location in (await self._owners(open_channels)).items():
                    names = [it for it in open_channels if pchannel_of(it) in location]
                    try:
                        answers.append((names, await self._answer(group, location, ask, names)))
                    except TidemarkError as error:
                        if not (_may_have_moved(error) or (repeatable and _may_pass(error))):
                            raise
                        failure = error
                        # Only these are asked about again: the answers of other nodes stay valid.
                        left += names
                        await self._moved(location, error, backoff)
                backoff, open_channels = backoff.failed(), left
            return answers
        raise failure

    async def _answer(
        self,
        address: str,
        locations: Mapping[PChannelName, Location],
        ask: Ask[T],
        names: Sequence[str],
    ) -> T:
        """The answer of the node at `address`; ConnectionLost if its channels have moved away."""
        answers: list[T] = []

        async def asking() -> None:
            answers.append(await ask(self._network.connection(address), names))

        async def moved(location: Location) -> None:
            # A paused node says nothing, and does not end the connection either.
            await self._network.assignments.until_moved(location.channel, lambda: True)
            await anyio.sleep(MOVED_S)
            cause = f"{address} does not answer, and {location.channel.name} has moved"
            raise ConnectionLost(cause)

        await until_first(asking, *[partial(moved, it) for it in locations.values()])
        return answers[0]

    async def _owners(
        self, channels: Sequence[str]
    ) -> Mapping[str, Mapping[PChannelName, Location]]:
        """The locations of the channels, by the address of the node."""
        found: dict[str, dict[PChannelName, Location]] = defaultdict(dict)
        for name in dict.fromkeys(map(pchannel_of, channels)):
            try:
                location = await self._network.assignments.locate(name, deadline_s=ABSENT_S)
            except DeadlineExceeded as error:
                raise ChannelNotExist(f"no node serves {name}") from error
            found[location.address][name] = location
        return found

    async def _moved(
        self, locations: Mapping[PChannelName, Location], error: TidemarkError, backoff: Backoff
    ) -> None:
        """Report a wrong assignment, and wait for a newer one of any of the channels."""
        for location in locations.values():
            if isinstance(error, ServerRefusal) and is_wrong_node(error.code):
                self._network.assignments.report(location.channel, error)
        delay_s = backoff.failed().delay_s(self._network.spread.random())
        # One is enough to wait for: all are looked up again after the delay at the latest.
        one = next(iter(locations.values()))
        await self._network.assignments.wait_change(one.channel, delay_s)


def _may_have_moved(error: TidemarkError) -> bool:
    if isinstance(error, ServerRefusal):
        return is_wrong_node(error.code) or error.code is StreamingCode.ON_SHUTDOWN
    return isinstance(error, ConnectionLost) and not isinstance(error, NodeUnreachable)


def _may_pass(error: TidemarkError) -> bool:
    """What a server says whose actors restart or stop, such as before it says ON_SHUTDOWN."""
    codes = (StreamingCode.INNER, StreamingCode.UNKNOWN)
    return isinstance(error, ServerRefusal) and error.code in codes
