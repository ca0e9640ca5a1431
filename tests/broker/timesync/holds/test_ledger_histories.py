"""Cursors and removals in any order, with coordinators that die between: nobody loses silently.

An owner asks for holds, decides, asks for permission and removes, and each of these may be
overtaken by cursors that are made, move, are reset or dropped.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.model.failure import Refused, StreamingCode
from broker.model.ids import MessageId, TimeTick
from broker.model.named_cursor import ChannelPosition, CursorView
from broker.timesync.messages import (
    CommitCursor,
    DropCursor,
    GetCursor,
    OpenCursor,
    ResetCursor,
)
from tests.broker.timesync.holds.removing_owner import (
    CURSORS,
    SHARD,
    P,
    World,
    allow,
    at,
    decide,
    die,
    find,
    play,
    remove,
)

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ("append", "append", "open", "reset", "commit", "drop", "wait", "die")
            + ("find", "decide", "allow", "remove") * 2
        ),
        st.sampled_from(CURSORS),
        st.integers(0, 40),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_a_cursor_that_has_lost_something_is_told_which_limit_it_exceeded(
    steps: list[tuple[str, str, int]],
) -> None:
    async def test(world: World) -> None:
        for step, name, number in steps:
            await DOES[step](world, name, number)
            await check(world)

    play(test)


async def check(world: World) -> None:
    """Whoever needs what is removed has a reason; whoever does not was not passed."""
    for name in CURSORS:
        try:
            view = await world.ask(GetCursor(name))
        except Refused:
            continue
        needed = int(view.positions[SHARD].from_id)
        if needed < world.log.first_id:
            assert P in view.passed, "it has lost messages, and nobody told"
            assert "hold_bytes_max" in view.passed[P] or "hold_s_max" in view.passed[P]


async def append(world: World, _: str, number: int) -> None:
    world.log.next_id += number


async def opened(world: World, name: str, number: int) -> None:
    await try_to_set(world, OpenCursor(name, begin(world, number)))


async def reset(world: World, name: str, number: int) -> None:
    await try_to_set(world, ResetCursor(name, begin(world, number)))


def begin(world: World, number: int) -> dict[str, ChannelPosition]:
    """A place that the client has just found to be in the log."""
    if number % 3 == 0:
        return {SHARD: ChannelPosition(TimeTick(0), from_id=MessageId(world.log.first_id))}
    return at(min(world.log.first_id - 1 + number, world.log.next_id - 1))


async def try_to_set(world: World, request: OpenCursor | ResetCursor) -> None:
    refusal = await world.refused(request)
    if refusal is not None:
        assert refusal.code is StreamingCode.UNRECOVERABLE
        assert int(request.positions[SHARD].from_id) < world.promised


async def commit(world: World, name: str, number: int) -> None:
    try:
        view: CursorView = await world.ask(GetCursor(name))
    except Refused:
        return
    tick = min(int(view.positions[SHARD].from_id) + number, world.log.next_id - 1)
    refusal = await world.refused(CommitCursor(name, view.epoch, at(tick)))
    if refusal is not None:
        assert refusal.code is StreamingCode.UNRECOVERABLE
        assert "was passed by retention" in refusal.cause
        assert P in view.passed


async def drop(world: World, name: str, _: int) -> None:
    refusal = await world.refused(DropCursor(name))
    assert refusal is None or refusal.code is StreamingCode.CHANNEL_NOT_EXIST


async def wait(world: World, _: str, number: int) -> None:
    await world.clock.sleep(number / 8)


DOES = {
    "append": append,
    "open": opened,
    "reset": reset,
    "commit": commit,
    "drop": drop,
    "wait": wait,
    "die": die,
    "find": find,
    "decide": decide,
    "allow": allow,
    "remove": remove,
}
