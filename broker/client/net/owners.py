"""Asks about channels where they are served: each question at the right node, again after a move.

Owns the search for the owner, within the deadline of the question. Never opens a stream.
Next: broker/client/net/assignments.py
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import anyio

from broker.client.errors import (
    ChannelNotExist,
    ConnectionLost,
    DeadlineExceeded,
    ServerRefusal,
    TidemarkError,
)
from broker.client.net.assignment_table import Location
from broker.client.net.backoff import Backoff
from broker.client.net.connection import Connection
from broker.client.net.network import Network
from broker.client.net.retry_rules import is_wrong_node
from broker.core.naming import pchannel_of
from broker.model.failure import StreamingCode
from broker.model.ids import PChannelName

ABSENT_S = 2.0
"""A channel that nobody serves for so long is better told; one that only moves is back by then."""

T = TypeVar("T")

Ask = Callable[[Connection, Sequence[str]], Awaitable[T]]
"""One question to one server about some of the channels."""


class Owners:
    """The nodes that serve channels now."""

    def __init__(self, network: Network, *, deadline_s: float) -> None:
        self._network = network
        self._deadline_s = deadline_s

    async def ask(self, channels: Sequence[str], ask: Ask[T]) -> list[tuple[Sequence[str], T]]:
        """Every channel asked about once, those of one node together; the order is any.

        A node that does not serve one of them any more is asked no more: who does is found out.
        Raises ChannelNotExist when nobody serves one, else what the last attempt said.
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
                        answers.append((names, await ask(self._network.connection(group), names)))
                    except TidemarkError as error:
                        if not _may_have_moved(error):
                            raise
                        failure = error
                        left += names
                        await self._moved(location, error, backoff)
                backoff, open_channels = backoff.failed(), left
            return answers
        raise failure

    async def _owners(
        self, channels: Sequence[str]
    ) -> Mapping[str, Mapping[PChannelName, Location]]:
        """By the address of the node."""
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
        """Say so, where that helps, and wait a little for news of any one of them."""
        for location in locations.values():
            if isinstance(error, ServerRefusal) and is_wrong_node(error.code):
                self._network.assignments.report(location.channel, error)
        delay_s = backoff.failed().delay_s(self._network.spread.random())
        one = next(iter(locations.values()))
        await self._network.assignments.wait_change(one.channel, delay_s)


def _may_have_moved(error: TidemarkError) -> bool:
    if isinstance(error, ServerRefusal):
        return is_wrong_node(error.code) or error.code is StreamingCode.ON_SHUTDOWN
    return isinstance(error, ConnectionLost)
