"""Calls to the coordinator that leads, at one of several addresses.

A call goes on to the next address when nothing answers, and to the leader that a coordinator names
when it stands by. The calls after it begin where the last one was answered.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import anyio

from broker.addresses import split_address
from broker.model.failure import DoesNotLead
from broker.ports.nodes import Unreachable
from broker.remote.calls import Calls
from broker.transport import WireMessage

W = TypeVar("W", bound=WireMessage)

Connect = Callable[[str, int], Calls]
Known = Callable[[], Sequence[str]]


class LeaderCalls:
    """A `Caller`. `known`: HOST:PORT of each coordinator that is known at the moment."""

    def __init__(self, known: Known, connect: Connect) -> None:
        self.known = known
        self._connect = connect
        self._target = ""
        self._open: dict[str, Calls] = {}
        self._closed = False

    async def call(
        self, path: str, request: WireMessage, answer: type[W], *, deadline_s: float
    ) -> W:
        """See Caller. Raises Unreachable when none of the addresses leads now."""
        until_s = anyio.current_time() + deadline_s
        tried: set[str] = set()
        absent = True
        while True:
            target = self._chosen()
            tried.add(target)
            left_s = max(until_s - anyio.current_time(), 0.001)
            # A host that is away does not answer at all: the others need their share of the time.
            untried = 1 + len(set(self.known()) - tried)
            failure: Unreachable
            try:
                return await self._calls(target).call(
                    path, request, answer, deadline_s=left_s / untried
                )
            except DoesNotLead as error:
                failure, following = Unreachable(error.refusal.cause), error.leader
            except Unreachable as error:
                failure, following = error, ""
            self._follow(target, following)
            absent = absent and failure.absent
            if self._target in {"", *tried} or anyio.current_time() >= until_s:
                failure.absent = absent  # of all of them: one that stands by may lead soon
                raise failure

    def close(self) -> None:
        """Close all connections; open calls, and later ones, raise Unreachable."""
        self._closed = True
        for calls in self._open.values():
            calls.close()

    def _chosen(self) -> str:
        if not self._target:
            self._target = next(iter(self.known()), "")
        if not self._target:
            raise Unreachable("no coordinator is known", absent=True)
        return self._target

    def _calls(self, target: str) -> Calls:
        if self._closed:
            raise Unreachable(f"the connection to {target} is closed")
        found = self._open.get(target)
        if found is None:
            found = self._open[target] = self._connect(*split_address(target))
        return found

    def _follow(self, failed: str, leader: str) -> None:
        """Choose where the next call goes, unless another call has chosen already."""
        if self._target != failed:
            return
        known = tuple(self.known())
        if leader and leader != failed and _is_address(leader):
            self._target = leader
        else:
            at = known.index(failed) + 1 if failed in known else 0
            self._target = known[at % len(known)] if known else ""
        # Leaders may be at addresses that were not known, at another one each time.
        for address in [*self._open]:
            if address not in (*known, self._target):
                self._open.pop(address).close()


def _is_address(text: str) -> bool:
    try:
        split_address(text)
    except ValueError:
        return False
    return True
