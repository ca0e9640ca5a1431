"""Which tick a reader says is closed: never one that covers what no step has returned."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.client.message import Batch, Received
from broker.client.net.one_slot_queue import OneSlotQueue
from broker.client.read.deliveries import Deliveries, UnackedBatch
from broker.client.read.scanner import Reading
from broker.model.ids import MessageId, TimeTick, VChannelName

GUARD_S = 60.0

Step = tuple[int, int, bool]
"""Messages of a batch, ticks closed behind the last one, whether they are closed later."""
SCRIPTS = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()), max_size=6),
    min_size=1,
    max_size=3,
)
ACTIONS = st.lists(st.sampled_from(["batch", "message", "idle"]), max_size=30)


def message(vchannel: int, tick: int) -> Received:
    return Received(b"", MessageId(tick), TimeTick(tick), f"v{vchannel}", None, 2, {})


@dataclass
class Scripted:
    """A source that delivers batches and closes ticks as scripted, `together` batches at once.

    `open_ticks`: of the naive model, the messages that the program has not got, whenever they come.
    """

    channels = ("v",)

    number: int
    script: Sequence[Step]
    together: int
    open_ticks: set[int] = field(default_factory=set)
    last_closed: int = 0

    def __post_init__(self) -> None:
        tick = 0
        for count, beyond, _ in self.script:
            self.open_ticks |= {tick + 1 + it for it in range(count)}
            tick += count + beyond
        self.last_closed = tick

    async def run(self, deliveries: Deliveries[Batch]) -> None:
        tick, waiting = 0, list[Batch]()
        for left, (count, beyond, later) in zip(
            reversed(range(len(self.script))), self.script, strict=True
        ):
            messages = [message(self.number, tick + 1 + it) for it in range(count)]
            before, tick = tick, tick + count + beyond
            if messages:
                closed = before if later else tick
                waiting.append(Batch(VChannelName(""), None, messages, TimeTick(closed)))
            if left and 0 < len(waiting) < self.together:
                continue
            await deliveries.put(waiting)
            waiting = []
            deliveries.close_tick(TimeTick(tick))
            await anyio.lowlevel.checkpoint()


class Program:
    """Takes what it is given, and looks at the closed tick whenever it has something new."""

    def __init__(self, reader: Reading[Batch], sources: Sequence[Scripted]) -> None:
        self._reader = reader
        self._sources = sources
        self._messages = reader.messages()
        self._half = False
        """It left a batch of `messages` in its middle, which it has to go on with."""
        self._closed = 0

    async def act(self, action: str) -> None:
        if action == "idle":
            await anyio.wait_all_tasks_blocked()
        elif action == "batch" and not self._half:
            self._got((await anext(self._reader)).messages)
        else:
            got = await anext(self._messages)
            self._got([got])
            source = self._sources[int(got.vchannel[1:])]
            self._half = self._follows(source, got.tick)
        self.look()

    def _follows(self, source: Scripted, tick: int) -> bool:
        """Whether more messages of the batch of this tick follow."""
        at = 0
        for count, beyond, _ in source.script:
            if at < tick <= at + count:
                return tick < at + count
            at += count + beyond
        raise AssertionError(tick)

    def _got(self, messages: Sequence[Received]) -> None:
        for it in messages:
            self._sources[int(it.vchannel[1:])].open_ticks.remove(it.tick)

    def look(self) -> None:
        closed = self._reader.closed_tick
        assert closed >= self._closed
        self._closed = closed
        for source in self._sources:
            assert not any(tick <= closed for tick in source.open_ticks)


@settings(deadline=None)  # each case has a loop of its own
@given(SCRIPTS, st.integers(1, 3), ACTIONS)
def test_a_closed_tick_covers_what_was_taken_and_all_of_it_in_the_end(
    scripts: list[list[Step]], together: int, actions: list[str]
) -> None:
    async def scenario() -> None:
        sources = [Scripted(number, script, together) for number, script in enumerate(scripts)]

        async def plan() -> list[Scripted]:
            return sources

        async with anyio.create_task_group() as tasks:
            reader = Reading[Batch](plan, tasks)
            program = Program(reader, sources)
            await reader.open()
            try:
                with anyio.fail_after(GUARD_S):
                    for action in actions:
                        await program.act(action)
                    while True:
                        await program.act("message")
            except StopAsyncIteration:
                pass
            program.look()
            assert reader.closed_tick == min(it.last_closed for it in sources)
            assert not any(it.open_ticks for it in sources)

    anyio.run(scenario)


async def test_a_tick_that_is_closed_behind_a_batch_waits_until_that_is_taken() -> None:
    ready: OneSlotQueue[UnackedBatch[Batch]] = OneSlotQueue()
    deliveries = Deliveries(ready)
    deliveries.close_tick(TimeTick(3))
    assert deliveries.closed_tick == 3
    await deliveries.put([Batch(VChannelName("v"), None, [message(0, 5)], TimeTick(5))])
    deliveries.close_tick(TimeTick(7))
    assert deliveries.closed_tick == 3
    (await ready.take()).acknowledge()
    assert deliveries.closed_tick == 7


async def test_the_next_put_waits_until_all_items_of_the_one_before_are_taken() -> None:
    ready: OneSlotQueue[int] = OneSlotQueue()
    await ready.put([1, 2])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ready.put, [3])
        assert await ready.take() == 1
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0):
            await ready.until_empty()
            raise AssertionError("the slot is free while an item is in it")
        assert await ready.take() == 2
        assert await ready.take() == 3
    await ready.until_empty()
