"""The promise of a time tick, from proxies over the soft barrier to the windows of a reader.

A proxy takes timestamps and sends later, in any order; it reports a tick below which it has sent
everything. Whatever the order of all steps, no message comes behind a tick that covers it.
"""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.core.msgstream.sender_windows import SenderWindow, SenderWindows, Sent
from broker.core.time.barrier import SoftMinimum
from broker.model.ids import TimeTick

PEERS = ("p", "q", "r")
CHANNELS = ("a", "b")
MESSAGES = 40


class Proxy:
    """`pending`: the timestamps that it has taken, and whose messages it has not sent yet."""

    def __init__(self, *, honest: bool) -> None:
        self.pending: list[int] = []
        self._honest = honest

    def tick(self, newest: int) -> int:
        """The tick that it reports: below all that it has not sent."""
        return min(self.pending) - 1 if self.pending and self._honest else newest


class World:
    """One clock, and channels in which messages and ticks lie in the order of their arrival."""

    def __init__(self, chance: Any, *, honest: bool, interval: int) -> None:
        self.clock = 0
        self.chance = chance
        self.proxies = {peer: Proxy(honest=honest) for peer in PEERS}
        self.barrier = SoftMinimum(PEERS, interval)
        self.windows = SenderWindows[int](CHANNELS)
        self.place = 0
        self.sent: list[int] = []
        self.found: list[SenderWindow[int]] = []

    def step(self) -> None:
        peer = self.chance.choice(PEERS)
        proxy = self.proxies[peer]
        match self.chance.choice(["take", "send", "report"]):
            case "take" if len(self.sent) + len(proxy.pending) < MESSAGES:
                self.clock += 1  # taken and noted in one step: nothing comes between
                proxy.pending.append(self.clock)
            case "send" if proxy.pending:
                self.send(proxy)
            case _:
                self.report(peer)

    def send(self, proxy: Proxy) -> None:
        timestamp = proxy.pending.pop(self.chance.randrange(len(proxy.pending)))
        channel = self.chance.choice(CHANNELS)
        self.sent.append(timestamp)
        self.windows.add(channel, Sent(timestamp, self.next_place(), 1, timestamp))

    def report(self, peer: str) -> None:
        tick = self.proxies[peer].tick(self.clock)
        if tick > 0:
            self.barrier.report(peer, TimeTick(tick))
        for passed in self.barrier.take():
            for channel in CHANNELS:
                assert self.windows.tick(channel, passed, self.next_place())
            self.found.append(self.windows.take())

    def next_place(self) -> bytes:
        self.place += 1
        return self.place.to_bytes(4, "big")


def ended(chance: Any, steps: int, *, honest: bool, interval: int) -> World:
    """A run, at whose end everybody has sent and reported everything."""
    world = World(chance, honest=honest, interval=interval)
    for _ in range(steps):
        world.step()
    for proxy in world.proxies.values():
        while proxy.pending:
            world.send(proxy)
    world.clock += 1 + interval
    for peer in PEERS:
        world.report(peer)
    return world


@given(st.randoms(use_true_random=False), st.integers(0, 150), st.integers(1, 5))
def test_no_interleaving_of_proxies_breaks_the_promise_of_a_tick(
    chance: Any, steps: int, interval: int
) -> None:
    world = ended(chance, steps, honest=True, interval=interval)
    assert world.windows.late == 0
    for window in world.found:
        assert all(window.begin < each <= window.end for each in window.messages)
    assert sorted(each for it in world.found for each in it.messages) == sorted(world.sent)


def test_a_proxy_that_promises_too_much_is_noticed() -> None:
    late = 0
    for seed in range(20):
        world = ended(_chance(seed), 150, honest=False, interval=1)
        late += world.windows.late
        # Late or not, nothing is lost.
        assert sorted(each for it in world.found for each in it.messages) == sorted(world.sent)
    assert late > 0


def _chance(seed: int) -> Any:
    import random  # noqa: PLC0415 - one test alone needs a generator of its own

    return random.Random(seed)
