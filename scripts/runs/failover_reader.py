"""Reads all that the lanes of a failover append, while they append it, and compares at the end."""

import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import anyio

from broker.client import Client, TidemarkError

CATCH_UP_S = 120.0


@dataclass(slots=True)
class Follower:
    """One reader of the collection that is never started anew.

    `seen`: how often each message was read; `longest_s`: the longest time without one.
    """

    name: str
    seen: Counter[bytes] = field(default_factory=Counter)
    errors: int = 0
    longest_s: float = 0.0
    last_s: float = field(default_factory=time.monotonic)
    came: anyio.Event = field(default_factory=anyio.Event)

    async def follow(self, log: Client) -> None:
        """Read until cancelled. An error of the client ends it, and is counted and printed."""
        try:
            async for batch in log.read(self.name, start="all"):
                now_s = time.monotonic()
                self.longest_s = max(self.longest_s, now_s - self.last_s)
                self.last_s = now_s
                self.seen.update(bytes(it.payload) for it in batch.messages)
                self._tell()
        except TidemarkError as error:
            self.errors += 1
            print(f"the reader of {self.name}: {error}", file=sys.stderr)
            self._tell()

    async def until_read(self, acknowledged: set[bytes]) -> tuple[int, int]:
        """How many acknowledged messages it has not read in time, and how many it read twice."""
        with anyio.move_on_after(CATCH_UP_S):
            while not self.errors and acknowledged - self.seen.keys():
                await self.came.wait()
        lost = len(acknowledged - self.seen.keys())
        return lost, sum(count > 1 for count in self.seen.values())

    def _tell(self) -> None:
        self.came.set()
        self.came = anyio.Event()
