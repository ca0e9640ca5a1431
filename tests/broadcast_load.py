"""Many broadcasts with keys that conflict, and whether they lie in one order everywhere."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import anyio

from broker.client import Client, OutcomeUnknown, ResourceKey

KEYS = 6
AT_ONCE = 32
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Asked:
    """One broadcast of the load."""

    number: int
    vchannels: tuple[str, ...]
    keys: tuple[ResourceKey, ...]

    def conflicts_with(self, other: "Asked") -> bool:
        return any(
            (mine.domain, mine.key) == (theirs.domain, theirs.key)
            and not (mine.shared and theirs.shared)
            for mine in self.keys
            for theirs in other.keys
        )


@dataclass
class Load:
    """What was asked, and the id that each got."""

    asked: list[Asked]
    ids: dict[int, int] = field(default_factory=dict)
    attempts: int = 0
    grown: anyio.Event = field(default_factory=anyio.Event)

    async def reach(self, answered: int) -> None:
        """Until so many have an answer, or all."""
        while len(self.ids) < min(answered, len(self.asked)):
            self.grown = anyio.Event()
            await self.grown.wait()

    async def run(self, log: Client) -> None:
        """Ask for all of them, `AT_ONCE` at a time, in no order, until each has an answer."""
        waiting = list(reversed(self.asked))

        async def worker() -> None:
            while waiting:
                await self._one(log, waiting.pop())

        async with anyio.create_task_group() as tasks:
            for _ in range(AT_ONCE):
                tasks.start_soon(worker)

    async def _one(self, log: Client, asked: Asked) -> None:
        while True:
            self.attempts += 1
            try:
                done = await log.broadcast.append(
                    asked.vchannels,
                    b"%d" % asked.number,
                    keys=asked.keys,
                    idempotency_key=f"load-{asked.number}",
                    deadline_s=PATIENCE_S,
                )
            except OutcomeUnknown:
                continue
            assert set(done.results) == set(asked.vchannels)
            self.ids[asked.number] = done.id
            self.grown.set()
            return


def make_load(count: int, vchannels: Sequence[str], seed: int) -> Load:
    """`count` broadcasts, each with one to three keys of six, to two or more of the vchannels."""
    chosen = random.Random(seed)
    asked = []
    for number in range(count):
        names = chosen.sample(list(vchannels), chosen.randint(2, len(vchannels)))
        numbers = chosen.sample(range(KEYS), chosen.randint(1, 3))
        keys = [ResourceKey.collection(f"c{it}", shared=chosen.random() < 0.3) for it in numbers]
        asked.append(Asked(number, tuple(names), tuple(keys)))
    return Load(asked)


async def judge(log: Client, load: Load, vchannels: Sequence[str]) -> int:
    """Everywhere what was answered, nothing twice, one order; how many pairs were compared."""
    assert len(set(load.ids.values())) == len(load.asked), "one broadcast for each key"
    orders = {vchannel: await order_on(log, vchannel) for vchannel in vchannels}
    for asked in load.asked:
        found = {vchannel for vchannel in vchannels if asked.number in orders[vchannel]}
        assert found == set(asked.vchannels), "P25: on all of its vchannels, and on no other"
    places = {name: {it: at for at, it in enumerate(order)} for name, order in orders.items()}
    compared = 0
    for one, other in combinations(load.asked, 2):
        if not one.conflicts_with(other):
            continue
        first = load.ids[one.number] < load.ids[other.number]
        for name in set(one.vchannels) & set(other.vchannels):
            compared += 1
            assert (places[name][one.number] < places[name][other.number]) == first, "P26"
    return compared


async def order_on(log: Client, vchannel: str) -> list[int]:
    """The broadcasts on one vchannel as a reader sees them: each once, in order."""
    with anyio.fail_after(PATIENCE_S):
        reader = log.read(vchannel, until="now")
        numbers = [int(message.payload) async for message in reader.messages()]
    assert len(set(numbers)) == len(numbers), "a reader sees each once"
    return numbers
