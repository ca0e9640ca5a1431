"""What retention may remove while cursors hold, are passed, and move on."""

from broker.model.failure import StreamingCode
from broker.model.ids import MessageId, TimeTick
from broker.model.named_cursor import ChannelPosition
from broker.model.retention.holders import HolderKind, PassCause
from broker.model.retention.policy import HoldLimits
from broker.timesync.messages import (
    AllowRemovals,
    CommitCursor,
    FindHolds,
    GetCursor,
    OpenCursor,
    ResetCursor,
    ShowHeldBack,
)
from tests.broker.timesync.holds.removing_owner import (
    LIMITS,
    SHARD,
    P,
    World,
    allow,
    at,
    decide,
    die,
    find,
    play,
    round_of,
)


def test_a_cursor_within_its_limits_keeps_its_messages_and_is_named() -> None:
    async def test(world: World) -> None:
        world.log.next_id = 11
        await world.ask(OpenCursor("a", at(4)))
        assert await round_of(world)
        assert world.log.first_id == 5
        view = await world.ask(GetCursor("a"))
        assert (view.holds, view.held_bytes, view.passed) == (True, 6, {})
        (holder,) = world.figures.seen[P].holders
        assert (holder.kind, holder.name, holder.bytes) == (HolderKind.CURSOR, "a", 6)
        assert (await world.ask(ShowHeldBack()))[P].holders == (holder,)

    play(test)


def test_who_was_passed_is_known_after_a_restart_and_until_it_moves_on() -> None:
    async def test(world: World) -> None:
        await world.ask(OpenCursor("a", at(4)))
        await world.ask(OpenCursor("b", at(18)))
        world.log.next_id = 21
        epoch = (await world.ask(GetCursor("a"))).epoch
        assert await round_of(world)
        assert world.log.first_id == 19
        await die(world, "", 0)
        (passed,) = (await world.ask(ShowHeldBack()))[P].passed
        assert (passed.name, passed.cause, passed.bytes, passed.limit) == (
            "a",
            PassCause.BYTES,
            16,
            12,
        )
        assert passed.removed_tick == 18
        refusal = await world.refused(CommitCursor("a", epoch, at(6)))
        assert refusal is not None
        assert "more than hold_bytes_max (12)" in refusal.cause
        assert "tidemark cursors reset a all" in refusal.cause
        assert (await world.ask(FindHolds({P: world.log.start()})))[P][0].name == "b"
        assert await world.refused(CommitCursor("a", epoch, at(18))) is None, "nothing is missing"
        assert (await world.ask(ShowHeldBack()))[P].passed == ()
        assert P not in {name for name, it in world.figures.seen.items() if it.passed}

    play(test)


def test_a_cursor_that_made_no_commit_for_too_long_is_passed_by_its_time() -> None:
    async def test(world: World) -> None:
        world.log.next_id = 11
        await world.ask(OpenCursor("a", at(4)))
        await world.clock.sleep(LIMITS.age_s_max + 1)
        assert await round_of(world)
        assert world.log.first_id == 11
        assert "hold_s_max" in (await world.ask(GetCursor("a"))).passed[P]

    play(test)


def test_a_hold_that_is_taken_while_a_removal_is_decided_forbids_it() -> None:
    async def test(world: World) -> None:
        world.log.next_id = 11
        await find(world, "", 0)
        await decide(world, "", 0)
        await world.ask(OpenCursor("a", at(4)))
        await allow(world, "", 0)
        assert not world.allowed
        assert await round_of(world)
        assert world.log.first_id == 5, "the next round knows it"

    play(test)


def test_no_hold_is_granted_below_a_removal_that_was_allowed() -> None:
    async def test(world: World) -> None:
        world.log.next_id = 11
        await find(world, "", 0)
        await decide(world, "", 0)
        await allow(world, "", 0)
        await die(world, "", 0)
        for request in (OpenCursor("a", at(4)), ResetCursor("a", at(4))):
            refusal = await world.refused(request)
            assert refusal is not None
            assert refusal.code is StreamingCode.UNRECOVERABLE
            assert "removed messages up to tick 10" in refusal.cause
        begin = {SHARD: ChannelPosition(TimeTick(0), from_id=MessageId(1))}
        made = await world.ask(OpenCursor("a", begin))
        assert made.positions[SHARD].from_id == 11, "the beginning is what is left"

    play(test)


def test_a_cursor_that_moves_while_it_is_passed_by_time_is_asked_about_again() -> None:
    async def test(world: World) -> None:
        world.log.next_id = 11
        epoch = (await world.ask(OpenCursor("a", at(4)))).epoch
        await world.clock.sleep(LIMITS.age_s_max + 1)
        await find(world, "", 0)
        await decide(world, "", 0)
        await world.ask(CommitCursor("a", epoch, at(6)))
        await allow(world, "", 0)
        assert not world.allowed
        assert await round_of(world)
        assert world.log.first_id == 7

    play(test)


def test_a_cursor_from_the_beginning_of_a_whole_log_is_named_when_it_is_passed() -> None:
    async def test(world: World) -> None:
        await world.ask(OpenCursor("a", {SHARD: ChannelPosition(TimeTick(0))}))
        world.log.next_id = 21
        assert await round_of(world)
        assert world.log.first_id == 21
        (passed,) = (await world.ask(ShowHeldBack()))[P].passed
        assert (passed.name, passed.cause, passed.bytes) == ("a", PassCause.BYTES, 20)
        assert "more than hold_bytes_max" in (await world.ask(GetCursor("a"))).passed[P]

    play(test)


def test_a_removal_that_nobody_allowed_is_noted_with_the_cursors_that_it_passed() -> None:
    async def test(world: World) -> None:
        world.log.next_id = 11
        await world.ask(OpenCursor("a", at(4)))
        world.log.first_id = 9
        assert (await world.ask(FindHolds({P: world.log.start()})))[P] == []
        (passed,) = (await world.ask(ShowHeldBack()))[P].passed
        assert (passed.name, passed.cause, passed.removed_tick) == ("a", PassCause.UNASKED, 8)
        assert "no coordinator answered" in (await world.ask(GetCursor("a"))).passed[P]

    play(test)


def test_cursors_that_do_not_hold_are_left_behind_as_before() -> None:
    async def test(world: World) -> None:
        world.log.next_id = 11
        epoch = (await world.ask(OpenCursor("a", at(4), holds=False))).epoch
        assert await round_of(world)
        assert world.log.first_id == 11
        view = await world.ask(GetCursor("a"))
        assert not view.holds
        assert view.passed[P] == "messages up to tick 10 are removed"
        assert await world.refused(CommitCursor("a", epoch, at(6))) is None
        assert (await world.ask(ShowHeldBack()))[P].passed == ()
        assert (await world.ask(ResetCursor("a", at(10), holds=True))).holds
        assert (await world.ask(ResetCursor("a", at(10)))).holds, "as before"
        world.rule.now = HoldLimits(bytes_max=0)
        assert (await world.ask(FindHolds({P: world.log.start()})))[P] == []

    play(test)


def test_nothing_is_allowed_that_could_not_be_recorded() -> None:
    async def test(world: World) -> None:
        world.log.next_id = 21
        await world.ask(OpenCursor("a", at(4)))
        await find(world, "", 0)
        await decide(world, "", 0)
        removals = {P: world.decided} if world.decided else {}
        assert removals[P].passed
        world.store.broken = True
        refusal = await world.refused(AllowRemovals(removals))
        assert refusal is not None
        assert refusal.code is StreamingCode.INNER
        world.store.broken = False
        assert (await world.ask(GetCursor("a"))).passed == {}, "nothing was removed"

    play(test)
