"""One busy stream a round of the event loop, and who waited longest goes first."""

import asyncio

import anyio
from anyio.lowlevel import checkpoint

from broker.edge.rpc.incoming.stream_turns import LOOK_BYTES, TURN_S, StreamTurns, TurnGate

STREAMS, TURNS = 5, 4


async def test_busy_streams_take_turns_one_a_round_in_one_order() -> None:
    gate, rounds, taken = TurnGate(), 0, list[tuple[int, int]]()

    async def count_rounds() -> None:
        nonlocal rounds
        while len(taken) < STREAMS * TURNS:
            rounds += 1
            await asyncio.sleep(0)

    async def busy(number: int) -> None:
        for _ in range(TURNS):
            await gate.wait()
            taken.append((rounds, number))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count_rounds)
        for number in range(STREAMS):
            tasks.start_soon(busy, number)
    assert [number for _, number in taken] == [*range(STREAMS)] * TURNS
    assert len({at for at, _ in taken}) == len(taken), "two of them in one round"


async def test_a_stream_that_ended_while_it_waited_costs_no_round_and_stops_nobody() -> None:
    gate, through = TurnGate(), list[str]()

    async def wait(name: str, scope: anyio.CancelScope) -> None:
        with scope:
            await gate.wait()
            through.append(name)

    ended = anyio.CancelScope()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, "first", anyio.CancelScope())
            tasks.start_soon(wait, "ended", ended)
            tasks.start_soon(wait, "last", anyio.CancelScope())
            await checkpoint()
            ended.cancel()
    assert through == ["first", "last"]
    with anyio.fail_after(60):
        await gate.wait()


class Time:
    """A clock that stands still unless it is moved."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Watched(TurnGate):
    """Counts who comes."""

    waited = 0

    async def wait(self) -> None:
        self.waited += 1


async def test_a_stream_waits_when_its_time_is_used_up_and_idle_time_does_not_count() -> None:
    gate, time = Watched(), Time()
    turns = StreamTurns(gate, time)
    for _ in range(100):
        time.now_s += 1.0  # idle
        turns.begin()
        await turns.next(LOOK_BYTES)
    assert gate.waited == 0
    turns.begin()
    await turns.next(LOOK_BYTES)
    time.now_s += 1.5 * TURN_S
    await turns.next(10)  # too little to look at the clock
    assert gate.waited == 0
    await turns.next(LOOK_BYTES)
    assert gate.waited == 1
    await turns.next(LOOK_BYTES)
    assert gate.waited == 1


async def test_time_that_the_last_requests_took_counts_when_the_next_ones_come() -> None:
    gate, time = Watched(), Time()
    turns = StreamTurns(gate, time)
    turns.begin()
    await turns.next(LOOK_BYTES)
    time.now_s += 1.5 * TURN_S
    turns.end()
    time.now_s += 1.0
    turns.begin()
    await turns.next(LOOK_BYTES)
    assert gate.waited == 1
