"""A member of etcd whose calls get lost when it is told to, in front of a real one."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from broker.etcd.etcd_errors import Unanswered
from broker.etcd.etcd_store import EtcdMetaStore
from broker.etcd.members import Member
from broker.transport.codec import WireMessage

A = TypeVar("A", bound=WireMessage)
Late = Callable[[], Awaitable[object]]

LATE_S = 30
"""Against hanging only."""


class LossyMember(Member):
    """`fails` is asked at each transaction: "" lets it through.

    "before": it never reaches etcd. "after": it does, and the answer is lost. "late": it reaches
    etcd when the test awaits it, from `late`. While `away` is true no call reaches etcd at all.
    `takes_s` says how long a call of this path takes; longer than its deadline is no answer.
    """

    def __init__(self, member: Member, fails: Callable[[], str]) -> None:
        self.address = member.address
        self._member = member
        self.fails = fails
        self.late: list[Late] = []
        self.away = False
        self.takes_s: Callable[[str], float] = lambda _: 0.0
        self.answered: Callable[[str], Awaitable[None]] = _nothing
        """Awaited with the path of a call, before its answer is passed on."""

    async def ask(
        self, path: str, request: WireMessage, answer: type[A], token: str, deadline_s: float
    ) -> A:
        if self.away:
            await anyio.sleep(deadline_s)
            raise Unanswered("etcd is away")
        if takes_s := self.takes_s(path):
            await anyio.sleep(min(takes_s, deadline_s))
            if takes_s > deadline_s:
                raise Unanswered("etcd is slow")
        how = self.fails() if path.endswith("/Txn") else ""

        def deliver(within_s: float) -> Awaitable[A]:
            return self._member.ask(path, request, answer, token, within_s)

        if how == "late":
            self.late.append(lambda: deliver(LATE_S))
        if how in ("before", "late"):
            raise Unanswered("the call is lost")
        found = await deliver(deadline_s)
        if how == "after":
            raise Unanswered("the answer is lost")
        await self.answered(path)
        return found

    def close(self) -> None:
        self._member.close()


async def _nothing(_: str) -> None:
    pass


def lossy(store: EtcdMetaStore, fails: Callable[[], str] = lambda: "") -> LossyMember:
    """From now on the calls of the store to its first member get lost so."""
    member = LossyMember(store._members._members[0], fails)
    store._members._members[0] = member
    return member
