"""Refuses calls to, and of, a coordinator that does not lead any more.

Calls between a coordinator and its nodes name the term of the coordinator, each way: a node obeys
no coordinator of a lower term than one it has met, and tells a coordinator of the highest it knows.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from broker.edge.rpc.request_metadata import Metadata
from broker.model.failure import DoesNotLead, Refused, StreamingCode, invalid_argument

COORDINATOR_TERM: Final = "coordinator-term"
"""The header, a decimal number."""

Gate = Callable[[Metadata, bool], Awaitable[None]]
"""Passed by each call on its way in; raises Refused to keep it out. True: the server is stopping,
so that the call will be refused in any case."""

_LOG_SAYS: Final = (
    "The lease of the leader cannot be renewed in the metadata: the log of this coordinator, and"
    " /readyz of its HTTP port, say why"
)


class AnswerTime(Protocol):
    """The lease of the leader in this process; see `broker/coordinator/leases/leader_lease.py`."""

    @property
    def term(self) -> int: ...

    @property
    def left_s(self) -> float: ...

    @property
    def failure(self) -> str: ...


def leader_gate(lease: AnswerTime, *, tells_why: bool = True) -> Gate:
    """Lets calls in while this coordinator certainly leads. Raises DoesNotLead.

    `tells_why`: False where only some may know it. The gate comes before it is known who calls, and
    the cause names the metadata store and its user.
    """

    async def check(metadata: Metadata, stopping: bool) -> None:
        if stopping:  # with this answer, because the caller then knows that nothing was done
            raise DoesNotLead("this coordinator is stopping; ask the others")
        seen = _term_of(metadata)
        if lease.left_s <= 0 or seen > lease.term:
            why = lease.failure if tells_why else lease.failure and _LOG_SAYS
            raise DoesNotLead(
                f"this coordinator, of term {lease.term}, does not lead at the moment; ask the"
                f" others, or try again{why and f'. {why}'}"
            )

    return check


def standby_gate(leader: Callable[[], str]) -> Gate:
    """Lets nothing in, and names the leader. Raises DoesNotLead."""

    async def check(_: Metadata, _stopping: bool) -> None:
        raise not_leader(leader())

    return check


def not_leader(leader: str) -> DoesNotLead:
    """The refusal of a coordinator that stands by."""
    told = f"the leader is {leader}; call it" if leader else "no leader is known yet; try again"
    return DoesNotLead(f"this coordinator stands by, {told}", leader)


class TermFence:
    """For a node. `newest`: the highest term of a coordinator that it has met; 0 for none.

    `stored` reads the term of the leader from the metadata store, and may raise.
    """

    def __init__(self, stored: Callable[[], Awaitable[int]]) -> None:
        self.newest = 0
        self._stored = stored

    async def check(self, metadata: Metadata, _: bool) -> None:
        """The gate of a node. Raises Refused for a coordinator that a newer one has replaced."""
        term = _term_of(metadata)
        if not term:  # a client, or a coordinator of an earlier release
            return
        if term > self.newest:
            # Asked for each new term only. A wrong caller must not lock out the coordinator.
            stored = await self._stored()
            if term > stored:
                raise invalid_argument(
                    f"the call is of a coordinator of term {term}; the newest has term {stored}"
                )
            self.newest = max(self.newest, stored)
        if term < self.newest:
            raise Refused(
                StreamingCode.IGNORED_OPERATION,
                f"the call is of the coordinator of term {term}; the one of term {self.newest} has"
                " replaced it",
            )

    def metadata(self) -> dict[str, str]:
        """What a node adds to its calls to the coordinator."""
        return {COORDINATOR_TERM: str(self.newest)} if self.newest else {}


def _term_of(metadata: Metadata) -> int:
    value = metadata.get(COORDINATOR_TERM, "")
    text = value if isinstance(value, str) else value.decode("latin-1")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise invalid_argument(f"header {COORDINATOR_TERM!r} is not a term: {text[:40]!r}")
    return int(text)
