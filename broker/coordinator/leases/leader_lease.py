"""The lease of a leader that others stand by for: it answers nobody after they may have taken over.

The store keeps a former leader from writing, but a coordinator also answers from memory: ticks,
and leases of nodes. So it answers only for half a lease after it began its newest renewal. Those
that stand by wait for a whole lease after they have seen that renewal, which is later. Each
measures a duration on its own monotonic clock; no clocks are compared.
"""

import math
from collections.abc import Callable
from typing import Final

import anyio
import structlog

from broker.coordinator.leases.leader_records import renewal_puts
from broker.coordinator.leases.leadership import Deposed, LedStore
from broker.ports.meta import MetaError, WriteUnconfirmed

ANSWER_SHARE: Final = 0.5
"""The other half is longer than a node waits for ticks: an answer that a leader had ready when it
was stopped comes too late to be used."""
RENEWALS_PER_LEASE: Final = 10

log = structlog.get_logger("tidemark")


class LeaderLease:
    """Renewed by `keep`."""

    def __init__(
        self,
        led: LedStore,
        lease_s: float,
        began_s: float,
        now_s: Callable[[], float] = anyio.current_time,
    ) -> None:
        """`began_s`: from before the write that made this process the leader."""
        self._led = led
        self._lease_s = lease_s
        self._renewed_s = began_s
        self._now_s = now_s
        self._renewals = 0
        self._renewing = False
        self._error = ""
        """Of the newest renewal that has ended; "" when it succeeded."""
        self._told = ""

    @property
    def term(self) -> int:
        """The term of this leader."""
        return self._led.term

    @property
    def left_s(self) -> float:
        """How long this process may still answer; not above 0 when it may not."""
        if self._led.deposed:
            return -math.inf
        return self._renewed_s + self._lease_s * ANSWER_SHARE - self._now_s()

    @property
    def failure(self) -> str:
        """Why this lease is not renewed, in a sentence; "" while it is, and for a former leader."""
        if self._led.deposed:
            return ""
        if self._error:
            cause = self._error
        elif self._renewing and self.left_s <= 0:
            cause = "the metadata store has not answered yet"  # its call has a deadline
        else:
            return ""
        return f"The lease of the leader cannot be renewed in the metadata: {cause}"

    async def keep(self) -> None:
        """Renew until a newer leader is noticed; a renewal that fails is tried again."""
        while not self._led.deposed:
            await anyio.sleep(self._lease_s / RENEWALS_PER_LEASE)
            await self.renew()

    async def renew(self) -> None:
        """Renew once; without an effect when the store takes no write."""
        began_s, kind = self._now_s(), ""
        self._renewing = True
        try:
            await self._led.write(renewal_puts(self._renewals + 1))
        except Deposed:
            return
        except MetaError as error:
            # Without the store nobody else becomes the leader either.
            kind = _kind(error)
            self._error = str(error) or kind
        else:
            self._renewals += 1
            self._renewed_s = began_s
            self._error = ""
        finally:
            self._renewing = False
        self._tell(kind)

    def _tell(self, kind: str) -> None:
        """Log each change once: the store may be away for hours, and each try fails.

        `kind`: of the error, "" for none. Its text names another member of etcd each time.
        """
        told = f"{kind} {self.left_s <= 0}" if kind else ""
        if told == self._told:
            return
        self._told = told
        if not kind:
            log.info("the lease of the leader is renewed again", term=self.term)
        elif self.left_s > 0:
            log.warning("the lease of the leader cannot be renewed", error=self._error)
        else:
            log.error(
                "this coordinator refuses calls until it can renew its lease as the leader",
                term=self.term,
                error=self._error,
            )


def _kind(error: MetaError) -> str:
    # A store that does not answer knows only at some tries whether the write was sent.
    return MetaError.__name__ if isinstance(error, WriteUnconfirmed) else type(error).__name__
