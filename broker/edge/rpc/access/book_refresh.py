"""Reads users, roles and tokens again before somebody is refused who may have just been added.

Why not at each refusal: a flood of wrong tokens must not become a flood of reads. All who wait
share one read, and it begins at most every PAUSE_S.
"""

from asyncio import get_running_loop
from typing import Final

import anyio

from broker.edge.rpc.access.access_records import AccessRecords
from broker.edge.rpc.access.gate import AccessGate
from broker.model.failure import Refused

PAUSE_S: Final = 0.05
"""Between the begins of two reads that refusals ask for."""
WAIT_S_MAX: Final = 2.0
"""Of one call; then it is decided by the book that is known."""
WAITING_MAX: Final = 1_024
"""Calls that wait at a time; one more is decided by the book that is known."""


async def read_newer(records: AccessRecords, gate: AccessGate) -> None:
    """Adopt the stored book if it has changed; one read of the store if not. Raises Refused."""
    if await records.epoch() == gate.book.epoch:
        return
    book = await records.read()
    # A change made by this process while it was read is newer.
    if book.epoch > gate.book.epoch:
        gate.adopt(book)


class BookRefresh:
    """One for a process that controls access."""

    def __init__(self, records: AccessRecords, gate: AccessGate) -> None:
        self.reads = 0
        self._records = records
        self._gate = gate
        self._lock = anyio.Lock()
        self._begun_s = float("-inf")
        self._waiting = self._asked = self._answered = 0

    async def newest(self) -> None:
        """Wait for a read that began after this call; WAIT_S_MAX at most. Never raises."""
        if self._waiting >= WAITING_MAX:
            return
        self._asked += 1
        ticket = self._asked
        self._waiting += 1
        try:
            with anyio.move_on_after(WAIT_S_MAX):
                async with self._lock:
                    if self._answered < ticket:
                        await self._read()
        finally:
            self._waiting -= 1

    async def _read(self) -> None:
        await anyio.sleep(max(0.0, self._begun_s + PAUSE_S - get_running_loop().time()))
        self._begun_s = get_running_loop().time()
        asked = self._asked
        self.reads += 1
        try:
            await read_newer(self._records, self._gate)
        except Refused:
            pass  # BookWatch reports a store that does not answer
        # Also after a failure: those who wait must not try in turn. A cancelled one is repeated.
        self._answered = asked
