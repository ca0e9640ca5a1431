"""Money moved between accounts, one on each vchannel: every transfer is a broadcast to two of them.

The sum of all accounts is 0 wherever no transfer is split, and hardly anywhere else: each amount is
odd, and no two of a worker's are the same.
"""

import itertools
import random

import anyio

from broker.client import Client, TidemarkError

VCHANNELS = 8
NAMES = tuple(f"by-dev-rootcoord-dml_{number}_7v0" for number in range(VCHANNELS))
APPEND_S = 20.0


def delta(value: bytes, vchannel: str) -> int:
    """What a copy of a transfer does to the account of its vchannel."""
    source, target, amount = value.decode().split()
    assert vchannel in (source, target), (value, vchannel)
    return int(amount) if vchannel == target else -int(amount)


class Transfers:
    """Workers that transfer without end. `done`: how many took effect, as they know."""

    def __init__(self, log: Client, run: str) -> None:
        """`run` tells these transfers from those of other runs on the same log."""
        self.done = 0
        self._log = log
        self._run = run

    async def work(self, worker: int, pause_s: float) -> None:
        """One after the other, with pauses; what was not answered is asked again, by its key."""
        chance = random.Random(worker)
        for number in itertools.count():
            source, target = chance.sample(NAMES, 2)
            payload = f"{source} {target} {2 * (1000 * number + worker) + 1}".encode()
            while not await self._moved((source, target), payload, f"{worker} {number}"):
                pass
            self.done += 1
            await anyio.sleep(pause_s)

    async def _moved(self, names: tuple[str, str], payload: bytes, key: str) -> bool:
        try:
            await self._log.broadcast.append(
                names, payload, idempotency_key=f"{self._run} {key}", deadline_s=APPEND_S
            )
        except TidemarkError:
            return False
        return True
