"""Money moved between accounts, one on each vchannel: by a broadcast to two, or by a staged batch.

The sum of all accounts is 0 wherever no transfer is split, and hardly anywhere else: each amount is
odd, and no two of a worker's are the same.
"""

import itertools
import random

import anyio

from broker.client import Client, TidemarkError
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import BadTarget, NoSuchVChannel

VCHANNELS = 8
NAMES = tuple(f"by-dev-rootcoord-dml_{number}_7v0" for number in range(VCHANNELS))
BROADCAST, STAGED = HOW = "broadcast", "staged batch"
APPEND_S = 20.0


def delta(value: bytes, vchannel: str) -> int:
    """What a copy of a transfer does to the account of its vchannel."""
    source, target, amount = value.decode().split()
    assert vchannel in (source, target), (value, vchannel)
    return int(amount) if vchannel == target else -int(amount)


class Transfers:
    """Workers that transfer without end. `done`: how many took effect, as they know, by `HOW`."""

    def __init__(self, log: Client, run: str) -> None:
        """`run` tells these transfers from those of other runs on the same log."""
        self.done = dict.fromkeys(HOW, 0)
        self._log = log
        self._run = run

    async def open_accounts(self) -> None:
        """Make the vchannels, each with a transfer of nothing: one that is unknown is refused."""
        for name in NAMES:
            await self._log.append(NewVChannel(name), f"{name} {name} 0".encode())

    async def work(self, worker: int, pause_s: float) -> None:
        """One after the other, with pauses; what was not answered is asked again, as the same."""
        chance = random.Random(worker)
        how = HOW[worker % len(HOW)]
        move = {BROADCAST: self._broadcast, STAGED: self._commit_a_pair}[how]
        for number in itertools.count():
            source, target = chance.sample(NAMES, 2)
            payload = f"{source} {target} {2 * (1000 * number + worker) + 1}".encode()
            for attempt in itertools.count():
                try:
                    await move(worker, number, attempt, (source, target), payload)
                    break
                except (BadTarget, NoSuchVChannel):
                    raise  # no kill causes these, so they would come again without end
                except TidemarkError:
                    continue
            self.done[how] += 1
            await anyio.sleep(pause_s)

    async def _broadcast(
        self, worker: int, number: int, _: int, names: tuple[str, str], payload: bytes
    ) -> None:
        key = f"{self._run} {worker} {number}"
        await self._log.broadcast.append(names, payload, idempotency_key=key, deadline_s=APPEND_S)

    async def _commit_a_pair(
        self, worker: int, number: int, attempt: int, names: tuple[str, str], payload: bytes
    ) -> None:
        """Staged again with each attempt: what a broken one staged is given up or expires."""
        app = f"{self._run} {worker}"
        async with self._log.stage(app, number, 0, attempt, deadline_s=APPEND_S) as stage:
            for name in names:
                await stage.append(name, payload)
            await self._log.commit_batch(app, number, [await stage.seal()], deadline_s=APPEND_S)
