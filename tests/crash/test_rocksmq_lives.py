"""Random lives of an embedded queue, each killed at a random write, against lists."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.rocksmq.page_retention import PageRules
from broker.rocksmq import RocksMQ, RocksMQError
from tests.broker.rocksmq.faulty_store import FaultyStore, Killed
from tests.broker.rocksmq.open_queues import open_on
from tests.crash.test_rocksmq_steps import abandon

RULES = PageRules(page_bytes=30, age_ms_max=0, size_bytes_max=None)
CHANNELS, GROUPS = ("a", "ab"), ("g", "h")
BEGIN = -1

Call = tuple[str, str, str, int]
"""Kind, channel, group, and a number."""


@dataclass
class NaiveGroup:
    """`stored` is the least position that is known to be durable."""

    stored: int = BEGIN
    answered: int = BEGIN


@dataclass
class NaiveChannel:
    messages: list[tuple[int, bytes]] = field(default_factory=list)
    groups: dict[str, NaiveGroup] = field(default_factory=dict)


@dataclass
class Naive:
    """What was acknowledged, and the one call that a kill left open."""

    channels: dict[str, NaiveChannel] = field(default_factory=dict)
    open_call: Call | None = None
    newest: int = 0
    payloads: int = 0

    async def call(self, mq: RocksMQ, call: Call) -> None:
        kind, name, group, number = self.open_call = call
        try:
            await getattr(self, kind)(mq, name, group, number)
        except RocksMQError:
            there = self.channels.get(name)
            if kind == "create_channel":
                assert there
            elif kind == "create_group":
                assert not there or group in there.groups
            elif kind != "seek":
                assert not there or (group not in there.groups and kind not in ("produce",))
        self.open_call = None

    async def create_channel(self, mq: RocksMQ, name: str, group: str, number: int) -> None:
        await mq.create_channel(name)
        assert name not in self.channels
        self.channels[name] = NaiveChannel()

    async def destroy_channel(self, mq: RocksMQ, name: str, group: str, number: int) -> None:
        await mq.destroy_channel(name)
        del self.channels[name]

    async def create_group(self, mq: RocksMQ, name: str, group: str, number: int) -> None:
        await mq.create_consumer_group(group, name)
        assert group not in self.channels[name].groups
        self.channels[name].groups[group] = NaiveGroup()

    async def destroy_group(self, mq: RocksMQ, name: str, group: str, number: int) -> None:
        await mq.destroy_consumer_group(group, name)
        del self.channels[name].groups[group]

    async def produce(self, mq: RocksMQ, name: str, group: str, number: int) -> None:
        payloads = self.next_payloads(number)
        ids = await mq.produce(name, payloads)
        assert ids[0] > self.newest
        self.newest = ids[-1]
        self.channels[name].messages += zip(ids, payloads, strict=True)

    def next_payloads(self, number: int) -> list[bytes]:
        return [b"%010d" % (self.payloads + place) for place in range(number + 1)]

    async def consume(self, mq: RocksMQ, name: str, group: str, number: int) -> None:
        found = await mq.consume(group, name, number + 1)
        place = self.channels[name].groups[group]
        left = [it for it in self.channels[name].messages if it[0] >= place.answered]
        assert [(it.msg_id, it.payload) for it in found] == left[: number + 1]
        if found:
            place.answered = found[-1].msg_id + 1

    async def commit(self, mq: RocksMQ, name: str, group: str, number: int) -> None:
        await mq.commit(group, name)
        place = self.channels[name].groups[group]
        place.stored = place.answered

    async def seek(self, mq: RocksMQ, name: str, group: str, number: int) -> None:
        ids = [it for it, _ in self.channels[name].messages] if name in self.channels else []
        target = ids[number % len(ids)] if ids else BEGIN
        place = self.channels[name].groups.get(group) if name in self.channels else None
        if place is not None:
            # Until it is answered the position may be either.
            place.stored = min(place.stored, target)
            place.answered = max(place.answered, target)
        await mq.seek(group, name, target)
        assert place is not None
        place.stored = place.answered = target

    async def sweep(self, mq: RocksMQ, name: str, group: str, number: int) -> None:
        await mq.sweep()
        self.removed(mq)

    def removed(self, mq: RocksMQ) -> None:
        """Take note of what retention removed: nothing that a group has not read."""
        for name, channel in self.channels.items():
            begin = mq.describe_channel(name).begin_id
            gone = [it for it, _ in channel.messages if it < begin]
            if gone:
                assert channel.groups
                assert gone[-1] < min(it.answered for it in channel.groups.values())
            channel.messages = [it for it in channel.messages if it[0] >= begin]

    async def reopened(self, mq: RocksMQ) -> None:
        """The next process finds what was acknowledged, and the open call done or not done."""
        self.resolve(mq)
        assert mq.channels() == sorted(self.channels)
        self.removed(mq)
        for name, channel in self.channels.items():
            view = mq.describe_channel(name)
            assert set(view.positions) == set(channel.groups)
            for group, place in channel.groups.items():
                assert place.stored <= view.positions[group] <= place.answered
                place.stored = place.answered = view.positions[group]
            found = await mq._reader.scan(name, 0, 2**63 - 1, 10_000)
            stored = [(it.msg_id, it.payload) for it in found]
            extra = stored[len(channel.messages) :]
            assert stored[: len(channel.messages)] == channel.messages
            if extra:
                assert self.open_call is not None
                assert self.open_call[:2] == ("produce", name)
                assert [payload for _, payload in extra] == self.next_payloads(self.open_call[3])
                assert [it for it, _ in extra] == list(range(extra[0][0], extra[0][0] + len(extra)))
                channel.messages += extra
                self.newest = extra[-1][0]
            assert view.end_id == (stored[-1][0] + 1 if stored else view.begin_id)
        self.open_call = None

    def resolve(self, mq: RocksMQ) -> None:
        """Decide by what is there whether the call that a kill left open took effect."""
        kind, name, group, _ = self.open_call or ("", "", "", 0)
        if kind == "create_channel" and mq.channel_exists(name):
            self.channels.setdefault(name, NaiveChannel())
        elif kind == "destroy_channel" and not mq.channel_exists(name):
            self.channels.pop(name, None)
        elif kind == "create_group" and mq.consumer_group_exists(group, name):
            self.channels[name].groups.setdefault(group, NaiveGroup())
        elif kind == "destroy_group" and not mq.consumer_group_exists(group, name):
            self.channels.get(name, NaiveChannel()).groups.pop(group, None)


ONCE = ["create_channel", "create_group", "destroy_channel", "destroy_group", "commit", "seek"]
KINDS = ONCE + 3 * ["produce", "consume"] + 2 * ["sweep"]
CALLS = st.tuples(
    st.sampled_from(KINDS), st.sampled_from(CHANNELS), st.sampled_from(GROUPS), st.integers(0, 5)
)
LIVES = st.lists(
    st.tuples(st.lists(CALLS, max_size=25), st.integers(1, 30), st.booleans()),
    min_size=1,
    max_size=4,
)


async def begin(naive: Naive, mq: RocksMQ) -> None:
    """So that most calls find something."""
    for name in CHANNELS:
        await naive.call(mq, ("create_channel", name, "g", 0))
        for group in GROUPS:
            await naive.call(mq, ("create_group", name, group, 0))


async def live(naive: Naive, store: FaultyStore, folder: Path, calls: list[Call]) -> None:
    try:
        mq = open_on(store, folder, rules=RULES)
    except Killed:
        return
    try:
        await naive.reopened(mq)
        if not naive.channels:
            await begin(naive, mq)
        for call in calls:
            await naive.call(mq, call)
            naive.payloads += 10
    except Killed:
        pass
    finally:
        abandon(mq)


@settings(deadline=None)
@given(LIVES)
def test_whatever_dies_whenever_a_queue_is_what_a_naive_one_is(
    lives: list[tuple[list[Call], int, bool]],
) -> None:
    async def play() -> None:
        naive, entries = Naive(), dict[bytes, bytes]()
        for calls, kill_at, after in lives:
            store = FaultyStore(entries)
            store.kill_at, store.kill_after = kill_at, after
            await live(naive, store, Path(folder), calls)
        await live(naive, FaultyStore(entries), Path(folder), [])

    with TemporaryDirectory() as folder:
        asyncio.run(play())
