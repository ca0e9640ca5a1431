"""Connections to the coordinators of one cluster, of which one leads; follows the leader.

A call that was certainly not carried out is made again: nothing listened, or the coordinator does
not lead; so is one that changes nothing. Every other failure is the caller's, as with one server.

Of one address alone nothing is known but that: it may be a coordinator that stands by and names the
leader, or the only server there is, which gets the time that a call has.
"""

import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio

from broker.client.errors import (
    BadAddress,
    ConnectionLost,
    DeadlineExceeded,
    NotLeader,
    NotTrusted,
    OperationIgnored,
    ProtocolBroken,
    ServerStopping,
    TidemarkError,
)
from broker.client.lifetime import ClientLifetime
from broker.client.net.backoff import Backoff
from broker.client.net.connection import DIAL_S_MAX, NO_METADATA, Connection, Conversation
from broker.transport import WireMessage

SILENT_S = 2.0
READS = ("List", "Get", "Has", "Describe", "Show", "Health", "Channels", "Actors", "Traffic", "Cut")
"""How methods begin that change nothing: they are made again, whatever became of the first one."""
RETRY_FIRST_MS = 20
RETRY_MS_MAX = 250
"""A change of leader takes less than a second."""

STRANGERS = (BadAddress, NotTrusted, OperationIgnored, ProtocolBroken)
"""What is said by an address that is none, or that another program or cluster has by now."""

W = TypeVar("W", bound=WireMessage)


class LeaderConnection(Connection):
    """A `Connection` to whichever coordinator leads. `connect` makes the one to an address.

    `address`: all addresses as they were given.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        connect: Callable[[str], Connection],
        lifetime: ClientLifetime,
        spread: random.Random,
    ) -> None:
        # Not the constructor of the superclass: the connections are those of `connect`.
        self.address = ",".join(addresses)
        self.lifetime = lifetime
        self._addresses = tuple(addresses)
        self._connect = connect
        self._spread = spread
        self._alone = len(addresses) == 1
        self._target = self._addresses[0]
        self._unreached: set[str] = set()
        self._told_failed = False
        """Whether the last failure was of a leader that another one named."""
        for address in addresses:
            self._at(address)

    async def call(
        self, path: str, request: WireMessage, response_type: type[W], *, deadline_s: float
    ) -> W:
        """See Connection; waits up to the deadline while a coordinator answers, but none leads."""
        until_s, backoff = anyio.current_time() + deadline_s, Backoff(RETRY_FIRST_MS, RETRY_MS_MAX)
        while True:
            target, began_s = self._target, anyio.current_time()
            try:
                answer = await self._at(target).call(
                    path, request, response_type, deadline_s=max(until_s - began_s, 0.001)
                )
            except anyio.get_cancelled_exc_class():
                # The caller gave up, whose time was shorter than the deadline of this call.
                if anyio.current_time() - began_s >= SILENT_S:
                    self._failed(target, DeadlineExceeded(f"{target} did not answer in time"))
                raise
            except TidemarkError as error:
                self._failed(target, error)
                backoff = backoff.failed()
                pause_s = backoff.delay_s(self._spread.random())
                lost = isinstance(error, ConnectionLost) and not error.unsent
                elsewhere = not self._alone or target not in self._addresses
                again = self._may_repeat(error) or (lost and elsewhere and _reads(path))
                if not again or anyio.current_time() + pause_s >= until_s:
                    raise
            else:
                self._unreached.clear()
                return answer
            await anyio.sleep(pause_s)

    @asynccontextmanager
    async def converse(
        self, path: str, metadata: Mapping[str, str] = NO_METADATA, *, deadline_s: float
    ) -> AsyncIterator[Conversation]:
        """See Connection; after a failure the next stream is opened where the leader may be."""
        target = self._target
        try:
            async with self._at(target).converse(path, metadata, deadline_s=deadline_s) as stream:
                yield stream
        except TidemarkError as error:
            self._failed(target, error)
            raise

    def tries_on(self, error: TidemarkError) -> bool:
        """See Connection: none led, or this one did not answer, or died before it did."""
        others = self._told_failed or not self._alone
        silent = isinstance(error, DeadlineExceeded) and others
        lost = isinstance(error, ConnectionLost) and others and self._some_may_answer()
        return silent or lost or self._may_repeat(error)

    def _may_repeat(self, error: TidemarkError) -> bool:
        """Whether the call was certainly not carried out, and another one may reach a leader."""
        if isinstance(error, NotLeader):
            return True
        if isinstance(error, ConnectionLost) and error.unsent:
            # As with one server, a call fails at once when nothing listens anywhere.
            return self._some_may_answer()
        return False

    def _some_may_answer(self) -> bool:
        return len(self._unreached) < len(self._addresses)

    def first_answer_s(self, longest_s: float) -> float:
        """See Connection; shorter where another server may answer."""
        return min(longest_s, SILENT_S) if self.others_may_answer() else longest_s

    def others_may_answer(self) -> bool:
        """See Connection: several are known, or this one was named by the only one that is."""
        return not (self._alone and self._target in self._addresses)

    def close(self) -> None:
        """Do nothing: who made the connections closes them."""

    def _at(self, address: str) -> Connection:
        connection = self._connect(address)
        # The only server is dialled as long as the call may last.
        if not self._alone or address not in self._addresses:
            connection.limit_dialling(DIAL_S_MAX)
        return connection

    def _failed(self, target: str, error: TidemarkError) -> None:
        """Choose where the next call goes, unless another call has chosen already."""
        leader = error.leader if isinstance(error, NotLeader) else ""
        self._told_failed = target not in self._addresses
        if isinstance(error, ConnectionLost):
            if target in self._addresses:
                self._unreached.add(target)
        elif isinstance(error, DeadlineExceeded):
            pass  # it may be paused, or its host away: another one may lead by now
        elif isinstance(error, ServerStopping):
            self._unreached.clear()
        elif self._told_failed and isinstance(error, STRANGERS):
            pass  # the leader went, and its address is another one's: who named it knows the next
        else:
            return  # its answer, which would be the same anywhere
        if self._target != target:
            return
        if leader not in ("", target):
            self._target = leader
            return
        at = self._addresses.index(target) + 1 if target in self._addresses else 0
        self._target = self._addresses[at % len(self._addresses)]


def _reads(path: str) -> bool:
    return path.rpartition("/")[2].startswith(READS)


def split_servers(server: str) -> list[str]:
    """Each address of HOST:PORT,HOST:PORT; what is wrong with one is found when it is used."""
    return [it.strip() for it in server.split(",")]
